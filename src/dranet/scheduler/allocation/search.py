"""The scheduler's search, step for step, without its explosions.

The scheduler tries claims, requests, alternatives and device slots depth first and takes the first complete answer.
Our walk visits the same places in the same order and counts the same steps. When a walk gets long it is started again
with a memory: a place that failed before fails again if nothing it looked at has changed, and then its steps are added
without taking them. What a place looks at is recorded while it is explored (which candidates' "taken" marks it read);
everything else it depends on is part of the key. A request for 8 of 16 devices that no constraint allows is so
answered after a few hundred places instead of tens of thousands.

Why not simply ...

* a better search (constraint propagation, most constrained request first)? It finds an answer sooner, but another one:
  the scheduler takes the first of its own order, and its number of steps decides whether it runs into its time-out.
* a bound, such as "fewer matching devices are left than the request wants"? The scheduler has none and walks on, and
  so must the count. Only MAX_RESULTS cuts, because it does so there.
* the memory from the first step? Nearly every claim fits at once, and pays for keys it never asks again: 74 instead of
  44 microseconds for 8 of 16 devices. Hence `patience`.
* no memory? The request above takes 143 ms instead of 5, and every device more doubles it.
* a key of all taken marks? Two ways to the same place differ in devices it never looks at, so nearly no place would be
  found again. Hence the record of what was read.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from dranet.scheduler.allocation.candidates import NodeCandidates
from dranet.scheduler.allocation.constraints import Constraint
from dranet.scheduler.allocation.devices import CounterKey, Device
from dranet.scheduler.allocation.pools import Pool
from dranet.scheduler.allocation.requests import MAX_RESULTS, Fatal, Request
from dranet.scheduler.allocation.rules import Rules
from dranet.scheduler.allocation.state import AllocatedState
from dranet.scheduler.taints import blocks

FAILED, DONE, EXCEEDED = 0, 1, 2
"""How a place ends. EXCEEDED (more than MAX_RESULTS devices) is no failure: it skips siblings that FAILED would try."""


class SearchLimits(msgspec.Struct, frozen=True):
    """After `patience` steps the walk starts again with a memory; after `places` remembered ones it gives up."""

    patience: int = 300
    places: int = 400_000


class _Restart(Exception):
    """The walk got long: start again, remembering failures."""


class SearchTooLong(Exception):
    """The search exceeds the scheduler's ten seconds for a node."""


class Pick(NamedTuple):
    """A device chosen for a request."""

    request: Request
    device: Device
    amounts: dict[str, Any] | None


