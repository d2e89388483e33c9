"""Small random clusters and one gang for each: the questions that the real scheduler and ours are both asked.

Everything follows from a number, so a difference can be asked again. Blocks that hold the gang whole, in part or not at
all; pods of one kind or of two that are in each other's way; NICs, CPU and nodes that are partly in use.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.cluster.objects import Object, node, node_slice, pod, resource, use_claims
from tests.cluster.random_worlds import PRIORITIES

BLOCK, TYPE = "example.com/block", "example.com/type"
GROUP = "scheduling.k8s.io"
_MOST = max(PRIORITIES, key=PRIORITIES.__getitem__)
"""Of pods that are there already: they are never preempted."""


@dataclass(frozen=True)
class Question:
    """A cluster, and the pods of a gang with the group they belong to."""

    objects: list[Object]
    pods: list[Object]
    group: Object

    @property
    def minimum(self) -> int:
        return int((self.group["spec"]["schedulingPolicy"].get("gang") or {"minCount": 1})["minCount"])

    @property
    def key(self) -> str:
        constraints = self.group["spec"].get("schedulingConstraints")
        return str(constraints["topology"][0]["key"]) if constraints else ""


def random_gang(seed: int, number: int) -> Question:
    chance = random.Random(f"{seed}/gang/{number}")
    sizes = chance.choice(([("4", "8Gi")], [("2", "4Gi"), ("4", "8Gi"), ("8", "16Gi")]))
    nodes = [_node(f"g{number}-{i}", sizes, chance) for i in range(chance.randint(2, 5))]
    slices = [_slice(node["metadata"]["name"], chance) for node in nodes]
    busy = chance.choice((0.0, 0.5))
    there = [_filler(f"there-{number}-{i}", node, chance) for i, node in enumerate(nodes) if chance.random() < busy]
    name = f"gang-{number}"
    kinds = [_kind(chance) for _ in range(chance.choice((1, 1, 2, 2, 3)))]
    pods, claims = [], []
    for i in range(chance.randint(1, 5)):
        made, claim = _pod(f"{name}-{i}", name, chance.choice(kinds))
        pods.append(made)
        claims += claim
    return Question([*nodes, *slices, *there, *claims], pods, _group(name, len(pods), chance))


def _node(name: str, sizes: list[tuple[str, str]], chance: random.Random) -> Object:
    labels = {TYPE: chance.choice(("small", "large"))}
    if chance.random() < 0.9:
        labels[BLOCK] = chance.choice(("a", "b"))
    cpu, memory = chance.choice(sizes)
    amounts = {"cpu": cpu, "memory": memory, "pods": chance.choice(("1", "2", "110"))}
    taints = [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}] if chance.random() < 0.1 else []
    return node(name, amounts, labels, taints)


def _slice(node: str, chance: random.Random) -> Object:
    devices = [
        {"name": f"nic-{i}", "attributes": {"fast": {"bool": chance.random() < 0.5}}}
        for i in range(chance.randint(1, 2))
    ]
    return node_slice(f"{node}-nics", node, "dra.net", devices)


def _filler(name: str, node: Object, chance: random.Random) -> Object:
    """A pod that runs on a node."""
    requests = {"cpu": chance.choice(("500m", "1")), "memory": chance.choice(("256Mi", "2Gi"))}
    spec = {
        "nodeName": node["metadata"]["name"],
        "priorityClassName": _MOST,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
    }
    return pod(name, spec) | {"status": {"phase": "Running"}}


def _kind(chance: random.Random) -> Object:
    """What pods of one kind have in common: their spec, and under "claim" the requests of their claim."""
    requests = {}
    if chance.random() < 0.7:
        requests = {"cpu": chance.choice(("500m", "1", "1500m", "3")), "memory": chance.choice(("256Mi", "1Gi", "3Gi"))}
    found: Object = {"requests": requests, "spec": {}, "claim": None}
    if chance.random() < 0.35:
        found["spec"]["priorityClassName"] = chance.choice(("level-1", "level-2"))
    if chance.random() < 0.3:
        label, values = chance.choice(((TYPE, ("small", "large")), (BLOCK, ("a", "b"))))
        found["spec"]["nodeSelector"] = {label: chance.choice(values)}
    if chance.random() < 0.75:
        exactly: Object = {"deviceClassName": "nics", "count": chance.choice((1, 1, 1, 2))}
        if chance.random() < 0.5:
            exactly["selectors"] = [{"cel": {"expression": 'device.attributes["dra.net"].fast'}}]
        found["claim"] = {"devices": {"requests": [{"name": "nic", "exactly": exactly}]}}
    return found


def _pod(name: str, group: str, kind: Object) -> tuple[Object, list[Object]]:
    spec = {
        "schedulingGroup": {"podGroupName": group},
        "containers": [{"name": "c", "image": "i", "resources": {"requests": kind["requests"]}}],
        **kind["spec"],
    }
    if not kind["claim"]:
        return pod(name, spec), []
    use_claims(spec, [name])
    return pod(name, spec), [resource("ResourceClaim", name, kind["claim"], namespace="default")]


def _group(name: str, pods: int, chance: random.Random) -> Object:
    """Mostly all pods are needed, sometimes fewer, now and then more than there are."""
    minimum = chance.choice((pods, pods, max(1, pods - 1), chance.randint(1, pods), pods + 1))
    policy = {"basic": {}} if chance.random() < 0.1 else {"gang": {"minCount": minimum}}
    spec: Object = {"schedulingPolicy": policy}
    if chance.random() < 0.5:
        spec["schedulingConstraints"] = {"topology": [{"key": chance.choice((BLOCK, BLOCK, TYPE))}]}
    return {"kind": "PodGroup", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
