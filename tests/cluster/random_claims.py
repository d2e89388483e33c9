"""Random claims over machine shapes: the questions that the real scheduler and our allocator are both asked.

Everything follows from a number, so a difference can be asked again. What is drawn is what people write (counts,
selectors on attributes, NICs with GPUs), their mistakes (an attribute that is not there), and the corners of the
interface: all devices, alternatives, tolerated taints.
"""

from __future__ import annotations

import random
from typing import Any

from tests.cluster.kubebed.manifests import RESOURCE_API, claim, request
from tests.cluster.kubebed.paper import LABEL

Manifest = dict[str, Any]
NIC, GPU, ANY = "paper-nic", "paper-gpu", "paper-any"
CLASSES = {
    NIC: 'device.driver == "dra.net"',
    GPU: 'device.driver == "gpu.nvidia.com"',
    ANY: "true",
}
ROOT, NUMA, BUS = (f"resource.kubernetes.io/{name}" for name in ("pcieRoot", "numaNode", "pciBusID"))
SELECTORS: dict[str, list[str]] = {
    NIC: [
        'device.attributes["dra.net"].rdma == true',
        'device.attributes["dra.net"].numaNode == 1',
        'device.attributes["dra.net"].?ifName.orValue("").startsWith("gpu")',
        'device.attributes["dra.net"].rdma && device.attributes["dra.net"].numaNode == 0',
        'device.attributes["dra.net"].rdmaDevice in ["mlx5_0", "mlx5_2", "mlx5_5"]',
        'device.attributes["dra.net"].ifName.matches("^gpu[0-3]rdma0$")',
        'device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:93"',
    ],
    GPU: [
        'device.attributes["gpu.nvidia.com"].type == "gpu"',
        'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("100Gi")) >= 0',
        'device.attributes["gpu.nvidia.com"].productName.lowerAscii().contains("h200")',
        'device.attributes["resource.kubernetes.io"].pciBusID > "0000:9"',
    ],
    ANY: ['"resource.kubernetes.io" in device.attributes', 'device.driver.endsWith("nvidia.com")'],
}
TAINT = {"key": "dra.net/link-down", "effect": "NoSchedule"}
TOLERATION = {"key": "dra.net/link-down", "operator": "Exists"}


def taint_some(slices: list[Manifest], chance: random.Random) -> None:
    """One NIC in ten is down, as our driver says it."""
    for found in slices:
        for device in found["spec"]["devices"]:
            if chance.random() < 0.1:
                device["taints"] = [TAINT]


def random_claim(name: str, chance: random.Random) -> Manifest:
    requests = [_request(f"r{number}", chance) for number in range(chance.choice((1, 1, 2, 2, 3)))]
    return claim(name, *requests, constraints=_constraints([entry["name"] for entry in requests], chance))


def _request(name: str, chance: random.Random) -> Manifest:
    if chance.random() < 0.15:
        options = [_exactly(f"{name}{letter}", chance) for letter in "ab"]
        return {"name": name, "firstAvailable": [{"name": o["name"], **o["exactly"]} for o in options]}
    return _exactly(name, chance)


def _exactly(name: str, chance: random.Random) -> Manifest:
    kind = chance.choices((NIC, GPU, ANY), (5, 4, 1))[0]
    selector = chance.choice(SELECTORS[kind]) if chance.random() < 0.6 else None
    everything = chance.random() < 0.08
    made = request(name, kind, selector=selector, count=chance.choice((1, 1, 1, 2, 2, 4, 8)), everything=everything)
    if chance.random() < 0.2:
        made["exactly"]["tolerations"] = [TOLERATION]
    return made


def _constraints(names: list[str], chance: random.Random) -> list[Manifest]:
    if chance.random() < 0.5:
        return []
    of = sorted(chance.sample(names, chance.randint(1, len(names))))
    return [{"requests": of, "matchAttribute": chance.choices((ROOT, NUMA, BUS), (6, 2, 1))[0]}]


def device_class(name: str) -> Manifest:
    selectors = [{"cel": {"expression": CLASSES[name]}}]
    metadata = {"name": name, "labels": {LABEL: "yes"}}
    return {"apiVersion": RESOURCE_API, "kind": "DeviceClass", "metadata": metadata, "spec": {"selectors": selectors}}
