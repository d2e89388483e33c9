"""Where a node stands in its data centre, from the labels clouds and tools give it.

Every source has its own words for the same thing: places inside places, the outermost first. A label that is missing,
or whose value says that nothing is known, makes the node's place at that level unknown, never equal to another's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from dranet.model.untyped import at, mapping

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
"""Each source's labels, the outermost first, down to what still holds several machines. AKS gives its nodes none: what
its slices say stands in for them."""
NVLINK = (
    "nvidia.com/gpu.clique",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "oke.dra.net/gpuMemoryFabricId",
)
"""Labels of an NVLink domain: GPUs of nodes that share one reach each other over NVLink."""
_TIER = re.compile(r"fabric\.topograph\.run/tier-(\d+)")
"""Topograph counts from the node outwards, to any depth."""
_UNKNOWN = {"", "no-imds-data"}
_IN_SLICES = {
    "gce.dra.net/block": FAMILIES[0][0],
    "gce.dra.net/subBlock": FAMILIES[0][1],
    "oke.dra.net/hpcIslandId": FAMILIES[3][0],
    "oke.dra.net/networkBlockId": FAMILIES[3][1],
    "oke.dra.net/localBlockId": FAMILIES[3][2],
    "oke.dra.net/gpuMemoryFabricId": "oke.dra.net/gpuMemoryFabricId",
    **{name: name for name in FAMILIES[4]},
}
"""Attributes of slices that say the same as a label."""

Labels = Mapping[str, str]


class Crossing(msgspec.Struct, frozen=True):
    """A job at one level: how many of its pods stand in which place."""

    label: str
    pods: Mapping[str, int]
    unknown: int = 0
    """Pods on nodes that do not say."""

    @property
    def places(self) -> int:
        """How many places it is spread over."""
        return len(self.pods)


def known(labels: Labels, label: str) -> str | None:
    """A node's place; None where it does not say."""
    value = labels.get(label)
    return None if value is None or value in _UNKNOWN else value


def levels(nodes: Iterable[Labels]) -> list[str]:
    """The labels of places these nodes have, the outermost first."""
    present = {label for labels in nodes for label in labels if known(labels, label) is not None}
    tiers = sorted((int(found[1]), label) for label in present if (found := _TIER.fullmatch(label)))
    families = [label for family in FAMILIES for label in family if label in present]
    return [*([ZONE] if ZONE in present else []), *families, *(label for _, label in reversed(tiers))]


def nvlink_domain(labels: Labels) -> str | None:
    """The NVLink domain a node is in; None where nothing says so."""
    return next((value for label in NVLINK if (value := known(labels, label)) is not None), None)


def crossings(nodes: Iterable[Labels]) -> list[Crossing]:
    """For pods on these nodes, one entry a pod: every level with the places they are spread over."""
    where = list(nodes)
    found = []
    for label in levels(where):
        pods: dict[str, int] = {}
        for labels in where:
            if (value := known(labels, label)) is not None:
                pods[value] = pods.get(value, 0) + 1
        found.append(Crossing(label, pods, len(where) - sum(pods.values())))
    return found


def labels_of_slices(slices: Iterable[Mapping[str, object]]) -> dict[str, dict[str, str]]:
    """By node, what its slices say of its place, under the names of labels."""
    found: dict[str, dict[str, str]] = {}
    for raw in slices:
        node = at(raw, "spec", "nodeName")
        for device in at(raw, "spec", "devices") or ():
            attributes = mapping(mapping(device).get("attributes"))
            for name, label in _IN_SLICES.items():
                if name in attributes and isinstance(text := mapping(attributes[name]).get("string"), str):
                    found.setdefault(str(node), {})[label] = text
    return found
