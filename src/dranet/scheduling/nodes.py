"""Nodes as the scheduler looks at them, and which of them are alike.

What never changes about a node is its `Face`. What changes is which pods are on it and which devices claims hold there.
Nodes with equal faces, pods with equal traits and equal devices in use give equal answers to every question; all of
them together are `Alike`, and a question is asked once for them. The one thing that always differs, the node's own
name, is kept out of the face: a pod that names nodes gets those apart from the rest (`ClusterNodes.apart`).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from dranet.model.untyped import at, mappings, name_of, texts, whole
from dranet.scheduling.amounts import CPU, MEMORY, PODS, Amounts, offered
from dranet.scheduling.pods import HOST, Port, Traits

DeviceId = tuple[str, str, str]
"""Driver, pool (empty for the one that has the node's name) and device."""


class Holding(msgspec.Struct, frozen=True):
    """A device that a claim holds, or a share of one."""

    device: DeviceId
    share: str = ""
    """What the share consumes, as text; empty for all of the device."""


class Taint(msgspec.Struct, frozen=True):
    """A taint of a node."""

    key: str
    value: str
    effect: str


class NodeFacts(msgspec.Struct, frozen=True):
    """A node as its object, or what stands for one, describes it."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    allocatable: Amounts = msgspec.field(default_factory=dict)
    """What it offers in all."""
    open: bool = False
    """Not all of that is known: an amount that is not here is not considered."""
    complete: tuple[str, ...] = ()
    """Of resources with such beginnings all is known even so: one that is not here is not there."""
    claimed_from: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By resource, the driver whose devices it stands for: what claims hold of them is gone from it too."""
    images: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Sizes in bytes by name."""
    partial: bool = False
    """Not all of its labels are known: a label that is not here may yet be there."""
    features: frozenset[str] = frozenset()
    devices: str = ""
    """Equal for nodes whose devices are alike."""


def read_node(raw: Mapping[str, Any], *, devices: str = "", partial: bool = False) -> NodeFacts:
    """From a v1 Node."""
    taints = tuple(
        Taint(str(one.get("key") or ""), str(one.get("value") or ""), str(one.get("effect") or ""))
        for one in mappings(at(raw, "spec", "taints"))
    )
    images = {
        str(name): whole(image.get("sizeBytes"))
        for image in mappings(at(raw, "status", "images"))
        for name in image.get("names") or ()
    }
    allocatable = offered(raw)
    return NodeFacts(
        name_of(raw),
        texts(at(raw, "metadata", "labels")),
        taints,
        at(raw, "spec", "unschedulable") is True,
        allocatable,
        # Every kubelet says how many pods it takes; an object that does not is no whole Node.
        PODS not in allocatable,
        images=images,
        partial=partial,
        features=frozenset(str(name) for name in at(raw, "status", "declaredFeatures") or ()),
        devices=devices,
    )


class NodeState(msgspec.Struct):
    """A node and what is on it."""

    facts: NodeFacts
    order: int
    pods: dict[Traits, int] = msgspec.field(default_factory=dict)
    used: Amounts = msgspec.field(default_factory=dict)
    counted: tuple[int, int] = (0, 0)
    """CPU and memory as scores count them."""
    ports: dict[Port, int] = msgspec.field(default_factory=dict)
    taken: frozenset[DeviceId] = frozenset()
    """Devices of its own that claims hold, or have shares of."""
    shares: frozenset[tuple[Holding, int]] = frozenset()
    """The shares among them, and how many there are of each."""

    @property
    def in_use(self) -> object:
        """Equal where claims hold the same. Devices alone do not tell: of a shared one there may be something left."""
        return self.taken, self.shares

    @property
    def name(self) -> str:
        """Its name."""
        return self.facts.name

    @property
    def size(self) -> int:
        """How many pods are on it."""
        return sum(self.pods.values())

    def change(self, traits: Traits, sign: int) -> None:
        """A pod comes or goes."""
        _count(self.pods, traits, sign)
        for name, amount in traits.requests.needed.items():
            self.used[name] = self.used.get(name, 0) + sign * amount
        cpu, memory = traits.requests.counted
        self.counted = (self.counted[0] + sign * cpu, self.counted[1] + sign * memory)
        for port in traits.ports:
            _count(self.ports, port, sign)

    def copy(self) -> NodeState:
        """Another one to try things on."""
        return msgspec.structs.replace(self, pods=dict(self.pods), used=dict(self.used), ports=dict(self.ports))

    def free(self, name: str) -> int:
        """What is left of a resource."""
        driver = self.facts.claimed_from.get(name)
        claimed = sum(device[0] == driver for device in self.taken) if driver else 0
        return self.facts.allocatable.get(name, 0) - self.used.get(name, 0) - claimed

    @property
    def usage(self) -> tuple[int, int]:
        """CPU and memory in use."""
        return self.used.get(CPU, 0), self.used.get(MEMORY, 0)


def _count(counts: dict[Any, int], key: Any, sign: int) -> None:
    counts[key] = counts.get(key, 0) + sign
    if not counts[key]:
        del counts[key]


class Alike(msgspec.Struct, eq=False):
    """Nodes that give equal answers, and one of them to ask. Compared by identity."""

    sample: NodeState
    all: dict[str, None]
    without: frozenset[str] = frozenset()
    """Those of them that somebody asks about one by one."""
    queue: list[tuple[int, str]] = msgspec.field(default_factory=list)
    """A heap of all that ever were here, by the order in which nodes were given."""
    settled: dict[Traits, Any] = msgspec.field(default_factory=dict)
    """What pods with such traits find here, whatever others are like. Never stale: nodes that change go elsewhere."""

    @property
    def names(self) -> Collection[str]:
        """In no particular order."""
        return [name for name in self.all if name not in self.without] if self.without else self.all

    def __len__(self) -> int:
        return len(self.all) - len(self.without)

    def __contains__(self, name: str) -> bool:
        return name in self.all and name not in self.without

    def first(self) -> str:
        """The one that was given first."""
        if self.without or not self.queue:
            return next((name for _, name in sorted(self.queue) if name in self), next(iter(self.names)))
        while self.queue[0][1] not in self.all:
            heapq.heappop(self.queue)
        return self.queue[0][1]


class ClusterNodes:
    """All nodes, sorted by what they are like, as pods come and go."""

    def __init__(self, nodes: Iterable[NodeFacts], keys: Iterable[str] = ()) -> None:
        """``keys`` are labels that pods ask about; more may come later, each at the cost of sorting again."""
        self.nodes = {facts.name: NodeState(facts, order) for order, facts in enumerate(nodes)}
        hosts = [state.facts.labels.get(HOST, state.name) for state in self.nodes.values()]
        self.hosts_differ = len(set(hosts)) == len(hosts)
        """Whether every node is a place of its own for the label of the host name; else it is a label like others."""
        self.keys = set(keys)
        self.minding: dict[Traits, int] = {}
        """Pods on nodes that mind which others are near, and how many there are of each."""
        self._unknown: dict[str, bool] = {}
        self.images: dict[str, int] = {}
        for state in self.nodes.values():
            for image in state.facts.images:
                self.images[image] = self.images.get(image, 0) + 1
        self._faces: dict[str, int] = {}
        self._alike: dict[object, Alike] = {}
        self._of_host = dict(zip(hosts, self.nodes, strict=True))
        self._sort()

    def alike(self) -> Collection[Alike]:
        """All nodes."""
        return self._alike.values()

    def apart(self, named: Collection[str]) -> Collection[Alike]:
        """All nodes, each of those named (by name or host name) by itself."""
        single = {self._of_host.get(name, name) for name in named} & self.nodes.keys()
        if not single:
            return self.alike()
        found = [Alike(self.nodes[name], {name: None}) for name in single]
        for alike in self._alike.values():
            here = frozenset(name for name in single if name in alike.all)
            if len(here) < len(alike):
                found.append(self._without(alike, here) if here else alike)
        return found

    def _without(self, alike: Alike, names: frozenset[str]) -> Alike:
        other = next(name for name in alike.all if name not in names)
        return Alike(self.nodes[other], alike.all, names, alike.queue)

    def ask_about(self, keys: Iterable[str]) -> None:
        """Labels a pod asks about: nodes that differ in one of them are no longer alike."""
        if not self.keys.issuperset(keys):
            self.keys.update(keys)
            self._sort()

    def add(self, name: str, traits: Traits, sign: int = 1) -> None:
        """A pod comes to a node, or goes."""
        self._leave(name)
        self.nodes[name].change(traits, sign)
        self._enter(name)
        if traits.terms:
            _count(self.minding, traits, sign)

    def hold(self, name: str, holding: Holding, *, release: bool = False) -> None:
        """A device of a node comes into use, or is given back."""
        self._leave(name)
        node, is_held = self.nodes[name], not release
        if holding.share:
            counts = dict(node.shares)
            _count(counts, holding, -1 if release else 1)
            node.shares = frozenset(counts.items())
            is_held = any(other.device == holding.device for other in counts)
        node.taken = node.taken | {holding.device} if is_held else node.taken - {holding.device}
        self._enter(name)

    def domain(self, alike: Alike, key: str) -> object:
        """The place of these nodes by a label; None where they have no such label."""
        value = alike.sample.facts.labels.get(key)
        return alike if value is not None and key == HOST and self.hosts_differ else value

    def knows(self, key: str) -> bool:
        """Whether all nodes either have the label or are known not to."""
        if key not in self._unknown:
            facts = [state.facts for state in self.nodes.values()]
            self._unknown[key] = any(one.partial and key not in one.labels for one in facts)
        return not self._unknown[key]

    def _sort(self) -> None:
        # Numbers stand for faces: comparing them costs nothing, and that is done for every pod that comes or goes.
        numbers: dict[object, int] = {}
        self._faces = {
            name: numbers.setdefault(self._face(state.facts), len(numbers)) for name, state in self.nodes.items()
        }
        self._alike = {}
        for name in self.nodes:
            self._enter(name)

    def _face(self, facts: NodeFacts) -> object:
        keys = self.keys - {HOST} if self.hosts_differ else self.keys | {HOST}
        return (
            tuple((key, facts.labels.get(key)) for key in sorted(keys)), HOST in facts.labels, facts.taints,
            facts.cordoned, tuple(sorted(facts.allocatable.items())), facts.open, facts.complete, facts.partial,
            facts.features, tuple(sorted(facts.images.items())), facts.devices,
        )  # fmt: skip

    def key(self, name: str) -> object:
        """Equal for nodes that are alike by now."""
        state = self.nodes[name]
        return self._faces[name], frozenset(state.pods.items()), state.in_use

    def _enter(self, name: str) -> None:
        key = self.key(name)
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = Alike(self.nodes[name], {})
        alike.all[name] = None
        heapq.heappush(alike.queue, (self.nodes[name].order, name))

    def _leave(self, name: str) -> None:
        key = self.key(name)
        alike = self._alike[key]
        del alike.all[name]
        if not alike.all:
            del self._alike[key]
        elif alike.sample.name == name:
            alike.sample = self.nodes[next(iter(alike.all))]
