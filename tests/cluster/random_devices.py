"""Small random clusters with devices of every sort, and pods whose claims ask for them in every way.

GPUs that may be had whole or in parts, devices that several nodes reach, pools in several slices, old and incomplete
ones, taints of all effects; alternatives, admin access, selectors that fail, devices kept apart, extended resources.
"""

from __future__ import annotations

import random
from typing import Any

from tests.cluster.objects import ROOT, Object, node, pod, resource, use_claims

NIC, GPU, FAR = "dra.net", "gpu.nvidia.com", "far.example"
RACK = "rack"
TAINTS = (
    {"key": "down", "effect": "NoSchedule"},
    {"key": "down", "value": "link", "effect": "NoExecute"},
    {"key": "watched", "value": "x", "effect": "None"},
)
TOLERATIONS = (
    {"operator": "Exists"},
    {"key": "down", "operator": "Exists"},
    {"key": "down", "operator": "Equal", "value": "link"},
    {"key": "down", "operator": "Exists", "effect": "NoSchedule"},
)


def random_device_world(seed: int, number: int) -> tuple[list[Object], list[Object]]:
    """Objects of a cluster, and pods to give to it one after the other."""
    chance = random.Random(f"devices/{seed}/{number}")
    names = [f"d{number}-{i}" for i in range(chance.randint(1, 4))]
    nodes = [_node(name, chance) for name in names]
    slices = [one for name in names for one in (*_nics(name, chance), *_gpus(name, chance))]
    slices += _far(number, names, chance)
    claims: list[Object] = []
    pods = [_pod(f"r{number}-{i}", claims, chance) for i in range(chance.randint(5, 10))]
    return [*nodes, *slices, *claims], pods


def _node(name: str, chance: random.Random) -> Object:
    amounts = {"cpu": chance.choice(("4", "64")), "memory": "64Gi", "pods": "110"}
    return node(name, amounts, {RACK: chance.choice(("left", "right"))})


def _slice(
    name: str, driver: str, pool: str, where: Object, count: int = 1, generation: int = 1, **more: Any
) -> Object:
    pooled = {"name": pool, "generation": generation, "resourceSliceCount": count}
    return resource("ResourceSlice", name, {"driver": driver, "pool": pooled, **where, **more})


def _nics(node: str, chance: random.Random) -> list[Object]:
    """In one slice or two; sometimes the second is not there yet, or one of an older generation still is."""
    nics = [_nic(i, chance) for i in range(chance.randint(0, 4))]
    where = {"nodeName": node}
    if not nics:
        return []
    kind = chance.random()
    if kind < 0.25 and len(nics) > 1:
        parts = (nics[:1], nics[1:])
        return [_slice(f"{node}-nic-{i}", NIC, node, where, 2, devices=part) for i, part in enumerate(parts)]
    if kind < 0.32:
        return [_slice(f"{node}-nic", NIC, node, where, 2, devices=nics)]
    if kind < 0.42:
        old = _slice(f"{node}-nic-old", NIC, node, where, devices=[_nic(9, chance)])
        return [old, _slice(f"{node}-nic", NIC, node, where, generation=2, devices=nics)]
    return [_slice(f"{node}-nic", NIC, node, where, devices=nics)]


def _nic(number: int, chance: random.Random) -> Object:
    attributes: Object = {
        ROOT: {"string": f"pci{chance.randint(0, 1)}"},
        "speed": {"int": chance.choice((100, 200, 400))},
        "firmware": {"version": chance.choice(("1.2.3", "2.0.0"))},
    }
    if chance.random() < 0.6:
        attributes["rdma"] = {"bool": chance.random() < 0.7}
    return {"name": f"nic-{number}", "attributes": attributes, **_tainted(chance)}


def _tainted(chance: random.Random) -> Object:
    return {"taints": chance.sample(TAINTS, chance.choice((1, 1, 2)))} if chance.random() < 0.2 else {}


def _gpus(node: str, chance: random.Random) -> list[Object]:
    """Whole ones, and halves and quarters of them that draw from the same counters."""
    where, count = {"nodeName": node}, chance.randint(0, 2)
    devices = [
        part for i in range(count) for part in _parts(i, f"pci{chance.randint(0, 1)}", chance.random() < 0.7, chance)
    ]
    if not devices:
        return []
    counters = [{"name": f"gpu-{i}", "counters": {"memory": {"value": "80Gi"}}} for i in range(count)]
    return [
        _slice(f"{node}-gpu-counters", GPU, node, where, 2, sharedCounters=counters),
        _slice(f"{node}-gpu", GPU, node, where, 2, devices=devices),
    ]


def _parts(number: int, root: str, parted: bool, chance: random.Random) -> list[Object]:
    sizes = {"whole": 80, "half-0": 40, "half-1": 40, "quarter-0": 20} if parted else {"whole": 80}
    return [
        {
            "name": f"gpu-{number}-{name}",
            "attributes": {ROOT: {"string": root}, "kind": {"string": name.partition("-")[0]}},
            "capacity": {"memory": {"value": f"{size}Gi"}},
            "consumesCounters": [{"counterSet": f"gpu-{number}", "counters": {"memory": {"value": f"{size}Gi"}}}],
            **_tainted(chance),
        }
        for name, size in sizes.items()
    ]


