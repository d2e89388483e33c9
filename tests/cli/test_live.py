"""A live cluster as input: slices, classes, claims and templates come from its API server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dranet.advise.manifests import to_v1
from dranet.kubernetes.api import resources
from dranet.machines.shape import load_shape
from dranet.machines.shape_devices import shape_slices
from dranet.testing.apihttp import serve
from dranet.testing.apiserver import SandboxApiServer
from tests.cli.api import write_kubeconfig
from tests.inputs import claim, objects, run, workers

PAIR = claim("gpu: gpu.nvidia.com\nnic: dranet", "gpu, nic: resource.kubernetes.io/pcieRoot")
RESULTS = [
    {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-1", "device": "gpu-0"},
    {"request": "nic", "driver": "dra.net", "pool": "node-1", "device": "pci-0000-ce-00-0"},
]


def cluster() -> SandboxApiServer:
    """One A4 node, a template, a claim that holds a far pair, and a pod that waits."""
    server = SandboxApiServer()
    for slice_ in shape_slices(load_shape("a4-highgpu-8g"), "node-1"):
        server.put(resources.RESOURCE_SLICES, slice_)
    server.put(resources.NODES, {"metadata": {"name": "node-1"}})
    for name, driver in (("gpu.nvidia.com", "gpu.nvidia.com"), ("dranet", "dra.net")):
        selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
        server.put(resources.DEVICE_CLASSES, {"metadata": {"name": name}, "spec": {"selectors": selectors}})
    (template,) = [to_v1(obj.data) for obj in objects(PAIR)]
    server.put(resources.RESOURCE_CLAIM_TEMPLATES, {**template, "metadata": {"name": "t", "namespace": "default"}})
    held = {"spec": template["spec"]["spec"], "metadata": {"name": "held", "namespace": "default"}}
    server.put(resources.RESOURCE_CLAIMS, {**held, "status": {"allocation": {"devices": {"results": RESULTS}}}})
    waiting = {"resourceClaims": [{"name": "d", "resourceClaimTemplateName": "t"}], "containers": []}
    metadata = {"name": "waiting", "namespace": "default"}
    server.put(resources.PODS, {"metadata": metadata, "spec": waiting, "status": {"phase": "Pending"}})
    return server


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[str]:
    """A kubeconfig of a sandbox API server that runs in a thread of its own."""
    loop, ready, stop, port = asyncio.new_event_loop(), threading.Event(), asyncio.Event(), []

    async def main() -> None:
        async with serve(cluster()) as number:
            port.append(number)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    assert ready.wait(10)
    yield str(write_kubeconfig(tmp_path, port[0]))
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)
    loop.close()


def test_plan_uses_templates_and_skips_allocated_devices(kubeconfig: str, tmp_path: Path) -> None:
    file = tmp_path / "workers.yaml"
    file.write_text(workers(1))
    done = run("plan", "-f", str(file), "--kubeconfig", kubeconfig, "-o", "json")
    (pod,) = json.loads(done.stdout)["pods"]
    assert (pod["node"], [d["device"] for d in pod["claims"][0]["devices"]]) == (
        "node-1",
        ["gpu-1", "pci-0000-91-00-0"],
    )


def test_plans_pending_pods_of_the_cluster(kubeconfig: str) -> None:
    done = run("plan", "--live", "--kubeconfig", kubeconfig, "-o", "json")
    (pod,) = json.loads(done.stdout)["pods"]
    assert (pod["pod"], [d["device"] for d in pod["claims"][0]["devices"]]) == (
        "waiting", ["gpu-1", "pci-0000-91-00-0"],
    )  # fmt: skip


def test_an_allocated_claim_is_explained(kubeconfig: str) -> None:
    done = run("explain", "--claim", "default/held", "--kubeconfig", kubeconfig)
    assert "worst pair: SYS" in done.stdout and "better and free: gpu-0, pci-0000-91-00-0" in done.stdout


def test_the_topology_of_a_node_of_the_cluster(kubeconfig: str) -> None:
    done = run("topo", "--node", "node-1", "--kubeconfig", kubeconfig, "--claim", "held", "-o", "svg")
    assert "<title>SYS</title>" in done.stdout


def test_a_suggestion_for_the_cluster(kubeconfig: str) -> None:
    done = run("suggest", "--live", "--kubeconfig", kubeconfig)
    assert "matchAttribute: resource.kubernetes.io/pcieRoot" in done.stdout


def test_unreachable_cluster_is_a_one_line_error(tmp_path: Path) -> None:
    done = run("plan", "--kubeconfig", str(tmp_path / "nowhere"))
    assert done.exit_code == 1 and "nowhere" in done.stderr
