"""Small random clusters whose cards are shared, and pods that want whole cards and shares of them in random order.

Cards are published by our own code, so what the real scheduler counts is what a driver would offer. Drawn are amounts
that fit and that do not, ones that are rounded, several of a claim, kept apart or together, alternatives, all cards.
"""

from __future__ import annotations

import random
from typing import Any

from dranet.inventory.sharing import shared
from dranet.inventory.snapshot import Netdev, NodeDevice, Place
from dranet.model.device import Device

Object = dict[str, Any]
BANDWIDTH = "dra.net/bandwidth"
ROOT = "resource.kubernetes.io/pcieRoot"
SPEEDS = ("10G", "25G", "100G", "100G", "400G")
WISHES = ("1G", "2500M", "2500M", "5G", "3300M", "6G", "12500M", "25G", "25G", "50G", "100G", "200G", "500G", "1", "0")


def random_share_world(seed: int, number: int) -> tuple[list[Object], list[Object]]:
    """Objects of a cluster, and pods to give to it one after the other."""
    chance = random.Random(f"shares/{seed}/{number}")
    names = [f"s{number}-{i}" for i in range(chance.randint(1, 3))]
    pods = [f"q{number}-{i}" for i in range(chance.randint(6, 12))]
    claims = [_claim(f"{pod}-{i}", chance) for pod in pods for i in range(chance.choice((1, 1, 1, 2)))]
    return [*map(_node, names), *(_slice(name, chance) for name in names), *claims], [_pod(pod, claims) for pod in pods]


def _node(name: str) -> Object:
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"taints": []},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def _slice(node: str, chance: random.Random) -> Object:
    devices = [_card(f"card{i}", chance).to_api() for i in range(chance.randint(1, 3))]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "dra.net", "nodeName": node, "pool": pool, "devices": devices}
    return _resource("ResourceSlice", f"{node}-dra.net", spec)


def _card(name: str, chance: random.Random) -> Device:
    attributes = {"dra.net/encapsulation": "ether", "dra.net/ifName": name, ROOT: f"pci{chance.randint(0, 1)}"}
    plain = Device(name=name, attributes=attributes, capacity={"dra.net/linkSpeed": chance.choice(SPEEDS)})
    if chance.random() < 0.2:
        return plain
    return shared(NodeDevice(device=plain, netdev=Netdev(place=Place.HERE, name=name, index=2))).device


def _claim(name: str, chance: random.Random) -> Object:
    requests = [_request(one, chance) for one in chance.choice((["a"], ["a"], ["a", "b"]))]
    devices: Object = {"requests": requests}
    if chance.random() < 0.3:
        kind, attribute = chance.choice((("matchAttribute", ROOT), ("distinctAttribute", "dra.net/ifName")))
        devices["constraints"] = [{"requests": [one["name"] for one in requests], kind: attribute}]
    return _resource("ResourceClaim", name, {"devices": devices}, namespace="default")


def _request(name: str, chance: random.Random) -> Object:
    if chance.random() < 0.15:
        return {"name": name, "firstAvailable": [{"name": f"s{i}", **_exactly(chance)} for i in range(2)]}
    return {"name": name, "exactly": _exactly(chance)}


def _exactly(chance: random.Random) -> Object:
    found: Object = {"deviceClassName": "nics"}
    if chance.random() < 0.75:
        key = BANDWIDTH if chance.random() < 0.95 else "bandwidth"
        found["capacity"] = {"requests": {key: chance.choice(WISHES)}}
    if chance.random() < 0.2:
        found["selectors"] = [{"cel": {"expression": "device.allowMultipleAllocations"}}]
    return found | ({"allocationMode": "All"} if chance.random() < 0.05 else {"count": chance.choice((1, 1, 1, 1, 2))})


def _pod(name: str, claims: list[Object]) -> Object:
    used = [one["metadata"]["name"] for one in claims if one["metadata"]["name"].rpartition("-")[0] == name]
    container = {
        "name": "main",
        "image": "none",
        "resources": {"claims": [{"name": f"d{i}"} for i in range(len(used))]},
    }
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "resourceClaims": [{"name": f"d{i}", "resourceClaimName": claim} for i, claim in enumerate(used)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def _resource(kind: str, name: str, spec: Object, **metadata: str) -> Object:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
