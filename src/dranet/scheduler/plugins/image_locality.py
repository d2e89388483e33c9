"""ImageLocality: prefers nodes that have the pod's images, scaled by the share of nodes that have them."""

from __future__ import annotations

from dranet.scheduler.framework import MAX_NODE_SCORE, Cycle, NodeScore
from dranet.scheduler.nodes import EquivalenceClass

_MIB = 1024 * 1024
_MIN_THRESHOLD, _MAX_CONTAINER_THRESHOLD = 23 * _MIB, 1000 * _MIB


def _score(cycle: Cycle, group: EquivalenceClass) -> int:
    sizes = group.sample.node.images
    if not sizes:
        return 0
    total_nodes, node_counts = len(cycle.cluster.nodes), cycle.cluster.images
    total = sum(int(sizes[name] * (node_counts[name] / total_nodes)) for name in cycle.info.images if name in sizes)
    most = _MAX_CONTAINER_THRESHOLD * cycle.info.containers
    return MAX_NODE_SCORE * (min(max(total, _MIN_THRESHOLD), most) - _MIN_THRESHOLD) // (most - _MIN_THRESHOLD)


SCORE = NodeScore(_score)
