"""Nodes dressed as real GPU machines: the cards, sysfs and RDMA devices of a machine shape."""

from __future__ import annotations

from kubebed import Card, Cluster
from kubebed.node import Node

from dranet.sandbox.sysfs_tree import write_sysfs
from dranet.topology.shape import Shape, load_shape
from dranet.topology.shape_devices import links


def dress(bed: Cluster, name: str) -> Shape:
    """Make every node look like the named machine. The driver finds its sysfs with `--sysfs /run/bed/sysfs`."""
    shape = load_shape(name)
    for index, node in enumerate(bed.nodes):
        node.unplug(bed.fabric, bed.cards(node))
        node.plug(bed.fabric, shape_cards(shape, index))
        write_sysfs(shape, node.sysfs, index)
        node.make_rdma_devices(sum(1 for nic in shape.nics if nic.rdma))
    return shape


def undress(bed: Cluster, shape: Shape) -> None:
    """Back to the plain cards the bed came up with."""
    for index, node in enumerate(bed.nodes):
        node.unplug(bed.fabric, shape_cards(shape, index))
        _empty(node)
        bed.replug(node, bed.cards(node))


def shape_cards(shape: Shape, index: int) -> list[Card]:
    """The cards of one node: card K of every node is on rail K."""
    return [
        Card(link.name, link.mac, link.addresses, rail=rail, mtu=link.mtu)
        for rail, link in enumerate(links(shape, index))
    ]


def _empty(node: Node) -> None:
    """The folders themselves stay: they are mounted."""
    node.run("sh", "-c", "rm -rf /run/bed/sysfs/* /dev/infiniband/*")
