"""Small random clusters whose NICs are shared, and pods that want whole NICs and shares of them in random order.

NICs are published by our own code, so what the real scheduler counts is what a driver would offer. Drawn are amounts
that fit and that do not, ones that are rounded, several of a claim, kept apart or together, alternatives, all NICs.
"""

from __future__ import annotations

import random

from dranet.core.device import Device
from dranet.node.inventory.sharing import make_shareable
from dranet.node.inventory.snapshot import Netdev, NetdevLocation, NodeDevice
from tests.cluster.objects import ROOT, Object, node, node_slice, pod, resource, use_claims

AMOUNTS = {"cpu": "64", "memory": "64Gi", "pods": "110"}
BANDWIDTH = "dra.net/bandwidth"
SPEEDS = ("10G", "25G", "100G", "100G", "400G")
REQUESTS = (
    "1G", "2500M", "2500M", "5G", "3300M", "6G", "12500M", "25G", "25G", "50G", "100G", "200G", "500G", "1", "0"
)  # fmt: skip


def random_share_world(seed: int, number: int) -> tuple[list[Object], list[Object]]:
    """Objects of a cluster, and pods to give to it one after the other."""
    chance = random.Random(f"shares/{seed}/{number}")
    names = [f"s{number}-{i}" for i in range(chance.randint(1, 3))]
    pods = [f"q{number}-{i}" for i in range(chance.randint(6, 12))]
    claims = [_claim(f"{user}-{i}", chance) for user in pods for i in range(chance.choice((1, 1, 1, 2)))]
    machines = [node(name, AMOUNTS) for name in names]
    return [*machines, *(_slice(name, chance) for name in names), *claims], [_pod(name, claims) for name in pods]


def _slice(node: str, chance: random.Random) -> Object:
    devices = [_nic(f"nic{i}", chance).to_api() for i in range(chance.randint(1, 3))]
    return node_slice(f"{node}-dra.net", node, "dra.net", devices)


def _nic(name: str, chance: random.Random) -> Device:
    attributes = {"dra.net/encapsulation": "ether", "dra.net/ifName": name, ROOT: f"pci{chance.randint(0, 1)}"}
    plain = Device(name=name, attributes=attributes, capacity={"dra.net/linkSpeed": chance.choice(SPEEDS)})
    if chance.random() < 0.2:
        return plain
    return make_shareable(
        NodeDevice(device=plain, netdev=Netdev(location=NetdevLocation.HOST, name=name, index=2))
    ).device


def _claim(name: str, chance: random.Random) -> Object:
    requests = [_request(one, chance) for one in chance.choice((["a"], ["a"], ["a", "b"]))]
    devices: Object = {"requests": requests}
    if chance.random() < 0.3:
        kind, attribute = chance.choice((("matchAttribute", ROOT), ("distinctAttribute", "dra.net/ifName")))
        devices["constraints"] = [{"requests": [one["name"] for one in requests], kind: attribute}]
    return resource("ResourceClaim", name, {"devices": devices}, namespace="default")


def _request(name: str, chance: random.Random) -> Object:
    if chance.random() < 0.15:
        return {"name": name, "firstAvailable": [{"name": f"s{i}", **_exactly(chance)} for i in range(2)]}
    return {"name": name, "exactly": _exactly(chance)}


def _exactly(chance: random.Random) -> Object:
    found: Object = {"deviceClassName": "nics"}
    if chance.random() < 0.75:
        key = BANDWIDTH if chance.random() < 0.95 else "bandwidth"
        found["capacity"] = {"requests": {key: chance.choice(REQUESTS)}}
    if chance.random() < 0.2:
        found["selectors"] = [{"cel": {"expression": "device.allowMultipleAllocations"}}]
    return found | ({"allocationMode": "All"} if chance.random() < 0.05 else {"count": chance.choice((1, 1, 1, 1, 2))})


def _pod(name: str, claims: list[Object]) -> Object:
    used = [one["metadata"]["name"] for one in claims if one["metadata"]["name"].rpartition("-")[0] == name]
    spec: Object = {"containers": [{"name": "main", "image": "none"}]}
    use_claims(spec, used)
    return pod(name, spec)
