"""The objects of a cluster, indexed so that a change updates only the affected views.

A *holder* of devices is a pod, or a claim without a pod. Every change marks the nodes and holders whose views may
differ; the feed takes the marks and updates the views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from dranet.machines.machine import Machine, MachineCache, machines_of_slices

Object = Mapping[str, Any]
ObjectKey = tuple[str, str]
"""Namespace and name."""
_PoolKey = tuple[str, str]
"""Driver and pool."""

SLICES, CLAIMS, PODS = "ResourceSlice", "ResourceClaim", "Pod"
CLASSES, TEMPLATES, NODES = "DeviceClass", "ResourceClaimTemplate", "Node"
_MOST_LAYOUTS = 1000
"""The cache of machine layouts is cleared when it has more entries."""
KINDS = (SLICES, CLAIMS, PODS, CLASSES, TEMPLATES, NODES)


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A pod, or a claim without one."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.kind == PODS else f"claim {self.namespace}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Holder:
        """The inverse of ``str``."""
        kind = CLAIMS if text.startswith("claim ") else PODS
        namespace, _, name = text.removeprefix("claim ").partition("/")
        return cls(kind, namespace, name)


@dataclass(slots=True)
class _Touched:
    """Nodes and holders whose views may differ."""

    nodes: set[str] = field(default_factory=set)
    holders: set[Holder] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.nodes or self.holders)


@dataclass(frozen=True, slots=True, order=True)
class WatchError:
    """A kind whose watch has failed: since when, and why."""

    since: datetime
    reason: str


class ClusterObjects:
    """All objects of the cluster."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self.on_touch: Callable[[], None] = lambda: None
        """Called after every change."""
        self._objects: dict[str, dict[ObjectKey, Object]] = {kind: {} for kind in KINDS}
        self._slices_of_node: dict[str, set[ObjectKey]] = {}
        self._node_of_pool: dict[_PoolKey, str] = {}
        self._claims_of_pool: dict[_PoolKey, set[ObjectKey]] = {}
        self._claims_of_holder: dict[Holder, set[ObjectKey]] = {}
        self._machines: dict[str, Machine] = {}
        self._kinds: MachineCache = {}
        self._touched = _Touched()
        self.seen: set[str] = set()
        """Kinds that have been listed at least once."""
        self.watch_errors: dict[str, WatchError] = {}
        """Kinds that were listed and whose watch has failed."""

    def replace(self, kind: str, items: Iterable[Object]) -> None:
        """The complete list of one kind."""
        new = {object_key(item): item for item in items}
        for key in [key for key in self._objects[kind] if key not in new]:
            self.remove(kind, key)
        for item in new.values():
            self.put(kind, item)
        self.seen.add(kind)
        self.on_touch()

    def set_watch_error(self, kind: str, reason: str) -> None:
        """Set why the watch of a kind fails; an empty reason clears it."""
        if not reason:
            self.watch_errors.pop(kind, None)
        elif kind in self.seen:
            known = self.watch_errors.get(kind)
            self.watch_errors[kind] = WatchError(known.since if known else self._now(), reason)
        self.on_touch()

    def put(self, kind: str, item: Object) -> None:
        """Add or replace an object."""
        key = object_key(item)
        self._index(kind, key, self._objects[kind].get(key), item)
        self._objects[kind][key] = item

    def remove(self, kind: str, key: ObjectKey) -> None:
        """Remove an object, if it exists."""
        old = self._objects[kind].pop(key, None)
        self._index(kind, key, old, None)

    def snapshot(self) -> ClusterObjects:
        """A copy for use in another thread. Objects are shared, because they are never modified."""
        made = ClusterObjects()
        made._objects = {kind: dict(items) for kind, items in self._objects.items()}
        made._slices_of_node = {node: set(keys) for node, keys in self._slices_of_node.items()}
        made._node_of_pool = dict(self._node_of_pool)
        made._claims_of_pool = {pool: set(keys) for pool, keys in self._claims_of_pool.items()}
        made._claims_of_holder = {holder: set(keys) for holder, keys in self._claims_of_holder.items()}
        made._machines = dict(self._machines)
        return made

    def take_touched(self, limit: int | None = None) -> _Touched:
        """The marked nodes and holders, nodes first, at most `limit`; clears their marks."""
        if limit is None or self.untaken <= limit:
            touched, self._touched = self._touched, _Touched()
            return touched
        nodes = {self._touched.nodes.pop() for _ in range(min(limit, len(self._touched.nodes)))}
        rest = limit - len(nodes)
        return _Touched(nodes, {self._touched.holders.pop() for _ in range(min(rest, len(self._touched.holders)))})

    @property
    def untaken(self) -> int:
        """How many nodes and holders are marked."""
        return len(self._touched.nodes) + len(self._touched.holders)

    def objects(self, kind: str) -> list[Object]:
        """All objects of a kind, by namespace and name."""
        return [self._objects[kind][key] for key in sorted(self._objects[kind])]

    def find(self, kind: str, key: ObjectKey) -> Object | None:
        """One object, or None."""
        return self._objects[kind].get(key)

    @property
    def nodes_with_slices(self) -> Mapping[str, object]:
        """The names of nodes with slices, as keys."""
        return self._slices_of_node

    def slices(self, node: str) -> list[Object]:
        """The node's slices, of each pool only the newest generation."""
        found = [self._objects[SLICES][key] for key in sorted(self._slices_of_node.get(node, ()))]
        newest: dict[_PoolKey, int] = {}
        for item in found:
            newest[pool_key(item)] = max(newest.get(pool_key(item), 0), generation(item))
        return [item for item in found if generation(item) == newest[pool_key(item)]]

    def machine(self, node: str) -> Machine:
        """The machine according to its newest slices; without slices it has no devices."""
        if node not in self._machines:
            if len(self._kinds) > _MOST_LAYOUTS:
                self._kinds.clear()
            self._machines[node] = machines_of_slices(self.slices(node), self._kinds).get(node) or Machine(node, (), ())
        return self._machines[node]

    def claims_on(self, node: str) -> list[Object]:
        """Claims that hold devices of this node."""
        pools = {pool_key(item) for item in self.slices(node)}
        keys = {key for pool in pools for key in self._claims_of_pool.get(pool, ())}
        return [self._objects[CLAIMS][key] for key in sorted(keys)]

    def claims_of(self, holder: Holder) -> list[Object]:
        """The claims a holder uses."""
        return [self._objects[CLAIMS][key] for key in sorted(self._claims_of_holder.get(holder, ()))]

    def node_of(self, result: Mapping[str, Any]) -> str:
        """The node of an allocated device; empty if its pool is not published."""
        return self._node_of_pool.get((result["driver"], result["pool"]), "")

    def _index(self, kind: str, key: ObjectKey, old: Object | None, new: Object | None) -> None:
        if kind == SLICES:
            self._index_slice(key, old, new)
        elif kind == CLAIMS:
            self._index_claim(key, old, new)
        elif kind == PODS:
            self._touched.holders.add(Holder(PODS, *key))
        elif kind == NODES and key[1] in self._slices_of_node:
            self._touched.nodes.add(key[1])
        self.on_touch()

    def _index_slice(self, key: ObjectKey, old: Object | None, new: Object | None) -> None:
        for item in (old, new):
            if item is None or not (node := item["spec"].get("nodeName")):
                continue
            keys = self._slices_of_node.setdefault(node, set())
            if item is new:
                keys.add(key)
                self._node_of_pool[pool_key(item)] = node
            else:
                keys.discard(key)
            if not keys:
                del self._slices_of_node[node]
            self._machines.pop(node, None)
            self._touched.nodes.add(node)
            for claim in self._claims_of_pool.get(pool_key(item), ()):
                self._touched.holders.update(_holders_of(self._objects[CLAIMS][claim]))

    def _index_claim(self, key: ObjectKey, old: Object | None, new: Object | None) -> None:
        for item in (old, new):
            if item is None:
                continue
            for result in results(item):
                pool = (result["driver"], result["pool"])
                _enter(self._claims_of_pool, pool, key, item is new)
                if node := self._node_of_pool.get(pool):
                    self._touched.nodes.add(node)
            for holder in _holders_of(item):
                _enter(self._claims_of_holder, holder, key, item is new)
                self._touched.holders.add(holder)


