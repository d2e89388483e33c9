"""Pools with slices for one node.

A pool is usable only when all its slices of one generation are known and consistent. An incomplete or invalid pool
stays in the list: it has no usable devices, but makes requests for "all" devices fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from dranet.scheduler.allocation.devices import CounterKey, Device, PoolId, Slice
from dranet.scheduler.allocation.nodes import NodeLabels, node_matches
from dranet.scheduler.allocation.rules import Rules


class Pool:
    """A pool's devices for a node; `others` are devices of other nodes that consume the same counters."""

    __slots__ = ("complete", "counters", "devices", "id", "others", "problem")

    def __init__(
        self, id_: PoolId, devices: Sequence[Device] = (), *, complete: bool = True, problem: str = ""
    ) -> None:
        self.id = id_
        self.devices = list(devices)
        self.others: list[Device] = []
        self.counters: dict[CounterKey, Fraction] = {}
        self.complete = complete
        self.problem = problem

    @property
    def usable(self) -> bool:
        return self.complete and not self.problem

    def __str__(self) -> str:
        return "/".join(self.id)


def gather_pools(
    slices: Iterable[Slice], by_pool: dict[PoolId, list[Slice]], node: NodeLabels, rules: Rules
) -> list[Pool]:
    """Pools with slices for this node, in the scheduler's order."""
    relevant: dict[PoolId, list[Slice]] = {}
    for slice_ in slices:
        if _is_relevant(slice_, node, rules):
            _add(relevant, slice_)
    plain: list[Pool] = []
    binding: list[Pool] = []
    for id_, found in relevant.items():
        pool = _pool(id_, found, by_pool[id_], rules)
        if pool is not None:
            target = binding if any(device.has_binding for device in pool.devices) else plain
            target.append(pool)
    return sorted(plain, key=_order) + sorted(binding, key=_order)


def _order(pool: Pool) -> tuple[bytes, bytes]:
    return pool.id[0].encode(), pool.id[1].encode()


def _is_relevant(slice_: Slice, node: NodeLabels, rules: Rules) -> bool:
    if not rules.partitionable and (slice_.per_device is not None or slice_.counter_sets):
        return False
    if rules.hides_compatibility_groups and slice_.has_compatibility_groups:
        return False
    if rules.counters_always_relevant and slice_.counter_sets:
        return True
    if slice_.node_name or slice_.all_nodes or slice_.node_selector is not None:
        return node_matches(node, slice_.node_name, slice_.all_nodes, slice_.node_selector)
    if slice_.per_device:
        return any(device_on_node(device, node) for device in slice_.devices)
    return False


def device_on_node(device: Device, node: NodeLabels) -> bool:
    """For slices that select nodes device by device."""
    raw = device.raw
    return node_matches(node, raw.get("nodeName"), bool(raw.get("allNodes")), raw.get("nodeSelector"))


def _add(pools: dict[PoolId, list[Slice]], slice_: Slice) -> None:
    known = pools.setdefault(slice_.pool_id, [])
    if not known or slice_.generation == known[0].generation:
        known.append(slice_)
    elif slice_.generation > known[0].generation:
        pools[slice_.pool_id] = [slice_]


def _pool(id_: PoolId, found: list[Slice], everywhere: list[Slice], rules: Rules) -> Pool | None:
    expected = found[0].count
    if len(found) == expected or rules.uses_incomplete_pools:
        return _built(id_, found, found, rules)
    if any(slice_.generation > found[0].generation for slice_ in everywhere):
        return None
    same = [slice_ for slice_ in everywhere if slice_.generation == found[0].generation]
    if rules.hides_compatibility_groups:
        # Hidden slices do not count, so the pool is incomplete and its other devices are not allocated either.
        same = [slice_ for slice_ in same if not slice_.has_compatibility_groups]
    if len(same) != expected:
        return Pool(id_, complete=False)
    return _built(id_, found, same, rules)


def _built(id_: PoolId, found: list[Slice], everywhere: list[Slice], rules: Rules) -> Pool:
    ordered = sorted(found, key=lambda slice_: slice_.name.encode())
    here = {slice_.name for slice_ in ordered}
    elsewhere = [slice_ for slice_ in everywhere if slice_.name not in here]
    device_slices = [slice_ for slice_ in ordered if not (rules.partitionable and slice_.counter_sets)]
    pool = Pool(id_, [device for slice_ in device_slices for device in slice_.devices])
    pool.problem = _duplicate([device.id[2] for device in pool.devices], "device name")
    if pool.problem or not rules.partitionable:
        return pool
    counter_slices = ordered if rules.counters_always_relevant else ordered + elsewhere
    sets = [entry for slice_ in counter_slices for entry in slice_.counter_sets]
    pool.problem = _duplicate([name for name, _ in sets], "counter set name")
    pool.counters = {(name, counter): value for name, counters in sets for counter, value in counters.items()}
    pool.others = [
        device for slice_ in elsewhere for device in slice_.devices
        if rules.counters_always_relevant or not slice_.counter_sets
    ]  # fmt: skip
    pool.problem = pool.problem or _unknown_counter(pool, {name for name, _ in sets})
    return pool


def _duplicate(names: list[str], what: str) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return f"duplicate {what} {name}"
        seen.add(name)
    return ""


def _unknown_counter(pool: Pool, sets: set[str]) -> str:
    for device in (*pool.devices, *pool.others):
        for (set_name, counter), _ in device.counters:
            if set_name not in sets:
                return f"counter set {set_name} not found"
            if (set_name, counter) not in pool.counters:
                return f"counter {counter} not found in counter set {set_name}"
    return ""
