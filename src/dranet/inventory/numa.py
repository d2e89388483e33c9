"""A card's NUMA nodes as a list: its own first, then the nearest ones of the same socket.

Machines that split a socket into several nodes (sub-NUMA clustering) make an exact match too narrow: a GPU and a card
may sit on neighbouring nodes of one socket. The list form of the attribute lets a constraint match on any of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from dranet.kernel.hardware import NumaNode, cpu_package, numa_nodes
from dranet.kernel.sysfs import Sysfs

MOST_NODES = 16
"""Longer lists would not fit beside a device's other attributes."""


def nearest_nodes(sysfs: Sysfs) -> Mapping[int, tuple[int, ...]]:
    """For every node itself, then in ascending order those of its socket at the smallest distance from it."""
    nodes = numa_nodes(sysfs)
    sockets = {node.number: _socket(sysfs, node) for node in nodes}
    return {node.number: (node.number, *_nearest(node, nodes, sockets))[:MOST_NODES] for node in nodes}


def _nearest(node: NumaNode, nodes: list[NumaNode], sockets: Mapping[int, int | None]) -> list[int]:
    distances = dict(zip((n.number for n in nodes), node.distances, strict=False))
    others = {number: distance for number, distance in distances.items() if number != node.number}
    nearest = min(others.values(), default=0)
    return [n for n, distance in others.items() if distance == nearest and _same(sockets[n], sockets[node.number])]


def _same(one: int | None, other: int | None) -> bool:
    """An unknown socket counts as the same one."""
    return one is None or other is None or one == other


def _socket(sysfs: Sysfs, node: NumaNode) -> int | None:
    return cpu_package(sysfs, node.cpus[0]) if node.cpus else None