def _far(number: int, nodes: list[str], chance: random.Random) -> list[Object]:
    """Devices that all nodes reach, or those of a rack, or each device by nodes of its own."""
    devices = [{"name": f"far-{i}", "attributes": {ROOT: {"string": "none"}}} for i in range(chance.randint(1, 3))]
    name, kind = f"far-{number}", chance.random()
    if kind < 0.25:
        return [_slice(name, FAR, name, {"allNodes": True}, devices=devices)]
    if kind < 0.5:
        return [_slice(name, FAR, name, {"nodeSelector": _rack(chance)}, devices=devices)]
    if kind < 0.7:
        each = [one | _place(nodes, chance) for one in devices]
        return [_slice(name, FAR, name, {"perDeviceNodeSelection": True}, devices=each)]
    return []


def _place(nodes: list[str], chance: random.Random) -> Object:
    return chance.choice(({"allNodes": True}, {"nodeName": chance.choice(nodes)}, {"nodeSelector": _rack(chance)}))


def _rack(chance: random.Random) -> Object:
    one = {"key": RACK, "operator": "In", "values": [chance.choice(("left", "right"))]}
    return {"nodeSelectorTerms": [{"matchExpressions": [one]}]}


SELECTORS = {
    "nics": (
        f'device.attributes["{NIC}"].speed >= 200',
        f'device.attributes["{NIC}"].rdma',
        f'has(device.attributes["{NIC}"].rdma) && device.attributes["{NIC}"].rdma',
        f'device.attributes["{NIC}"].?rdma.orValue(true)',
        f'device.attributes["{NIC}"].firmware.isGreaterThan(semver("1.5.0"))',
        f'device.attributes["{NIC}"].speed / 0 > 1',
    ),
    "gpus": (
        f'device.attributes["{GPU}"].kind == "whole"',
        f'device.attributes["{GPU}"].kind in ["half", "quarter"]',
        f'device.capacity["{GPU}"].memory.isGreaterThan(quantity("30Gi"))',
    ),
    "far": (f'device.driver == "{FAR}"',),
    "anything": (f'device.driver != "{FAR}"', "true"),
}


def _pod(name: str, claims: list[Object], chance: random.Random) -> Object:
    namespace = chance.choices(("default", "other"), (3, 1))[0]
    container: Object = {"name": "main", "image": "none", "resources": {"requests": {"cpu": chance.choice("113")}}}
    spec: Object = {"containers": [container]}
    if chance.random() < 0.85:
        _add_claims(name, namespace, spec, claims, chance)
    if chance.random() < 0.2:
        resource = chance.choice(("deviceclass.resource.kubernetes.io/nics", "example.com/nic"))
        container["resources"]["limits"] = {resource: chance.choice("12")}
    if chance.random() < 0.3:
        spec["priorityClassName"] = chance.choice(("level-1", "level-2", "level-3"))
    return pod(name, spec, namespace)


def _add_claims(user: str, namespace: str, spec: Object, claims: list[Object], chance: random.Random) -> None:
    earlier = [one["metadata"]["name"] for one in claims if one["metadata"]["namespace"] == namespace]
    if earlier and chance.random() < 0.15:
        names = [chance.choice(earlier)]
    else:
        names = [f"e-{user}-{i}" for i in range(chance.choice((1, 1, 1, 2)))]
        spec_of = {"devices": _devices(namespace, chance)}
        claims += [resource("ResourceClaim", one, spec_of, namespace=namespace) for one in names]
    use_claims(spec, names)


def _devices(namespace: str, chance: random.Random) -> Object:
    requests = [_request(name, namespace, chance) for name in chance.choice((["a"], ["a"], ["a", "b"]))]
    found: Object = {"requests": requests}
    names = [one["name"] for one in requests]
    kind = chance.random()
    if kind < 0.3:
        found["constraints"] = [{"requests": names, "matchAttribute": ROOT}]
    elif kind < 0.4:
        found["constraints"] = [{"requests": names, "distinctAttribute": ROOT}]
    elif kind < 0.5 and "firstAvailable" in requests[0]:
        found["constraints"] = [{"requests": ["a/s0", *names[1:]], "matchAttribute": ROOT}]
    return found


def _request(name: str, namespace: str, chance: random.Random) -> Object:
    if chance.random() < 0.25:
        count = chance.choice((2, 2, 3))
        return {"name": name, "firstAvailable": [{"name": f"s{i}", **_exactly(chance)} for i in range(count)]}
    admin = namespace == "other" and chance.random() < 0.3
    return {"name": name, "exactly": _exactly(chance) | ({"adminAccess": True} if admin else {})}


def _exactly(chance: random.Random) -> Object:
    kind = chance.choices(("nics", "gpus", "far", "anything"), (5, 5, 2, 1))[0]
    found: Object = {"deviceClassName": kind}
    if chance.random() < 0.35:
        weights = [1.0 if "/ 0" not in text else 0.15 for text in SELECTORS[kind]]
        found["selectors"] = [{"cel": {"expression": chance.choices(SELECTORS[kind], weights)[0]}}]
    if chance.random() < 0.25:
        found["tolerations"] = [chance.choice(TOLERATIONS)]
    return found | ({"allocationMode": "All"} if chance.random() < 0.1 else {"count": chance.choice((1, 1, 1, 2, 3))})