def _enter(index: dict[Any, set[ObjectKey]], where: object, key: ObjectKey, present: bool) -> None:
    keys = index.setdefault(where, set())
    if present:
        keys.add(key)
    else:
        keys.discard(key)
        if not keys:
            del index[where]


def object_key(item: Object) -> ObjectKey:
    """Namespace (empty for cluster-scoped objects) and name."""
    metadata = item.get("metadata") or {}
    return metadata.get("namespace") or "", metadata.get("name") or ""


def pool_key(item: Object) -> _PoolKey:
    """The pool a slice belongs to."""
    return item["spec"].get("driver", ""), item["spec"].get("pool", {}).get("name", "")


def generation(item: Object) -> int:
    """The pool's generation as this slice has it."""
    return int(item["spec"].get("pool", {}).get("generation") or 0)


def results(claim: Object) -> list[Mapping[str, Any]]:
    """The devices an allocated claim holds."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    found = (allocation.get("devices") or {}).get("results") or ()
    return [result for result in found if all(result.get(key) for key in ("driver", "pool", "device"))]


def asks_for_claims(pod: Object) -> bool:
    """Whether a pod has claims."""
    return bool((pod.get("spec") or {}).get("resourceClaims"))


def _holders_of(claim: Object) -> Iterator[Holder]:
    """The pods a claim is reserved for, else the pod that owns it, else the claim itself."""
    namespace, name = object_key(claim)
    users = (claim.get("status") or {}).get("reservedFor") or ()
    owners = claim["metadata"].get("ownerReferences") or ()
    pods = [user.get("name", "") for user in users if user.get("resource") == "pods"]
    pods = pods or [owner.get("name", "") for owner in owners if owner.get("kind") == PODS]
    yield from (Holder(PODS, namespace, pod) for pod in pods)
    if not pods:
        yield Holder(CLAIMS, namespace, name)
