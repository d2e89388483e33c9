"""How fast the scheduler's choice is predicted, without reading manifests: ``python -m bench allocation``.

The workloads are those the real kube-scheduler was measured with (67 and 41 pods a second): on 200 nodes of 8 GPUs and
8 NICs, pods of one GPU and one NIC on a common PCIe root, and pods of eight and eight. `eight_of_sixteen` is a claim
that cannot be met: `scheduler_steps` is what kube-scheduler takes to find out. On a busy machine, look at the figures a
CPU second.
"""

from __future__ import annotations

import gc
import json
import resource
import time
from typing import Any

from dranet.scheduler.allocation import Allocation, ClusterDevices, NoFit, SelectorCompiler, device_input

ROOT = "resource.kubernetes.io/pcieRoot"
CLASSES = [
    {"metadata": {"name": driver}, "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}}
    for driver in ("gpu.nvidia.com", "dra.net")
]


def devices(kind: str) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{kind}-{number}",
            "attributes": {
                "index": {"int": number},
                "rdma": {"bool": kind == "nic"},
                ROOT: {"string": f"pci0000:{number:02x}"},
            },
        }
        for number in range(8)
    ]


def slices(count: int) -> list[dict[str, Any]]:
    return [
        {
            "metadata": {"name": f"node-{number}-{driver}"},
            "spec": {
                "driver": driver,
                "pool": {"name": f"node-{number}", "generation": 1, "resourceSliceCount": 1},
                "nodeName": f"node-{number}",
                "devices": devices(kind),
            },
        }
        for number in range(count)
        for driver, kind in (("gpu.nvidia.com", "gpu"), ("dra.net", "nic"))
    ]


def claim(name: str, count: int, *, aligned: bool) -> dict[str, Any]:
    rdma = 'device.attributes["dra.net"].rdma'
    requests = [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": count}},
        {
            "name": "nic",
            "exactly": {"deviceClassName": "dra.net", "count": count, "selectors": [{"cel": {"expression": rdma}}]},
        },
    ]
    spec: dict[str, Any] = {"requests": requests}
    if aligned:
        spec["constraints"] = [{"requests": ["gpu", "nic"], "matchAttribute": ROOT}]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": spec}}


def fill(node_count: int, pods: int, count: int, *, aligned: bool) -> dict[str, Any]:
    """Place pods one after the other, each on the first node with room, until all are placed."""
    gc.collect()  # or a row would pay for the garbage of those before it
    started = time.perf_counter()
    cluster = ClusterDevices(slices(node_count), CLASSES)
    nodes = [{"name": f"node-{number}", "labels": {}} for number in range(node_count)]
    read, cpu = time.perf_counter(), time.process_time()
    placed, first = 0, 0
    for number in range(pods):
        wanted = [claim(f"c{number}", count, aligned=aligned)]
        # A node that is full stays full, so the next pod starts at the node of this one.
        while first < node_count:
            outcome = cluster.allocate(nodes[first], wanted)
            if isinstance(outcome, Allocation):
                cluster.commit(outcome)
                placed += 1
                break
            first += 1
    seconds, busy = time.perf_counter() - read, time.process_time() - cpu
    return {
        "nodes": node_count,
        "pods": placed,
        "pods_per_second": round(placed / seconds),
        "pods_per_cpu_second": round(placed / busy),
        "seconds_reading": round(read - started, 3),
        "seconds_placing": round(seconds, 3),
    }


def pathology() -> dict[str, Any]:
    """8 of 16 devices and one NIC of a driver that is not there: every choice of eight is tried in vain."""
    spread = [
        {"name": f"gpu-{number:02d}", "attributes": {ROOT: {"string": f"pci0000:{number % 4:02x}"}}}
        for number in range(16)
    ]
    entry = slices(1)[0]
    entry["spec"]["devices"] = spread
    cluster = ClusterDevices([entry], CLASSES)
    impossible = claim("c", 8, aligned=False)
    impossible["spec"]["devices"]["requests"][1]["exactly"]["count"] = 1
    started = time.perf_counter()
    outcome = cluster.allocate({"name": "node-0", "labels": {}}, [impossible])
    milliseconds = (time.perf_counter() - started) * 1000
    assert isinstance(outcome, NoFit)
    return {"scheduler_steps": outcome.steps, "milliseconds": round(milliseconds, 2)}


def selectors() -> dict[str, Any]:
    text = 'device.driver == "dra.net" && device.attributes["dra.net"].rdma && device.attributes["dra.net"].index < 4'
    started = time.perf_counter()
    for number in range(200):
        SelectorCompiler("1.36").compile(f"{text} && {number} >= 0")
    compiled = (time.perf_counter() - started) / 200
    selector, device = SelectorCompiler("1.36").compile(text), device_input("dra.net", devices("nic")[0])
    started = time.perf_counter()
    for _ in range(5000):
        selector.evaluate(device)
    return {
        "compile_microseconds": round(compiled * 1e6),
        "evaluate_microseconds": round((time.perf_counter() - started) / 5000 * 1e6, 1),
    }


def measure() -> dict[str, Any]:
    """All figures of this file."""
    return {
        "one_and_one_on_200_nodes": fill(200, 1600, 1, aligned=True),
        "eight_and_eight_on_200_nodes": fill(200, 200, 8, aligned=False),
        "growth": [fill(size, size * 8, 1, aligned=True) for size in (10, 100, 1000)],
        "eight_of_sixteen": pathology(),
        "selectors": selectors(),
        "peak_memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
