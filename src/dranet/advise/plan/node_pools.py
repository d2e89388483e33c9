"""How many nodes of which shape a job needs, if the cluster may grow.

A pool has a minimum and a maximum number of nodes. First each pool grows alone, so that the results can be compared;
only if no pool is enough alone, all of them grow. A pool whose maximum is not enough reports why. Which pool a real
autoscaler picks depends on its settings; the plan uses the pool that needs the fewest nodes, then the first named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from dranet.advise.manifests import Manifests
from dranet.advise.plan.hardware import Hardware, hardware_of_shapes
from dranet.advise.plan.planning import Plan, plan
from dranet.core.errors import InvalidInput
from dranet.machines.shape import Shape, load_shape

_RANGE = re.compile(r"(.+)=(\d{1,6})\.\.(\d{1,6})")
_MAX_NODES = 100_000


class NodePool(msgspec.Struct, frozen=True):
    """Nodes of one kind, from so many to so many."""

    shape: Shape
    least: int
    most: int

    @property
    def name(self) -> str:
        """Its shape's."""
        return self.shape.name


class SinglePool(msgspec.Struct, frozen=True):
    """What one pool would need if only it grew."""

    pool: NodePool
    nodes: int | None
    """None where its most is not enough."""
    why_not: str = ""


class PoolSizes(msgspec.Struct, frozen=True):
    """The answer: nodes of every pool, and the other ways."""

    nodes: Mapping[str, int]
    alone: tuple[SinglePool, ...] = ()
    """Empty where nothing has to grow."""
    waiting: int = 0
    """Pods that wait even with every pool at its most."""

    def lines(self, pools: Sequence[NodePool]) -> list[str]:
        """For people."""
        made = [f"  {pool.name}: {_count(self.nodes[pool.name])} ({pool.least} to {pool.most})" for pool in pools]
        head = (
            "nodes needed:" if not self.waiting else f"{self.waiting} pods stay pending even with the maximum of nodes:"
        )
        return [head, *made, *(f"  {_alone(one)}" for one in self.alone if len(pools) > 1)]

    def to_json(self, pools: Sequence[NodePool]) -> dict[str, Any]:
        """As `dranet plan -o json` prints it."""
        return {
            "nodes": [{"shape": p.name, "least": p.least, "most": p.most, "needed": self.nodes[p.name]} for p in pools],
            "alone": [{"shape": a.pool.name, "needed": a.nodes, "why_not": a.why_not} for a in self.alone],
            "waiting": self.waiting,
        }


def _alone(one: SinglePool) -> str:
    if one.nodes is not None:
        return f"{one.pool.name} alone: {_count(one.nodes)}"
    return f"{one.pool.name} alone: {_count(one.pool.most)} are not enough: {one.why_not}"


def _count(nodes: int) -> str:
    return f"{nodes} node{'s' * (nodes != 1)}"


def parse_pools(specs: Sequence[str]) -> tuple[tuple[str, ...], list[NodePool]]:
    """``NAME=COUNT`` as it is, ``NAME=MIN..MAX`` as pools."""
    fixed, pools = [], list[NodePool]()
    for spec in specs:
        found = _RANGE.fullmatch(spec)
        if found is None:
            fixed.append(spec)
            continue
        least, most = int(found[2]), int(found[3])
        if not least <= most <= _MAX_NODES or not most:
            raise InvalidInput(f"--shape {spec}: {least}..{most} is not a valid range of nodes; write NAME=MIN..MAX")
        pools.append(NodePool(load_shape(found[1]), least, most))
    twice = [pool.name for i, pool in enumerate(pools) if pool.name in {other.name for other in pools[:i]}]
    if twice:
        raise InvalidInput(f"--shape {twice[0]} is named twice with a range")
    return tuple(fixed), pools


@dataclass
class _PoolSearch:
    manifests: Manifests
    base: Hardware
    pools: Sequence[NodePool]
    kubernetes: tuple[int, int]

    def planned(self, nodes: Mapping[str, int]) -> Plan | None:
        """The plan with so many nodes; None without any."""
        taken = {name.rpartition("-")[0] for name in self.base.machines}
        made = hardware_of_shapes(
            (f"{pool.name}-{'new-' * (pool.name in taken)}{i}", pool.shape, i)
            for pool in self.pools
            for i in range(nodes[pool.name])
        )
        hardware = Hardware((*self.base.slices, *made.slices), {**self.base.machines, **made.machines}, shaped=True)
        return plan(self.manifests, hardware, self.kubernetes) if hardware.machines else None

    def enough(self, nodes: Mapping[str, int]) -> bool:
        found = self.planned(nodes)
        return found is not None and not found.unschedulable

    def fewest(self, nodes: Mapping[str, int], pool: NodePool) -> int:
        """The fewest nodes of a pool that are enough, given that those in ``nodes`` are: halving the range."""
        low, high = pool.least, nodes[pool.name]
        while low < high:
            middle = (low + high) // 2
            if self.enough({**nodes, pool.name: middle}):
                high = middle
            else:
                low = middle + 1
        return high

    def alone(self, least: Mapping[str, int], pool: NodePool) -> SinglePool:
        full = {**least, pool.name: pool.most}
        found = self.planned(full)
        if found is not None and not found.unschedulable:
            return SinglePool(pool, self.fewest(full, pool))
        return SinglePool(pool, None, found.unschedulable[0].reason if found else "its maximum is 0")


def size_pools(
    manifests: Manifests, base: Hardware | None, pools: Sequence[NodePool], kubernetes: tuple[int, int] = (1, 36)
) -> tuple[Plan, PoolSizes]:
    """The plan on as few nodes as will do, and how it came to them."""
    search = _PoolSearch(manifests, base or Hardware((), {}), pools, kubernetes)
    least = {pool.name: pool.least for pool in pools}
    found = search.planned(least)
    if found is not None and not found.unschedulable:
        return found, PoolSizes(least)
    alone = tuple(search.alone(least, pool) for pool in pools)
    nodes = _chosen(search, least, alone)
    found = search.planned(nodes)
    assert found is not None
    return found, replace(PoolSizes(nodes, alone), waiting=len(found.unschedulable))


def _chosen(search: _PoolSearch, least: Mapping[str, int], alone: Sequence[SinglePool]) -> dict[str, int]:
    one = min((a for a in alone if a.nodes is not None), key=lambda a: (a.nodes or 0) - a.pool.least, default=None)
    if one is not None and one.nodes is not None:
        return {**least, one.pool.name: one.nodes}
    nodes = {pool.name: pool.most for pool in search.pools}
    if search.enough(nodes):
        # The pool named last gives way first: people name the one they prefer first.
        for pool in reversed(search.pools):
            nodes[pool.name] = search.fewest(nodes, pool)
    return nodes
