"""A NIC that fails, on a real cluster: the scheduler allocates it no more, its pod keeps it and its status says so.

Nodes are dressed as GPU machines and one NIC's PCIe link loses lanes. The machine's files are made ones, so its NICs
in pods are judged by their PCI side alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dranet.core.names import pci_device_name
from dranet.machines.shape import Nic, load_shape
from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.documents import SYSFS
from tests.cluster.kubebed import Cluster, Kubectl, parts
from tests.cluster.kubebed.manifests import claim_template, pod, request
from tests.cluster.machines import dress, undress

SHAPE = "a4-highgpu-8g"
ILL = 3
LINK = {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"}


@pytest.fixture(scope="module")
def driver(bed: Cluster) -> Iterator[Cluster]:
    """With NICs whose PCIe links have all their lanes."""
    if parts.minor(bed.options.version) < 36:
        pytest.skip("taints of devices are switched off before Kubernetes 1.36")
    shape = dress(bed, SHAPE)
    for node in bed.nodes:
        for nic in shape.nics:
            for name, value in {**LINK, "current_link_width": "16"}.items():
                (node.sysfs / "devices" / nic.path / name).write_text(f"{value}\n")
    release.install(bed, **SYSFS)
    for node in bed.nodes:
        release.wait_published(bed.kubectl, node.name, *(pci_device_name(nic.pci) for nic in shape.nics))
    yield bed
    release.remove(bed)
    undress(bed, shape)


@pytest.fixture
def nic(driver: Cluster) -> Iterator[Nic]:
    """The NIC of the first node that falls ill, well again at the end."""
    found = load_shape(SHAPE).nics[ILL]
    yield found
    lanes(driver, found, 16)


def lanes(bed: Cluster, nic: Nic, width: int) -> None:
    Path(bed.nodes[0].sysfs, "devices", nic.path, "current_link_width").write_text(f"{width}\n")


def taints(bed: Cluster) -> dict[str, list[str]]:
    """Of all devices that have any, on all nodes."""
    slices = [one["spec"] for one in bed.kubectl.items("resourceslices")]
    devices = [device for spec in slices for device in spec.get("devices") or []]
    return {device["name"]: [taint["key"] for taint in device["taints"]] for device in devices if device.get("taints")}


def health(kubectl: Kubectl, name: str) -> list[str]:
    """What the pod's status says of its devices."""
    [container] = kubectl.get(f"pod/{name}")["status"]["containerStatuses"]
    resources = container.get("allocatedResourcesStatus") or []
    return [one["health"] for entry in resources for one in entry.get("resources") or []]


def waits(kubectl: Kubectl, name: str) -> bool:
    conditions = kubectl.get(f"pod/{name}")["status"].get("conditions") or []
    return ("PodScheduled", "False") in {(condition["type"], condition["status"]) for condition in conditions}


def user(name: str, bed: Cluster, template: str) -> dict[str, Any]:
    return pod(name, templates={"nic": template}, node=bed.nodes[0].name)


def test_an_ill_nic_stays_with_its_pod_and_is_allocated_to_no_other_until_it_is_well(
    driver: Cluster, kubectl: Kubectl, nic: Nic
) -> None:
    chosen = f'device.attributes["dra.net"].ifName == "{nic.interface}"'
    kubectl.start(
        claim_template("it", request("nic", release.CLASS, selector=chosen)),
        user("first", driver, "it"),
    )
    wait_until(lambda: health(kubectl, "first") == ["Healthy"], "the pod's status to say healthy")
    lanes(driver, nic, 8)
    alone = {str(pci_device_name(nic.pci)): ["dra.net/pcie-degraded"]}
    wait_until(lambda: taints(driver) == alone, "the NIC, and no other, to be tainted")
    wait_until(lambda: health(kubectl, "first") == ["Unhealthy"], "the pod's status to say unhealthy")
    assert kubectl.get("pod/first")["status"]["phase"] == "Running"
    assert nic.interface in kubectl.exec("first", "ls", "/sys/class/net").split(), "the pod keeps its NIC"
    kubectl.delete("pod/first")
    kubectl.apply(user("next", driver, "it"))
    wait_until(lambda: waits(kubectl, "next"), "the scheduler to refuse the NIC")
    lanes(driver, nic, 16)
    kubectl.wait("pod/next", "condition=Ready")
    wait_until(lambda: not taints(driver), "no taint to be left")
