"""The real scheduler allocates claims on machines that exist only as objects: node, slices, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dranet.machines.shape import load_shape
from dranet.machines.shape_devices import shape_slices
from tests.cluster.kubebed import Cluster, ExistingCluster, Kubectl
from tests.cluster.kubebed.manifests import RESOURCE_API, claim, pod, request
from tests.cluster.kubebed.paper import on_paper, paper_node

ROOT = "resource.kubernetes.io/pcieRoot"
NODES = ("paper-0", "paper-1")


@pytest.fixture(scope="module")
def paper(cluster: Cluster | ExistingCluster) -> Iterator[list[dict[str, Any]]]:
    """Two a4-highgpu-8g machines on paper; the slices of both."""
    shape, kubectl = load_shape("a4-highgpu-8g"), cluster.kubectl
    slices = [found for index, node in enumerate(NODES) for found in shape_slices(shape, node, index)]
    for found in slices:
        found["apiVersion"] = RESOURCE_API
    classes = [_device_class("paper-nic", "dra.net"), _device_class("paper-gpu", "gpu.nvidia.com")]
    kubectl.apply(*map(paper_node, NODES), *slices, *classes)
    yield slices
    names = [f"resourceslice/{found['metadata']['name']}" for found in slices]
    kubectl.delete(*names, *(f"node/{node}" for node in NODES), "deviceclass/paper-nic", "deviceclass/paper-gpu")


def test_a_gpu_and_a_nic_of_one_pcie_root_are_allocated(paper: list[dict[str, Any]], kubectl: Kubectl) -> None:
    same_root = {"requests": ["nic", "gpu"], "matchAttribute": ROOT}
    pair = (request("nic", "paper-nic"), request("gpu", "paper-gpu"))
    kubectl.apply(claim("pair", *pair, constraints=[same_root]), on_paper(pod("user", claims={"pair": "pair"})))
    kubectl.wait("pod/user", "condition=PodScheduled")
    allocation = kubectl.get("resourceclaim/pair")["status"]["allocation"]["devices"]["results"]
    kubectl.delete("pod/user", grace=0)  # nothing else ends a pod on paper
    assert sorted(result["driver"] for result in allocation) == ["dra.net", "gpu.nvidia.com"]
    roots = {_attribute(paper, result) for result in allocation}
    assert len(roots) == 1


def _device_class(name: str, driver: str) -> dict[str, Any]:
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    return {
        "apiVersion": RESOURCE_API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [selector]},
    }


def _attribute(slices: list[dict[str, Any]], result: dict[str, Any]) -> str:
    """The PCIe root of an allocated device, from the slice it was published in."""
    for found in slices:
        if (found["spec"]["driver"], found["spec"]["pool"]["name"]) == (result["driver"], result["pool"]):
            for device in found["spec"]["devices"]:
                if device["name"] == result["device"]:
                    return str(device["attributes"][ROOT]["string"])
    raise AssertionError(f"{result} was never published")
