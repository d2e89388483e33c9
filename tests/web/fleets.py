"""Fleets to look at: a few machines in every state, and their views as often as a fleet has machines.

The views are the server's own. Ten thousand machines through the whole of the server are measured by `bench page`; to
the browser these are the same, and a test has them in a second.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from dranet.machines.shape import load_shape
from dranet.machines.shape_devices import gpu_devices, nic_devices, shape_slices
from dranet.web.assets import page
from dranet.web.cluster import CLAIMS, KINDS, PODS, SLICES, ClusterObjects
from dranet.web.feed import Feed

SHAPE = "a4-highgpu-8g"
STATES = ("free", "part", "full", "full", "full", "part", "tainted", "elsewhere", "misplaced", "incomplete")
"""What the machines of a fleet are like, by the last digit of their number."""
IN_BLOCK = 50


def claim(node: str, name: str, devices: list[tuple[str, str]]) -> dict[str, Any]:
    """A claim of namespace `team` that holds these devices for the pod of its name."""
    results = [{"request": "r", "driver": driver, "pool": node, "device": device} for driver, device in devices]
    user = {"resource": "pods", "name": name, "uid": "1"}
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}
    return {"metadata": {"name": f"{name}-devices", "namespace": "team"}, "spec": {"devices": {}}, "status": status}


def pod(node: str, name: str, job: str = "") -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "team"}
    if job:
        metadata["ownerReferences"] = [{"kind": "Job", "name": job, "uid": "1", "controller": True}]
    spec = {"nodeName": node, "resourceClaims": [{"name": "devices"}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def devices(gpus: range, nics: range) -> list[tuple[str, str]]:
    """GPUs and NICs of the shape by their numbers."""
    shape = load_shape(SHAPE)
    found = [("gpu.nvidia.com", gpu_devices(shape)[i].name) for i in gpus]
    return found + [("dra.net", nic_devices(shape)[i].name) for i in nics]


def machine(cluster: ClusterObjects, node: str, state: str, index: int = 0) -> None:
    """A machine in one of `STATES`."""
    for item in shape_slices(load_shape(SHAPE), node, index):
        spec = item["spec"]
        if spec["driver"] == "dra.net" and state in ("tainted", "elsewhere"):
            key = "dra.net/link-down" if state == "tainted" else "dra.net/netdev-elsewhere"
            first = {**spec["devices"][0], "taints": [{"key": key, "effect": "NoSchedule"}]}
            spec = {**spec, "devices": [first, *spec["devices"][1:]]}
        if state == "incomplete":
            spec = {**spec, "pool": {**spec["pool"], "resourceSliceCount": 2}}
        cluster.put(SLICES, {**item, "spec": spec})
    held = {
        "part": [devices(range(2), range(2))],
        "full": [devices(range(i, i + 2), range(i, i + 2)) for i in (0, 2, 4, 6)],
        "misplaced": [devices(range(1), range(7, 8))],
    }
    for i, found in enumerate(held.get(state, [])):
        cluster.put(CLAIMS, claim(node, f"{node}-{i}", found))
        cluster.put(PODS, pod(node, f"{node}-{i}", "train"))


def fleet_world(count: int) -> dict[str, Any]:
    """What a page gets for so many machines, in blocks of `IN_BLOCK`; every block is a job of its own."""
    cluster = ClusterObjects()
    for kind in KINDS:
        cluster.replace(kind, [])
    for number, state in enumerate(STATES):
        machine(cluster, f"@{number}@", state)
    world = Feed(cluster, f"{count} machines", True).world()
    views = {view["name"]: view for view in world["nodes"]}
    held: dict[str, list[Any]] = {}
    for view in world["holders"]:
        held.setdefault(view["node"], []).append(view)
    nodes, holders = [], []
    for i in range(count):
        kind, name, block = f"@{i % len(STATES)}@", f"node-{i:05}", i // IN_BLOCK
        nodes.append({**views[kind], "name": name, "block": f"block-{block:03}"})
        for view in held.get(kind, []):
            made = copy.copy(view)
            made |= {"key": view["key"].replace(kind, name), "node": name, "job": f"Job/train-{block:03}"}
            made["claims"] = [{**one, "name": one["name"].replace(kind, name)} for one in view["claims"]]
            holders.append(made)
    return {**world, "nodes": nodes, "holders": holders}


def fleet_file(folder: Path, count: int) -> str:
    """The address of a page with so many machines inside."""
    file = folder / f"fleet-{count}.html"
    if not file.exists():
        file.write_text(page({**fleet_world(count), "taken": "now", "answers": {}})[0], "utf-8")
    return file.as_uri()
