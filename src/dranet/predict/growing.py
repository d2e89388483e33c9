"""How many machines of which kind a job needs, where a cluster may still grow.

Pools have a least and a most number of nodes. Nodes are added as long as pods wait: first in one pool alone, for every
pool, so that the answers can be compared; only where no pool is enough by itself, in several. A pool that cannot take
the pods however large it is says why. Which pool an autoscaler would take depends on its own settings: here it is the
one that needs the fewest nodes, then the first named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from dranet.manifests.claim_views import World
from dranet.model.errors import InvalidInput
from dranet.predict.hardware import Hardware, hardware_of_shapes
from dranet.predict.planning import Plan, plan
from dranet.topology.shape import Shape, load_shape

_RANGE = re.compile(r"(.+)=(\d{1,6})\.\.(\d{1,6})")
MOST = 100_000


class Pool(msgspec.Struct, frozen=True):
    """Nodes of one kind, from so many to so many."""

    shape: Shape
    least: int
    most: int

    @property
    def name(self) -> str:
        """Its shape's."""
        return self.shape.name


class Alone(msgspec.Struct, frozen=True):
    """What one pool would need if only it grew."""

    pool: Pool
    nodes: int | None
    """None where its most is not enough."""
    why_not: str = ""


class Growth(msgspec.Struct, frozen=True):
    """The answer: nodes of every pool, and the other ways."""

    nodes: Mapping[str, int]
    alone: tuple[Alone, ...] = ()
    """Empty where nothing has to grow."""
    waiting: int = 0
    """Pods that wait even with every pool at its most."""

    def lines(self, pools: Sequence[Pool]) -> list[str]:
        """For people."""
        made = [f"  {pool.name}: {_count(self.nodes[pool.name])} ({pool.least} to {pool.most})" for pool in pools]
        head = "nodes needed:" if not self.waiting else f"{self.waiting} pods wait even with all nodes there may be:"
        return [head, *made, *(f"  {_alone(one)}" for one in self.alone if len(pools) > 1)]

    def to_json(self, pools: Sequence[Pool]) -> dict[str, Any]:
        """As `dranet plan -o json` prints it."""
        return {
            "nodes": [{"shape": p.name, "least": p.least, "most": p.most, "needed": self.nodes[p.name]} for p in pools],
            "alone": [{"shape": a.pool.name, "needed": a.nodes, "why_not": a.why_not} for a in self.alone],
            "waiting": self.waiting,
        }


def _alone(one: Alone) -> str:
    if one.nodes is not None:
        return f"{one.pool.name} alone: {_count(one.nodes)}"
    return f"{one.pool.name} alone: not even {_count(one.pool.most)}: {one.why_not}"


def _count(nodes: int) -> str:
    return f"{nodes} node{'s' * (nodes != 1)}"


def split_pools(specs: Sequence[str]) -> tuple[tuple[str, ...], list[Pool]]:
    """``NAME=COUNT`` as it is, ``NAME=MIN..MAX`` as pools."""
    fixed, pools = [], list[Pool]()
    for spec in specs:
        found = _RANGE.fullmatch(spec)
        if found is None:
            fixed.append(spec)
            continue
        least, most = int(found[2]), int(found[3])
        if not least <= most <= MOST or not most:
            raise InvalidInput(f"--shape {spec}: from {least} to {most} nodes is no range; write NAME=MIN..MAX")
        pools.append(Pool(load_shape(found[1]), least, most))
    twice = [pool.name for i, pool in enumerate(pools) if pool.name in {other.name for other in pools[:i]}]
    if twice:
        raise InvalidInput(f"--shape {twice[0]} is named twice with a range")
    return tuple(fixed), pools


@dataclass
class _Growing:
    world: World
    base: Hardware
    pools: Sequence[Pool]
    kubernetes: tuple[int, int]

    def planned(self, nodes: Mapping[str, int]) -> Plan | None:
        """The plan with so many nodes; None without any."""
        taken = {name.rpartition("-")[0] for name in self.base.machines}
        made = hardware_of_shapes(
            (f"{pool.name}-{'new-' * (pool.name in taken)}{i}", pool.shape, i)
            for pool in self.pools
            for i in range(nodes[pool.name])
        )
        hardware = Hardware((*self.base.slices, *made.slices), {**self.base.machines, **made.machines})
        return plan(self.world, hardware, self.kubernetes) if hardware.machines else None

    def enough(self, nodes: Mapping[str, int]) -> bool:
        found = self.planned(nodes)
        return found is not None and not found.unschedulable

    def fewest(self, nodes: Mapping[str, int], pool: Pool) -> int:
        """The fewest nodes of a pool that are enough, given that those in ``nodes`` are: halving the range."""
        low, high = pool.least, nodes[pool.name]
        while low < high:
            middle = (low + high) // 2
            if self.enough({**nodes, pool.name: middle}):
                high = middle
            else:
                low = middle + 1
        return high

    def alone(self, least: Mapping[str, int], pool: Pool) -> Alone:
        full = {**least, pool.name: pool.most}
        found = self.planned(full)
        if found is not None and not found.unschedulable:
            return Alone(pool, self.fewest(full, pool))
        return Alone(pool, None, found.unschedulable[0].reason if found else "it may not have any")


def grow(
    world: World, base: Hardware | None, pools: Sequence[Pool], kubernetes: tuple[int, int] = (1, 36)
) -> tuple[Plan, Growth]:
    """The plan on as few nodes as will do, and how it came to them."""
    growing = _Growing(world, base or Hardware((), {}), pools, kubernetes)
    least = {pool.name: pool.least for pool in pools}
    found = growing.planned(least)
    if found is not None and not found.unschedulable:
        return found, Growth(least)
    alone = tuple(growing.alone(least, pool) for pool in pools)
    nodes = _chosen(growing, least, alone)
    found = growing.planned(nodes)
    assert found is not None
    return found, replace(Growth(nodes, alone), waiting=len(found.unschedulable))


def _chosen(growing: _Growing, least: Mapping[str, int], alone: Sequence[Alone]) -> dict[str, int]:
    one = min((a for a in alone if a.nodes is not None), key=lambda a: (a.nodes or 0) - a.pool.least, default=None)
    if one is not None and one.nodes is not None:
        return {**least, one.pool.name: one.nodes}
    nodes = {pool.name: pool.most for pool in growing.pools}
    if growing.enough(nodes):
        # The pool named last gives way first: people name the one they prefer first.
        for pool in reversed(growing.pools):
            nodes[pool.name] = growing.fewest(nodes, pool)
    return nodes
