"""Nodes dressed as a GPU machine show its NICs, its sysfs and its RDMA devices, and give them back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dranet.machines.shape import Shape
from tests.cluster.kubebed import Cluster
from tests.cluster.machines import dress, undress


@pytest.fixture(scope="module")
def shape(bed: Cluster) -> Iterator[Shape]:
    dressed = dress(bed, "a3-ultragpu-8g")
    yield dressed
    undress(bed, dressed)


def test_every_node_has_the_nics_of_the_machine(bed: Cluster, shape: Shape) -> None:
    expected = {nic.interface for nic in shape.nics}
    for node in bed.nodes:
        assert expected <= set(node.links())
        assert "nic0" not in node.links()


def test_a_nic_stands_in_the_synthetic_sysfs_under_its_pcie_root(bed: Cluster, shape: Shape) -> None:
    target = bed.nodes[0].run("readlink", "/run/bed/sysfs/class/net/gpu0rdma0")
    assert "/pci0000:8c/" in target


def test_a_nic_in_sysfs_has_the_mac_of_the_link(bed: Cluster, shape: Shape) -> None:
    for node in bed.nodes:
        written = node.run("cat", "/run/bed/sysfs/class/net/gpu3rdma0/address")
        assert node.run("cat", "/sys/class/net/gpu3rdma0/address") == written


def test_every_rdma_device_has_its_character_device(bed: Cluster, shape: Shape) -> None:
    shown = bed.nodes[1].run("ls", "/run/bed/sysfs/class/infiniband_verbs").split()
    assert len(shown) == 8
    for name in shown:
        numbers = bed.nodes[1].run("cat", f"/run/bed/sysfs/class/infiniband_verbs/{name}/dev").strip()
        major, minor = (
            int(part, 16) for part in bed.nodes[1].run("stat", "-c", "%t:%T", f"/dev/infiniband/{name}").split(":")
        )
        assert f"{major}:{minor}" == numbers
