"""Nodes of the scheduler model, grouped into equivalence classes.

A node's static key holds everything about it that never changes. Nodes with equal static keys, equal pods and equal
allocated devices give equal results to every filter and score. They form one `EquivalenceClass`, and each plugin runs
once for all of them. The node's name always differs, so the key leaves it out: if a pod names nodes,
`ClusterNodes.split_out` puts each of those into a class of its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from dranet.core.untyped import as_dicts, as_int, as_strings, get_path, name_of
from dranet.scheduler.pods import HOSTNAME_LABEL, HostPort, PodInfo
from dranet.scheduler.resources import CPU, MEMORY, PODS, Resources, read_allocatable
from dranet.scheduler.taints import Taint, read_taints

DeviceId = tuple[str, str, str]
"""Driver, pool (empty for the pool that has the node's name) and device."""


class DeviceAllocation(msgspec.Struct, frozen=True):
    """A device that a claim holds, or a share of one."""

    device: DeviceId
    share: str = ""
    """The consumed capacity as text; empty for an exclusive device."""


class Node(msgspec.Struct, frozen=True):
    """What a v1 Node contains, or what is known of a machine without a Node object."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Resources = msgspec.field(default_factory=dict)
    allocatable_partial: bool = False
    """Some allocatable resources are unknown: a filter ignores a resource that is not listed."""
    complete_prefixes: tuple[str, ...] = ()
    """Even so, all resources with these prefixes are known: one that is not listed does not exist."""
    backing_drivers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By resource, the DRA driver of the same devices: an allocated device reduces the resource, too."""
    images: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Sizes in bytes by name."""
    labels_partial: bool = False
    """Some labels are unknown: a label that is not listed may exist."""
    declared_features: frozenset[str] = frozenset()
    device_signature: str = ""
    """Equal for nodes with equivalent devices (`device_signatures`)."""


def read_node(raw: Mapping[str, Any], *, device_signature: str = "", labels_partial: bool = False) -> Node:
    """From a v1 Node."""
    images = {
        str(name): as_int(image.get("sizeBytes"))
        for image in as_dicts(get_path(raw, "status", "images"))
        for name in image.get("names") or ()
    }
    allocatable = read_allocatable(raw)
    return Node(
        name_of(raw),
        as_strings(get_path(raw, "metadata", "labels")),
        read_taints(get_path(raw, "spec", "taints")),
        get_path(raw, "spec", "unschedulable") is True,
        allocatable,
        # Every kubelet reports its number of pods; an object without it is not a complete Node.
        PODS not in allocatable,
        images=images,
        labels_partial=labels_partial,
        declared_features=frozenset(str(name) for name in get_path(raw, "status", "declaredFeatures") or ()),
        device_signature=device_signature,
    )


class NodeInfo(msgspec.Struct):
    """A node with its pods and allocated devices."""

    node: Node
    index: int
    """The position in the list of nodes; the first of equal nodes is chosen."""
    pods: dict[PodInfo, int] = msgspec.field(default_factory=dict)
    requested: Resources = msgspec.field(default_factory=dict)
    non_zero_requested: tuple[int, int] = (0, 0)
    """CPU and memory as scores count them."""
    used_ports: dict[HostPort, int] = msgspec.field(default_factory=dict)
    allocated: frozenset[DeviceId] = frozenset()
    """The node's own devices that claims hold or share."""
    shares: frozenset[tuple[DeviceAllocation, int]] = frozenset()
    """The shares among them and the number of each."""

    @property
    def allocation_key(self) -> object:
        """Equal where the same devices are free. Needs the shares: a shared device may have capacity left."""
        return self.allocated, self.shares

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def pod_count(self) -> int:
        return sum(self.pods.values())

    def update(self, info: PodInfo, sign: int) -> None:
        """Add (1) or remove (-1) a pod."""
        _count(self.pods, info, sign)
        for name, amount in info.requests.resources.items():
            self.requested[name] = self.requested.get(name, 0) + sign * amount
        cpu, memory = info.requests.non_zero
        self.non_zero_requested = (self.non_zero_requested[0] + sign * cpu, self.non_zero_requested[1] + sign * memory)
        for port in info.ports:
            _count(self.used_ports, port, sign)

    def copy(self) -> NodeInfo:
        return msgspec.structs.replace(
            self, pods=dict(self.pods), requested=dict(self.requested), used_ports=dict(self.used_ports)
        )

    def free(self, name: str) -> int:
        """The amount of a resource that is not requested."""
        driver = self.node.backing_drivers.get(name)
        claimed = sum(device[0] == driver for device in self.allocated) if driver else 0
        return self.node.allocatable.get(name, 0) - self.requested.get(name, 0) - claimed

    @property
    def requested_cpu_memory(self) -> tuple[int, int]:
        return self.requested.get(CPU, 0), self.requested.get(MEMORY, 0)


def _count(counts: dict[Any, int], key: Any, sign: int) -> None:
    counts[key] = counts.get(key, 0) + sign
    if not counts[key]:
        del counts[key]


class EquivalenceClass(msgspec.Struct, eq=False):
    """Nodes that give equal results, and one of them as a sample. Compared by identity."""

    sample: NodeInfo
    members: dict[str, None]
    excluded: frozenset[str] = frozenset()
    """Members that have a class of their own in this cycle."""
    heap: list[tuple[int, str]] = msgspec.field(default_factory=list)
    """All nodes that ever were members, by index; former members are removed when they reach the top."""
    cache: dict[PodInfo, Any] = msgspec.field(default_factory=dict)
    """Results by PodInfo that depend on the node only. Never stale: a node that changes moves to another class."""

    @property
    def names(self) -> Collection[str]:
        """In no particular order."""
        return [name for name in self.members if name not in self.excluded] if self.excluded else self.members

    def __len__(self) -> int:
        return len(self.members) - len(self.excluded)

    def __contains__(self, name: str) -> bool:
        return name in self.members and name not in self.excluded

    def first(self) -> str:
        """The node with the lowest index."""
        if self.excluded or not self.heap:
            return next((name for _, name in sorted(self.heap) if name in self), next(iter(self.names)))
        while self.heap[0][1] not in self.members:
            heapq.heappop(self.heap)
        return self.heap[0][1]


class ClusterNodes:
    """All nodes in equivalence classes, updated as pods and devices change."""

    def __init__(self, nodes: Iterable[Node], keys: Iterable[str] = ()) -> None:
        """``keys`` are node labels that pods refer to. `distinguish` adds more, each at the cost of a regrouping."""
        self.nodes = {node.name: NodeInfo(node, index) for index, node in enumerate(nodes)}
        hosts = [info.node.labels.get(HOSTNAME_LABEL, info.name) for info in self.nodes.values()]
        self.hostnames_unique = len(set(hosts)) == len(hosts)
        """Whether every node is a topology domain of its own for the hostname label."""
        self.keys = set(keys)
        self.pods_with_affinity: dict[PodInfo, int] = {}
        """Pods on nodes with terms about other pods, and the number of each."""
        self._unknown_labels: dict[str, bool] = {}
        self.images: dict[str, int] = {}
        for info in self.nodes.values():
            for image in info.node.images:
                self.images[image] = self.images.get(image, 0) + 1
        self._static_keys: dict[str, int] = {}
        self._groups: dict[object, EquivalenceClass] = {}
        self._by_hostname = dict(zip(hosts, self.nodes, strict=True))
        self._regroup()

    def split_out(self, named: Collection[str]) -> Collection[EquivalenceClass]:
        """All nodes; each node in ``named`` (names or hostnames) in a class of its own."""
        single = {self._by_hostname.get(name, name) for name in named} & self.nodes.keys()
        if not single:
            return self._groups.values()
        found = [EquivalenceClass(self.nodes[name], {name: None}) for name in single]
        for group in self._groups.values():
            here = frozenset(name for name in single if name in group.members)
            if len(here) < len(group):
                found.append(self._excluding(group, here) if here else group)
        return found

    def _excluding(self, group: EquivalenceClass, names: frozenset[str]) -> EquivalenceClass:
        other = next(name for name in group.members if name not in names)
        return EquivalenceClass(self.nodes[other], group.members, names, group.heap)

    def distinguish(self, keys: Iterable[str]) -> None:
        """Nodes that differ in one of these labels are not equivalent from now on."""
        if not self.keys.issuperset(keys):
            self.keys.update(keys)
            self._regroup()

    def update_pods(self, name: str, info: PodInfo, sign: int = 1) -> None:
        """Add (1) or remove (-1) a pod of a node."""
        self._leave(name)
        self.nodes[name].update(info, sign)
        self._join(name)
        if info.terms:
            _count(self.pods_with_affinity, info, sign)

    def update_devices(self, name: str, allocation: DeviceAllocation, *, release: bool = False) -> None:
        """Allocate a device of a node, or release it."""
        self._leave(name)
        info, is_held = self.nodes[name], not release
        if allocation.share:
            counts = dict(info.shares)
            _count(counts, allocation, -1 if release else 1)
            info.shares = frozenset(counts.items())
            is_held = any(other.device == allocation.device for other in counts)
        info.allocated = info.allocated | {allocation.device} if is_held else info.allocated - {allocation.device}
        self._join(name)

    def domain(self, group: EquivalenceClass, key: str) -> object:
        """The topology domain of these nodes for a label; None if they do not have the label."""
        value = group.sample.node.labels.get(key)
        return group if value is not None and key == HOSTNAME_LABEL and self.hostnames_unique else value

    def knows_label(self, key: str) -> bool:
        """Whether it is known of every node whether it has the label."""
        if key not in self._unknown_labels:
            nodes = [info.node for info in self.nodes.values()]
            self._unknown_labels[key] = any(one.labels_partial and key not in one.labels for one in nodes)
        return not self._unknown_labels[key]

    def _regroup(self) -> None:
        # Numbers stand for static keys: every change of a pod compares keys, and numbers compare fast.
        numbers: dict[object, int] = {}
        self._static_keys = {
            name: numbers.setdefault(self._static_key(info.node), len(numbers)) for name, info in self.nodes.items()
        }
        self._groups = {}
        for name in self.nodes:
            self._join(name)

    def _static_key(self, node: Node) -> object:
        keys = self.keys - {HOSTNAME_LABEL} if self.hostnames_unique else self.keys | {HOSTNAME_LABEL}
        return (
            tuple((key, node.labels.get(key)) for key in sorted(keys)), HOSTNAME_LABEL in node.labels, node.taints,
            node.unschedulable, tuple(sorted(node.allocatable.items())), node.allocatable_partial,
            node.complete_prefixes, node.labels_partial, node.declared_features, tuple(sorted(node.images.items())),
            node.device_signature,
        )  # fmt: skip

    def group_key(self, name: str) -> object:
        """Equal for nodes that are equivalent now."""
        info = self.nodes[name]
        return self._static_keys[name], frozenset(info.pods.items()), info.allocation_key

    def _join(self, name: str) -> None:
        key = self.group_key(name)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = EquivalenceClass(self.nodes[name], {})
        group.members[name] = None
        heapq.heappush(group.heap, (self.nodes[name].index, name))

    def _leave(self, name: str) -> None:
        key = self.group_key(name)
        group = self._groups[key]
        del group.members[name]
        if not group.members:
            del self._groups[key]
        elif group.sample.name == name:
            group.sample = self.nodes[next(iter(group.members))]
