"""The scheduler's search, step for step, without its explosions.

The scheduler tries claims, requests, alternatives and device slots depth first and takes the first complete answer.
Our walk visits the same places in the same order and counts the same steps. When a walk gets long it is started again
with a memory: a place that failed before fails again if nothing it looked at has changed, and then its steps are added
without taking them. What a place looks at is recorded while it is explored (which candidates' "taken" marks it read);
everything else it depends on is part of the key. A request for 8 of 16 devices that no constraint allows is so
answered after a few hundred places instead of tens of thousands.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dranet.allocation.candidates import NodeView
from dranet.allocation.constraints import Constraint
from dranet.allocation.devices import CounterKey, Device
from dranet.allocation.pools import Pool
from dranet.allocation.requests import MAX_RESULTS, Fatal, Request, taint_blocks
from dranet.allocation.rules import Rules
from dranet.allocation.state import AllocatedState

FAILED, DONE, EXCEEDED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """After `patience` steps the walk starts again with a memory; after `places` remembered ones it gives up."""

    patience: int = 300
    places: int = 400_000


class _Restart(Exception):
    """The walk got long: start again, remembering failures."""


class SearchTooLong(Exception):
    """Neither the scheduler (it has ten seconds a node) nor we will finish this."""


class Pick:
    """A device chosen for a request."""

    __slots__ = ("amounts", "device", "request")

    def __init__(self, request: Request, device: Device, amounts: dict[str, Any] | None) -> None:
        self.request = request
        self.device = device
        self.amounts = amounts


class Search:
    """One attempt to satisfy claims on one node."""

    def __init__(
        self,
        view: NodeView,
        requests: Sequence[list[list[Request]]],
        constraints: Sequence[list[Constraint]],
        claims: Sequence[str],
        allocated: AllocatedState,
        rules: Rules,
        limits: SearchLimits,
    ) -> None:
        self.steps = 0
        self.picks: list[list[Pick]] = [[] for _ in requests]
        self.selected: dict[tuple[int, int], int] = {}
        self._view = view
        self._requests = requests
        self._constraints = constraints
        self._claims = claims
        self._allocated = allocated
        self._rules = rules
        self._limits = limits
        self._forgets = [any(constraint.forgets for constraint in group) for group in constraints]
        self._exclusive = [device.id in allocated.exclusive for device in view.candidates]
        self._available: dict[Pool, dict[CounterKey, Fraction]] = {}
        self._room: dict[tuple[int, Hashable], bool] = {}
        self._memory: dict[Hashable, dict[Hashable, dict[Hashable, tuple[int, int, Any]]]] | None = None
        self._begin()

    def _begin(self) -> None:
        self.steps = 0
        self._places = 0
        self._taken = [0] * len(self._requests)
        self._any = 0
        self._read_any = 0
        self._read_claim = [0] * len(self._requests)
        self._counters: dict[Pool, dict[CounterKey, Fraction]] = {}
        self._capacity: dict[int, dict[str, Fraction]] = {}
        self._shares: dict[int, int] = {}

    def run(self) -> bool:
        """Whether a complete answer was found; raises Fatal."""
        try:
            return self._one(0, 0, 0, 0, False, 0) == DONE
        except _Restart:
            self._memory = {}
            self._begin()
            for group in self.picks:
                group.clear()
            for constraints in self._constraints:
                for constraint in constraints:
                    constraint.reset()
            return self._one(0, 0, 0, 0, False, 0) == DONE

    def _one(self, claim: int, request: int, sub: int, slot: int, in_alternative: bool, start: int) -> int:
        self.steps += 1
        if self._memory is None and self.steps > self._limits.patience:
            raise _Restart
        if claim >= len(self._requests):
            return DONE
        if request >= len(self._requests[claim]):
            outcome = self._one(claim + 1, 0, 0, 0, False, 0)
            return FAILED if outcome == EXCEEDED else outcome
        alternatives = self._requests[claim][request]
        current = alternatives[sub]
        if current.parent is not None and not in_alternative:
            return self._alternatives(claim, request, slot, len(alternatives))
        if current.all and not current.all_devices:
            return FAILED
        if slot >= current.count:
            return self._one(claim, request + 1, 0, 0, False, 0)
        if len(self.picks[claim]) + current.count - slot > MAX_RESULTS:
            return EXCEEDED
        if self._memory is None:
            return self._slot(current, slot, start)
        return self._remembered(current, slot, start)

    def _alternatives(self, claim: int, request: int, slot: int, count: int) -> int:
        all_exceeded = True
        for sub in range(count):
            outcome = self._one(claim, request, sub, slot, True, 0)
            if outcome == EXCEEDED:
                continue
            all_exceeded = False
            if outcome == DONE:
                self.selected[(claim, request)] = sub
                return DONE
        return EXCEEDED if all_exceeded else FAILED

    def _slot(self, current: Request, slot: int, start: int) -> int:
        claim, (request, sub) = current.claim, current.index
        in_alternative = current.parent is not None
        if current.all:
            index = current.all_devices[slot]
            if not self._take(current, index, must=True):
                return FAILED
            outcome = self._below(current, index, (claim, request, sub, slot + 1, in_alternative, 0))
            if outcome != DONE:
                self._undo(current, index)
            return outcome
        for index in range(start, len(self._view.candidates)):
            if not self._candidate(current, index):
                continue
            after = index + 1 if self._rules.skips_permutations else 0
            outcome = self._below(current, index, (claim, request, sub, slot + 1, in_alternative, after))
            if outcome == DONE:
                return DONE
            self._undo(current, index)
            if outcome == EXCEEDED:
                return EXCEEDED
        return FAILED

    def _candidate(self, current: Request, index: int) -> bool:
        """Selectors and capacity, then the device itself. Taken devices are skipped before anything can go wrong."""
        if self._exclusive[index] and not current.admin:
            return False
        bit = 1 << index
        taken = bool((self._taken[current.claim] if current.admin else self._any) & bit)
        if taken:
            if self._memory is not None and not self._hopeless(current, index):
                self._read(current, bit)
            return False
        outcome = self._view.outcome(index, current)
        if outcome.error:
            device = self._view.candidates[index]
            raise Fatal(self._view.selector_error(outcome, device, current, self._claims[current.claim]))
        if not outcome.matches or not self._view.on_node[index] or not self._fits(current, index):
            return False
        return self._take(current, index, must=False)

    def _hopeless(self, current: Request, index: int) -> bool:
        """Whether a taken candidate would be skipped anyway, so that its being taken did not matter."""
        outcome = self._view.outcome(index, current)
        if outcome.error:
            return False
        if not outcome.matches or not self._view.on_node[index]:
            return True
        if self._forgets[current.claim]:
            return False
        device = self._view.candidates[index]
        blocked = self._rules.taints and bool(device.taints) and taint_blocks(device, current)
        return blocked or not self._acceptable(current, device)

    def _acceptable(self, current: Request, device: Device) -> bool:
        return all(
            constraint.accepts(device) or not constraint.applies(current.base, current.alternative)
            for constraint in self._constraints[current.claim]
        )

    def _read(self, current: Request, bit: int) -> None:
        if current.admin:
            self._read_claim[current.claim] |= bit
        else:
            self._read_any |= bit

    def _fits(self, current: Request, index: int) -> bool:
        """Whether the device's capacities hold what the request takes of them, beside all shares."""
        if not self._rules.consumable_capacity:
            return True
        picked = self._capacity.get(index)
        if picked:
            return self._has_room(current, index, picked)
        key = (index, current.capacity_key)
        known = self._room.get(key)
        if known is None:
            known = self._room[key] = self._has_room(current, index, {})
        return known

    def _has_room(self, current: Request, index: int, picked: dict[str, Fraction]) -> bool:
        device = self._view.candidates[index]
        wanted = self._view.consumption(device, current)
        if wanted.error and self._rules.capacity_errors_fatal:
            where = f"claim {self._claims[current.claim]}, request {current.name}"
            raise Fatal(f"{where}: checking capacity for device {'/'.join(device.id)}: {wanted.error}")
        if not wanted.fits_policy:
            return False
        used = self._allocated.capacity(device.id) or {}
        return all(
            amount.value + used.get(name, 0) + picked.get(name, 0) <= device.capacity[name].value.value
            for name, amount in wanted.amounts.items()
        )

    def _take(self, current: Request, index: int, *, must: bool) -> bool:
        """Mark the candidate as picked if counters, taints and constraints allow it."""
        device, claim, bit = self._view.candidates[index], current.claim, 1 << index
        multi = device.multi and self._rules.consumable_capacity
        if must and self._unavailable(current, index, multi):
            return False
        if self._forgets[claim]:
            self._read(current, bit)
        if device.counters and not self._counters_allow(index, multi):
            return False
        if self._rules.taints and device.taints and taint_blocks(device, current):
            self._return_counters(index, multi)
            return False
        added = self._constrain(current, device)
        if added is not None:
            self._release(current, added)
            self._return_counters(index, multi)
            if must:
                raise Fatal(
                    f"claim {self._claims[claim]}, request {current.name}: cannot add device {'/'.join(device.id)}"
                    " because a claim constraint would not be satisfied"
                )
            return False
        if must and not self._fits(current, index):
            self._release(current, len(self._constraints[claim]))
            self._return_counters(index, multi)
            return False
        self._read(current, bit)
        self._mark(current, index, multi)
        return True

    def _unavailable(self, current: Request, index: int, multi: bool) -> bool:
        bit = 1 << index
        if current.admin:
            taken = not multi and bool(self._taken[current.claim] & bit)
        else:
            taken = self._exclusive[index] or bool(self._any & bit)
        self._read(current, bit)
        return taken

    def _mark(self, current: Request, index: int, multi: bool) -> None:
        device, bit = self._view.candidates[index], 1 << index
        amounts: dict[str, Any] | None = None
        if multi:
            amounts = self._view.consumption(device, current).amounts
            self._shares[index] = self._shares.get(index, 0) + 1
            picked = self._capacity.setdefault(index, {})
            for name, amount in amounts.items():
                picked[name] = picked.get(name, Fraction(0)) + amount.value
        else:
            self._taken[current.claim] |= bit
            self._any |= bit
        self.picks[current.claim].append(Pick(current, device, amounts))

    def _undo(self, current: Request, index: int) -> None:
        pick = self.picks[current.claim].pop()
        device, bit = pick.device, 1 << index
        multi = pick.amounts is not None
        if multi:
            self._unshare(index, pick.amounts or {})
        else:
            self._taken[current.claim] &= ~bit
            if not any(taken & bit for taken in self._taken):
                self._any &= ~bit
        self._release(current, len(self._constraints[current.claim]))
        if device.counters:
            self._return_counters(index, multi)

    def _unshare(self, index: int, amounts: dict[str, Any]) -> None:
        self._shares[index] -= 1
        picked = self._capacity[index]
        for name, amount in amounts.items():
            picked[name] -= amount.value
        if not self._shares[index]:
            del self._shares[index], self._capacity[index]

    def _constrain(self, current: Request, device: Device) -> int | None:
        """Add the device to all constraints; None if they all accept, else how many had."""
        for place, constraint in enumerate(self._constraints[current.claim]):
            if constraint.applies(current.base, current.alternative):
                if not constraint.accepts(device):
                    return place
                constraint.add(current.base, device)
        return None

    def _release(self, current: Request, count: int) -> None:
        for constraint in reversed(self._constraints[current.claim][:count]):
            if constraint.applies(current.base, current.alternative):
                constraint.remove(current.base)

    def _counted(self, index: int, multi: bool) -> bool:
        """A further share of a device in use draws no counters again."""
        if not multi:
            return True
        device = self._view.candidates[index].id
        shared = self._allocated.capacity(device) is not None
        if self._rules.shares_draw_once:
            shared = shared or device in self._allocated.shared
        return not shared and not self._shares.get(index)

    def _counters_allow(self, index: int, multi: bool) -> bool:
        if not self._rules.partitionable:
            return False
        if not self._counted(index, multi):
            return True
        pool = self._view.pool_of[index]
        if pool not in self._available:
            self._available[pool] = self._view.available_counters(pool, self._allocated)
        used = self._counters.setdefault(pool, {})
        for key, amount in self._view.candidates[index].counters:
            used[key] = used.get(key, Fraction(0)) + amount
        if all(left >= used.get(key, 0) for key, left in self._available[pool].items()):
            return True
        self._draw_back(index)
        return False

    def _return_counters(self, index: int, multi: bool) -> None:
        if self._view.candidates[index].counters and self._counted(index, multi):
            self._draw_back(index)

    def _draw_back(self, index: int) -> None:
        used = self._counters[self._view.pool_of[index]]
        for key, amount in self._view.candidates[index].counters:
            used[key] -= amount

    def _below(self, current: Request, index: int, place: tuple[int, int, int, int, bool, int]) -> int:
        """Go on behind a pick. What is read of the picked device further down is our own mark, not the outside's."""
        if self._memory is None:
            return self._one(*place)
        outer_any, outer_claim = self._read_any, self._read_claim
        self._read_any, self._read_claim = 0, [0] * len(outer_claim)
        outcome = self._one(*place)
        own = ~(1 << index)
        if not (self._view.candidates[index].multi and self._rules.consumable_capacity):
            self._read_any &= own
            self._read_claim[current.claim] &= own
        self._read_any |= outer_any
        self._read_claim = [one | other for one, other in zip(self._read_claim, outer_claim, strict=True)]
        return outcome

    def _remembered(self, current: Request, slot: int, start: int) -> int:
        assert self._memory is not None
        key = (
            current.claim,
            current.index,
            slot,
            start,
            len(self.picks[current.claim]),
            self._situation(current.claim),
        )
        shapes = self._memory.setdefault(key, {})
        for shape, known in shapes.items():
            found = known.get(self._seen(shape))
            if found is not None:
                return self._recall(current.claim, shape, found)
        self._places += 1
        if self._places > self._limits.places:
            raise SearchTooLong
        outer_any, outer_claim, before = self._read_any, self._read_claim, self.steps
        self._read_any, self._read_claim = 0, [0] * len(outer_claim)
        marks = (self._any, tuple(self._taken))
        outcome = self._slot(current, slot, start)
        if outcome != DONE:
            shape = (self._read_any, tuple(self._read_claim))
            after = [constraint.state() for constraint in self._constraints[current.claim]]
            shapes.setdefault(shape, {})[_masked(shape, *marks)] = (outcome, self.steps - before, after)
        self._read_any |= outer_any
        self._read_claim = [one | other for one, other in zip(self._read_claim, outer_claim, strict=True)]
        return outcome

    def _recall(self, claim: int, shape: Any, found: tuple[int, int, Any]) -> int:
        outcome, steps, after = found
        self.steps += steps
        self._read_any |= shape[0]
        self._read_claim = [one | other for one, other in zip(self._read_claim, shape[1], strict=True)]
        if self._forgets[claim]:
            for constraint, state in zip(self._constraints[claim], after, strict=True):
                constraint.restore(state)
        return outcome

    def _seen(self, shape: Any) -> Hashable:
        return _masked(shape, self._any, self._taken)

    def _situation(self, claim: int) -> Hashable:
        """Everything but the taken marks that the rest of the search depends on."""
        constraints = tuple(constraint.state() for constraint in self._constraints[claim])
        counters = tuple(
            (pool.id, tuple(sorted((key, amount) for key, amount in used.items() if amount)))
            for pool, used in self._counters.items()
        )
        shares = tuple(sorted((index, tuple(sorted(used.items()))) for index, used in self._capacity.items()))
        return constraints, counters, shares


def _masked(shape: Any, any_taken: int, taken: Sequence[int]) -> Hashable:
    read_any, read_claim = shape
    return any_taken & read_any, tuple(mask & read for mask, read in zip(taken, read_claim, strict=True))
