"""kube-scheduler's filter and score plugins of the default profile, one file each, and their order.

All scores are integers, and every division drops the remainder as in kube-scheduler: two nodes are equal here exactly
if they are equal there.
"""

from __future__ import annotations

from dranet.scheduler.framework import NodeScore, Score
from dranet.scheduler.plugins import (
    dynamic_resources,
    image_locality,
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resources,
    node_unschedulable,
    pod_topology_spread,
    taint_toleration,
)

NODE_FILTERS = (
    node_affinity.pre_filter_names,
    node_unschedulable.pre_filter,
    node_name.pre_filter,
    taint_toleration.pre_filter,
    node_affinity.pre_filter,
    node_ports.pre_filter,
    node_resources.pre_filter,
)
"""Depend on the node and the PodInfo only: their results are valid until the node changes."""
CLUSTER_FILTERS = (
    # kube-scheduler runs VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone here. Not modelled.
    pod_topology_spread.pre_filter,
    inter_pod_affinity.pre_filter,
    dynamic_resources.pre_filter,
    node_declared_features.pre_filter,
)
"""Depend on other nodes or on claims."""
FILTERS = (*NODE_FILTERS, *CLUSTER_FILTERS)
"""In the order of the default profile. A node counts under the reason of the first filter that rejects it."""

NODE_SCORES: tuple[tuple[int, NodeScore], ...] = (
    (3, taint_toleration.SCORE),
    (2, node_affinity.SCORE),
    (1, node_resources.LEAST_ALLOCATED),
    (1, node_resources.BALANCED_ALLOCATION),
    (1, image_locality.SCORE),
)
"""Weights and scores that depend on the node and the PodInfo only."""
CLUSTER_SCORES: tuple[tuple[int, Score], ...] = (
    (2, pod_topology_spread.score),
    (2, inter_pod_affinity.score),
    (2, dynamic_resources.score),
)
"""Weights and scores that depend on other nodes or on claims."""

__all__ = ["CLUSTER_FILTERS", "CLUSTER_SCORES", "FILTERS", "NODE_FILTERS", "NODE_SCORES"]
