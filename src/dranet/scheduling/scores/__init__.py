"""One file for each plugin of kube-scheduler that prefers some nodes over others, with its weight.

All of them count in whole numbers, and where they divide, what is left is dropped as the scheduler drops it: two nodes
are equal exactly when it finds them equal.
"""

from __future__ import annotations

from dranet.scheduling.cycle import OwnScore, Score
from dranet.scheduling.scores import (
    dynamic_resources,
    image_locality,
    inter_pod_affinity,
    node_affinity,
    node_resources,
    taint_toleration,
    topology_spread,
)

OWN: tuple[tuple[int, OwnScore], ...] = (
    (3, taint_toleration.SCORE),
    (2, node_affinity.SCORE),
    (1, node_resources.LEAST_USED),
    (1, node_resources.BALANCED),
    (1, image_locality.SCORE),
)
"""Weights and scores that look at one node only."""
RELATIVE: tuple[tuple[int, Score], ...] = (
    (2, topology_spread.score),
    (2, inter_pod_affinity.score),
    (2, dynamic_resources.score),
)
"""Weights and scores that look at other nodes, or at claims."""

__all__ = ["OWN", "RELATIVE"]
