"""The position of a node in its data centre, from the labels of clouds and tools.

Every source has its own names for nested domains, the outermost first. A label that is missing, or whose value means
that nothing is known, makes the node's domain at that level unknown, never equal to another's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from dranet.core.untyped import as_dict, get_path

ZONE = "topology.kubernetes.io/zone"
FAMILIES: tuple[tuple[str, ...], ...] = (
    ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
    ("topology.gke.io/cluster", "topology.gke.io/rack"),
    (
        "topology.k8s.aws/network-node-layer-1",
        "topology.k8s.aws/network-node-layer-2",
        "topology.k8s.aws/network-node-layer-3",
    ),
    (
        "oci.oraclecloud.com/rdma.hpc_island_id",
        "oci.oraclecloud.com/rdma.network_block_id",
        "oci.oraclecloud.com/rdma.local_block_id",
    ),
    ("azure.dra.net/placementGroupId", "azure.dra.net/interconnectGroupId", "azure.dra.net/interconnectSubgroupId"),
    (
        "network.topology.nvidia.com/core",
        "network.topology.nvidia.com/spine",
        "network.topology.nvidia.com/leaf",
    ),
)
"""Each source's labels, the outermost first, down to the last level with several machines. AKS nodes have none: their
slices' attributes are used instead."""
NVLINK = (
    "nvidia.com/gpu.clique",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "oke.dra.net/gpuMemoryFabricId",
)
"""Labels of an NVLink domain: GPUs of nodes in one domain reach each other over NVLink."""
_TIER = re.compile(r"fabric\.topograph\.run/tier-(\d+)")
"""Topograph numbers tiers from the node outwards."""
_UNKNOWN = {"", "no-imds-data"}
_SLICE_ATTRIBUTES = {
    "gce.dra.net/block": FAMILIES[0][0],
    "gce.dra.net/subBlock": FAMILIES[0][1],
    "oke.dra.net/hpcIslandId": FAMILIES[3][0],
    "oke.dra.net/networkBlockId": FAMILIES[3][1],
    "oke.dra.net/localBlockId": FAMILIES[3][2],
    "oke.dra.net/gpuMemoryFabricId": "oke.dra.net/gpuMemoryFabricId",
    **{name: name for name in FAMILIES[4]},
}
"""Slice attributes with the meaning of a label."""

Labels = Mapping[str, str]


class TopologySpread(msgspec.Struct, frozen=True):
    """A job at one topology level: how many of its pods are in each domain."""

    label: str
    pods: Mapping[str, int]
    unknown: int = 0
    """Pods on nodes without the label."""

    @property
    def domains(self) -> int:
        """Number of domains with pods of the job."""
        return len(self.pods)


def topology_value(labels: Labels, label: str) -> str | None:
    """A node's domain at this level; None where unknown."""
    value = labels.get(label)
    return None if value is None or value in _UNKNOWN else value


def topology_levels(nodes: Iterable[Labels]) -> list[str]:
    """The topology labels of these nodes, the outermost first."""
    present = {label for labels in nodes for label in labels if topology_value(labels, label) is not None}
    tiers = sorted((int(found[1]), label) for label in present if (found := _TIER.fullmatch(label)))
    families = [label for family in FAMILIES for label in family if label in present]
    return [*([ZONE] if ZONE in present else []), *families, *(label for _, label in reversed(tiers))]


def nvlink_domain(labels: Labels) -> str | None:
    """The NVLink domain of a node; None where unknown."""
    return next((value for label in NVLINK if (value := topology_value(labels, label)) is not None), None)


def topology_spreads(nodes: Iterable[Labels]) -> list[TopologySpread]:
    """The spread at every level, for one pod on each of these nodes."""
    where = list(nodes)
    found = []
    for label in topology_levels(where):
        pods: dict[str, int] = {}
        for labels in where:
            if (value := topology_value(labels, label)) is not None:
                pods[value] = pods.get(value, 0) + 1
        found.append(TopologySpread(label, pods, len(where) - sum(pods.values())))
    return found


def labels_from_slices(slices: Iterable[Mapping[str, object]]) -> dict[str, dict[str, str]]:
    """By node, the topology attributes of its slices under the names of labels."""
    found: dict[str, dict[str, str]] = {}
    for raw in slices:
        node = get_path(raw, "spec", "nodeName")
        for device in get_path(raw, "spec", "devices") or ():
            attributes = as_dict(as_dict(device).get("attributes"))
            for name, label in _SLICE_ATTRIBUTES.items():
                if name in attributes and isinstance(text := as_dict(attributes[name]).get("string"), str):
                    found.setdefault(str(node), {})[label] = text
    return found
