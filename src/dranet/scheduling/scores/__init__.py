"""One file for each plugin of kube-scheduler that prefers some nodes over others, with its weight.

All of them count in whole numbers, and where they divide, what is left is dropped as the scheduler drops it: two nodes
are equal exactly when it finds them equal.
"""

from __future__ import annotations

from dranet.scheduling.cycle import Score
from dranet.scheduling.scores import (
    dynamic_resources,
    image_locality,
    inter_pod_affinity,
    node_affinity,
    node_resources,
    taint_toleration,
    topology_spread,
)

SCORES: tuple[tuple[str, int, Score], ...] = (
    ("TaintToleration", 3, taint_toleration.score),
    ("NodeAffinity", 2, node_affinity.score),
    ("NodeResourcesFit", 1, node_resources.least_used),
    ("PodTopologySpread", 2, topology_spread.score),
    ("InterPodAffinity", 2, inter_pod_affinity.score),
    ("DynamicResources", 2, dynamic_resources.score),
    ("NodeResourcesBalancedAllocation", 1, node_resources.balanced),
    ("ImageLocality", 1, image_locality.score),
)
"""Name, weight and function of each."""

__all__ = ["SCORES"]
