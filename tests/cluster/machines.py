"""Nodes dressed as real GPU machines: the NICs, sysfs and RDMA devices of a machine shape."""

from __future__ import annotations

from dranet.machines.shape import Shape, load_shape
from dranet.machines.shape_devices import shape_links
from dranet.testing.sysfs_tree import write_sysfs
from tests.cluster.kubebed import Cluster, Nic
from tests.cluster.kubebed.node import Node


def dress(bed: Cluster, name: str) -> Shape:
    """Make every node look like the named machine. The driver finds its sysfs with `--sysfs /run/bed/sysfs`."""
    shape = load_shape(name)
    for index, node in enumerate(bed.nodes):
        node.unplug(bed.fabric, bed.nics(node))
        node.plug(bed.fabric, shape_nics(shape, index))
        write_sysfs(shape, node.sysfs, index)
        node.make_rdma_devices(sum(1 for nic in shape.nics if nic.rdma))
    return shape


def undress(bed: Cluster, shape: Shape) -> None:
    """Back to the plain NICs the bed came up with."""
    for index, node in enumerate(bed.nodes):
        node.unplug(bed.fabric, shape_nics(shape, index))
        _empty(node)
        bed.replug(node, bed.nics(node))


def shape_nics(shape: Shape, index: int) -> list[Nic]:
    """The NICs of one node: NIC K of every node is on rail K."""
    return [
        Nic(link.name, link.mac, link.addresses, rail=rail, mtu=link.mtu)
        for rail, link in enumerate(shape_links(shape, index))
    ]


def _empty(node: Node) -> None:
    """The folders themselves stay: they are mounted."""
    node.run("sh", "-c", "rm -rf /run/bed/sysfs/* /dev/infiniband/*")
