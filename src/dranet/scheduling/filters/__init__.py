"""One file for each plugin of kube-scheduler that rules nodes out, in the order in which it asks them.

The first one that objects to a node gives the reason the node is counted under. A filter that has nothing to say about
a pod is not asked about any node.
"""

from __future__ import annotations

from dranet.scheduling.filters import (
    declared_features,
    dynamic_resources,
    inter_pod_affinity,
    node_affinity,
    node_name,
    node_ports,
    node_resources,
    node_unschedulable,
    taint_toleration,
    topology_spread,
)

OWN = (
    node_affinity.prepare_named,
    node_unschedulable.prepare,
    node_name.prepare,
    taint_toleration.prepare,
    node_affinity.prepare,
    node_ports.prepare,
    node_resources.prepare,
)
"""These look at a node and the pod's traits alone: what they say holds until the node changes."""
RELATIVE = (
    # VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone stand here: not considered.
    topology_spread.prepare,
    inter_pod_affinity.prepare,
    dynamic_resources.prepare,
    declared_features.prepare,
)
"""These look at other nodes, or at claims."""
FILTERS = (*OWN, *RELATIVE)
"""In the order of the default profile."""

__all__ = ["FILTERS", "OWN", "RELATIVE"]