class Search:
    """One attempt to satisfy claims on one node."""

    def __init__(
        self,
        node: NodeCandidates,
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
        self._node = node
        self._requests = requests
        self._constraints = constraints
        self._claims = claims
        self._allocated = allocated
        self._rules = rules
        self._limits = limits
        # Claims with a constraint that forgets (see there): for them a place that failed leaves a trace behind.
        self._forgets = [any(constraint.forgets for constraint in group) for group in constraints]
        self._exclusive = [device.id in allocated.exclusive for device in node.candidates]
        self._available: dict[Pool, dict[CounterKey, Fraction]] = {}
        self._capacity_results: dict[tuple[int, Hashable], bool] = {}
        # Place and situation -> which marks were read -> how those marks stood -> outcome, steps, constraints after.
        # Two levels below the place, because one place may read other marks on another visit.
        self._memory: dict[Hashable, dict[Hashable, dict[Hashable, tuple[int, int, Any]]]] | None = None
        self._begin()

    def _begin(self) -> None:
        self.steps = 0
        self._places = 0
        # Sets of candidates are bit masks in plain integers: copied, compared, hashed and joined in one operation.
        self._taken = [0] * len(self._requests)
        self._any = 0  # of any claim; an admin's request only minds its own claim's
        self._read_any = 0
        self._read_claim = [0] * len(self._requests)
        self._counters: dict[Pool, dict[CounterKey, Fraction]] = {}
        # Compatibility groups that all devices on a counter set have in common, one more entry for each pick.
        self._groups: dict[tuple[Pool, str], list[frozenset[str] | None]] = {}
        self._capacity: dict[int, dict[str, Fraction]] = {}
        self._shares: dict[int, int] = {}

    def run(self) -> bool:
        """Whether a complete answer was found; raises Fatal."""
        try:
            return self._visit(claim=0) == DONE
        except _Restart:
            # Again from the start, not from here: what the places on the way here have read was not recorded.
            self._memory = {}
            self._begin()
            for group in self.picks:
                group.clear()
            for constraints in self._constraints:
                for constraint in constraints:
                    constraint.reset()
            return self._visit(claim=0) == DONE

    def _visit(
        self,
        claim: int,
        request: int = 0,
        sub: int = 0,
        slot: int = 0,
        *,
        in_alternative: bool = False,
        first: int = 0,
    ) -> int:
        """One place of the walk: fill slot number `slot` of a request, looking at candidates from `first` on.

        `sub` is the alternative of a request with several (firstAvailable), `in_alternative` says that one was chosen.
        Every visit is one of the scheduler's steps, also those that only pass on to the next request or claim.
        """
        self.steps += 1
        if self._memory is None and self.steps > self._limits.patience:
            raise _Restart
        if claim >= len(self._requests):
            return DONE
        if request >= len(self._requests[claim]):
            outcome = self._visit(claim + 1)
            # One claim's limit says nothing about the claims before it: there, other devices may still be tried.
            return FAILED if outcome == EXCEEDED else outcome
        alternatives = self._requests[claim][request]
        current = alternatives[sub]
        if current.parent is not None and not in_alternative:
            return self._alternatives(claim, request, slot, len(alternatives))
        if current.all and not current.all_devices:
            return FAILED
        if slot >= current.count:
            return self._visit(claim, request + 1)
        if len(self.picks[claim]) + current.count - slot > MAX_RESULTS:
            return EXCEEDED
        if self._memory is None:
            return self._slot(current, slot, first)
        return self._remembered(current, slot, first)

    def _alternatives(self, claim: int, request: int, slot: int, count: int) -> int:
        all_exceeded = True
        for sub in range(count):
            outcome = self._visit(claim, request, sub, slot, in_alternative=True)
            if outcome == EXCEEDED:
                continue
            all_exceeded = False
            if outcome == DONE:
                self.selected[(claim, request)] = sub
                return DONE
        return EXCEEDED if all_exceeded else FAILED

    def _slot(self, current: Request, slot: int, first: int) -> int:
        """Try the candidates of one slot, each with everything behind it."""
        if current.all:
            # All devices of a kind leave nothing to choose: the next of a list that was fixed beforehand, or nothing.
            index = current.all_devices[slot]
            if not self._take(current, index, must=True):
                return FAILED
            outcome = self._below(current, index, slot + 1, first=0)
            if outcome != DONE:
                self._undo(current, index)
            return outcome
        for index in range(first, len(self._node.candidates)):
            if not self._candidate(current, index):
                continue
            # Slots of a request are equivalent: newer releases start each after the last one, older ones try orders.
            after = index + 1 if self._rules.skips_permutations else 0
            outcome = self._below(current, index, slot + 1, first=after)
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
            # Not every mark counts as read: on a device that would be rejected anyway it decides nothing.
            # Tried without: places differ in marks that do not matter, the shapes to compare pile up, and the request
            # of the head of this file had no answer after minutes.
            if self._memory is not None and not self._hopeless(current, index):
                self._read(current, bit)
            return False
        outcome = self._node.outcome(index, current)
        if outcome.error:
            device = self._node.candidates[index]
            raise Fatal(self._node.selector_error(outcome, device, current, self._claims[current.claim]))
        if not outcome.matches or not self._node.on_node[index] or not self._fits(current, index):
            return False
        return self._take(current, index, must=False)

    def _hopeless(self, current: Request, index: int) -> bool:
        """Whether a taken candidate would be skipped anyway, so that its being taken did not matter."""
        outcome = self._node.outcome(index, current)
        if outcome.error:
            return False  # were it free, its selector would end the whole search
        if not outcome.matches or not self._node.on_node[index]:
            return True
        if self._forgets[current.claim]:
            return False  # what such a constraint accepts is not decided by its state alone
        if current.derived:
            return False  # the scheduler does not evaluate them for a taken device, and an error would end the search
        device = self._node.candidates[index]
        blocked = self._rules.taints and blocks(device.taints, current.tolerations)
        return blocked or not self._acceptable(current, device)

    def _acceptable(self, current: Request, device: Device) -> bool:
        return all(
            constraint.accepts(self._node.attribute(device, current, constraint.attribute))
            for constraint in self._constraints[current.claim]
            if constraint.applies(current.base, current.alternative)
        )

    def _read(self, current: Request, bit: int) -> None:
        if current.admin:
            self._read_claim[current.claim] |= bit
        else:
            self._read_any |= bit

    def _fits(self, current: Request, index: int) -> bool:
        """Whether the device has enough capacity for the request in addition to all shares."""
        if not self._rules.consumable_capacity:
            return True
        picked = self._capacity.get(index)
        if picked:
            return self._capacity_suffices(current, index, picked)
        # Nothing of it is picked yet: the same answer for the whole search, and the usual case for every device.
        key = (index, current.capacity_key)
        known = self._capacity_results.get(key)
        if known is None:
            known = self._capacity_results[key] = self._capacity_suffices(current, index, {})
        return known

    def _capacity_suffices(self, current: Request, index: int, picked: dict[str, Fraction]) -> bool:
        device = self._node.candidates[index]
        consumed = self._node.consumption(device, current)
        if consumed.error and self._rules.capacity_errors_fatal:
            where = f"claim {self._claims[current.claim]}, request {current.name}"
            raise Fatal(f"{where}: checking capacity for device {'/'.join(device.id)}: {consumed.error}")
        if not consumed.fits_policy:
            return False
        used = self._allocated.capacity(device.id) or {}
        return all(
            amount.value + used.get(name, 0) + picked.get(name, 0) <= device.capacity[name].value.value
            for name, amount in consumed.amounts.items()
        )

    def _take(self, current: Request, index: int, *, must: bool) -> bool:
        """Mark the candidate as picked if counters, taints and constraints allow it.

        The checks stand in the scheduler's order, which decides what error is seen and what was drawn and returned.
        `must` is for all devices of a kind: one that is refused fails the request, and by a constraint ends the search.
        """
        device, claim, bit = self._node.candidates[index], current.claim, 1 << index
        multi = device.multi and self._rules.consumable_capacity
        if must and self._unavailable(current, index, multi):
            return False
        if device.owner.skips and not self._node.may_skip:
            return False
        if self._forgets[claim]:
            self._read(current, bit)
        if device.counters and not self._counters_allow(index, multi):
            return False
        if self._rules.taints and device.taints and blocks(device.taints, current.tolerations):
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
        device, bit = self._node.candidates[index], 1 << index
        amounts: dict[str, Any] | None = None
        if multi:
            amounts = self._node.consumption(device, current).amounts
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
            # An admin's claim may have taken the same device as another claim of the pod.
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
                value = self._node.attribute(device, current, constraint.attribute)
                if not constraint.accepts(value):
                    return place
                assert value is not None
                constraint.add(current.base, value)
        return None

    def _release(self, current: Request, count: int) -> None:
        # Backwards, as the scheduler does: for a constraint that forgets, the order is what is left in it.
        for constraint in reversed(self._constraints[current.claim][:count]):
            if constraint.applies(current.base, current.alternative):
                constraint.remove(current.base)

    def _counted(self, index: int, multi: bool) -> bool:
        """A further share of a device in use draws no counters again."""
        if not multi:
            return True
        device = self._node.candidates[index].id
        shared = self._allocated.capacity(device) is not None
        if self._rules.shares_draw_once:
            shared = shared or device in self._allocated.shared
        return not shared and not self._shares.get(index)

    def _counters_allow(self, index: int, multi: bool) -> bool:
        if not self._rules.partitionable:
            return False
        if not self._counted(index, multi):
            return True
        pool = self._node.pool_of[index]
        if self._rules.compatibility_groups and not self._join_groups(index, pool):
            return False
        if pool not in self._available:
            self._available[pool] = self._node.available_counters(pool, self._allocated)
        # Drawn first and asked afterwards, over all counters of the pool: one that was overdrawn before by devices in
        # use refuses every device of the pool, also those that draw nothing of it.
        used = self._counters.setdefault(pool, {})
        for key, amount in self._node.candidates[index].counters:
            used[key] = used.get(key, Fraction(0)) + amount
        if all(left >= used.get(key, 0) for key, left in self._available[pool].items()):
            return True
        self._draw_back(index)
        return False

    def _return_counters(self, index: int, multi: bool) -> None:
        if self._node.candidates[index].counters and self._counted(index, multi):
            self._draw_back(index)

    def _draw_back(self, index: int) -> None:
        pool, device = self._node.pool_of[index], self._node.candidates[index]
        used = self._counters[pool]
        for key, amount in device.counters:
            used[key] -= amount
        self._leave_groups(device.groups if self._rules.compatibility_groups else (), pool)

    def _join_groups(self, index: int, pool: Pool) -> bool:
        """Whether the device shares a group with all devices on its counter sets; if so, it is one of them."""
        groups = self._node.candidates[index].groups
        for place, (name, own) in enumerate(groups):
            if (pool, name) not in self._groups:
                self._groups[pool, name] = [self._node.groups_in_use(pool, self._allocated).get(name)]
            common = self._groups[pool, name][-1]
            if common is not None and not common & own:
                self._leave_groups(groups[:place], pool)
                return False
            self._groups[pool, name].append(own if common is None else common & own)
        return True

    def _leave_groups(self, groups: Sequence[tuple[str, frozenset[str]]], pool: Pool) -> None:
        for name, _ in groups:
            self._groups[pool, name].pop()

    def _below(self, current: Request, index: int, slot: int, *, first: int) -> int:
        """Go on behind a pick. What is read of the picked device further down is our own mark, not the outside's."""
        (request, sub), chosen = current.index, current.parent is not None
        if self._memory is None:
            return self._visit(current.claim, request, sub, slot, in_alternative=chosen, first=first)
        outer_any, outer_claim = self._read_any, self._read_claim
        self._read_any, self._read_claim = 0, [0] * len(outer_claim)
        outcome = self._visit(current.claim, request, sub, slot, in_alternative=chosen, first=first)
        own = ~(1 << index)
        # A shareable device is not marked as taken: a mark that is read further down belongs to the caller.
        if not (self._node.candidates[index].multi and self._rules.consumable_capacity):
            self._read_any &= own
            self._read_claim[current.claim] &= own
        self._read_any |= outer_any
        self._read_claim = [one | other for one, other in zip(self._read_claim, outer_claim, strict=True)]
        return outcome

    def _remembered(self, current: Request, slot: int, first: int) -> int:
        """What became of this place before, if nothing that mattered has changed since; else explore and remember.

        Only failures are kept: the first success ends the search.
        """
        assert self._memory is not None
        key = (
            current.claim,
            current.index,
            slot,
            first,
            len(self.picks[current.claim]),  # decides when MAX_RESULTS cuts
            self._situation(current.claim),
        )
        shapes = self._memory.setdefault(key, {})
        for shape, known in shapes.items():  # few: a place nearly always reads the same marks
            found = known.get(self._seen(shape))
            if found is not None:
                return self._recall(current.claim, shape, found)
        self._places += 1
        if self._places > self._limits.places:
            raise SearchTooLong
        outer_any, outer_claim, before = self._read_any, self._read_claim, self.steps
        self._read_any, self._read_claim = 0, [0] * len(outer_claim)
        marks = (self._any, tuple(self._taken))
        outcome = self._slot(current, slot, first)
        if outcome != DONE:
            shape = (self._read_any, tuple(self._read_claim))
            after = [constraint.state() for constraint in self._constraints[current.claim]]
            shapes.setdefault(shape, {})[_masked(shape, *marks)] = (outcome, self.steps - before, after)
        self._read_any |= outer_any
        self._read_claim = [one | other for one, other in zip(self._read_claim, outer_claim, strict=True)]
        return outcome

    def _recall(self, claim: int, shape: Any, found: tuple[int, int, Any]) -> int:
        """Count the steps of a remembered place; its callers have read what this place read."""
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
        """Everything but the taken marks that the rest of the search depends on.

        Constraints of this claim only: those of earlier claims are never asked again, those of later ones are empty.
        """
        constraints = tuple(constraint.state() for constraint in self._constraints[claim])
        counters = tuple(
            (pool.id, tuple(sorted((key, amount) for key, amount in used.items() if amount)))
            for pool, used in self._counters.items()
        )
        groups = tuple((pool.id, name, common[-1]) for (pool, name), common in self._groups.items() if len(common) > 1)
        shares = tuple(sorted((index, tuple(sorted(used.items()))) for index, used in self._capacity.items()))
        return constraints, counters, groups, shares


def _masked(shape: Any, any_taken: int, taken: Sequence[int]) -> Hashable:
    read_any, read_claim = shape
    return any_taken & read_any, tuple(mask & read for mask, read in zip(taken, read_claim, strict=True))
