"""The first pod's part: bring pairs together round by round, look twice at what seems slow, and gather it all.

A slow measurement is no verdict: it is repeated when nothing else runs, and the better one counts. Where two pods leave
open which end is slow and rails do meet, each end is tried with a card of another rail.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import msgspec

from dranet.pairing.blame import blame, slow, tcp
from dranet.pairing.facts import named_apart, on_rails
from dranet.pairing.meeting import Guest
from dranet.pairing.rounds import rounds
from dranet.pairing.values import Card, End, Lane, Outcome, Path, Seen, Total
from dranet.pairing.wire import Lost
from dranet.topology.bandwidth_parameters import parameters


class Conductor:
    """One check from the first round to the last."""

    def __init__(self, guests: list[Guest], *, seconds: float, streams: int, below: float, wanted_rounds: int) -> None:
        self._guests, self._seconds, self._streams, self._below = guests, seconds, streams, below
        members, self._paired_by = on_rails(named_apart([guest.member for guest in guests]))
        for guest, member in zip(guests, members, strict=True):
            guest.member = member
        self._rounds = rounds(len(guests), wanted_rounds)
        self._paths: list[Path] = []
        self._totals: list[Total] = []
        self._notes: list[str] = []

    def conduct(self) -> Outcome:
        for number, pairs in enumerate(self._rounds, 1):
            with ThreadPoolExecutor(len(pairs)) as pool:
                for done in [pool.submit(self._meet, number, *pair) for pair in pairs]:
                    done.result()
        self._second_look()
        lost = [guest for guest in self._guests if guest.lost]
        gone = {guest.member.node for guest in lost}
        return Outcome(
            members=tuple(guest.member for guest in self._guests),
            paths=tuple(p for p in self._paths if not {p.source.node, p.target.node} & gone),
            totals=tuple(self._totals),
            absent=tuple(f"{guest.member.node} was lost: {guest.lost}" for guest in lost),
            notes=(f"cards are paired by {self._paired_by}", *dict.fromkeys(self._notes)),
        )

    def _meet(self, number: int, one: int, other: int) -> None:
        a, b = self._guests[one], self._guests[other]
        if a.lost or b.lost:
            return
        for near, far in ((a, b), (b, a)):
            try:
                self._measure(number, near, far)
            except Lost:
                return  # which of the two it was stands at the guest

    def _measure(self, number: int, near: Guest, far: Guest) -> None:
        lanes = self._lanes(near, far)
        found = dict(zip(lanes, self._ask(near, "reach", lanes), strict=True))
        reached = [lane for lane in lanes if found[lane].reached]
        for do in ("look", "send"):
            for lane, seen in zip(reached, self._ask(near, do, reached), strict=True):
                found[lane] = merged(found[lane], seen)
        together = self._ask(near, "send-together", reached)
        self._totals.append(Total(near.member.node, far.member.node, round(sum(s.gbits or 0 for s in together), 3)))
        for lane in self._rdma_lanes(near, far, reached):
            self._ask(far, "rdma-serve", [Lane(lane.target, lane.card)])
            found[lane] = merged(found[lane], self._ask(near, "rdma-send", [lane])[0])
        self._paths += [path_of(near, far, lane, seen, number) for lane, seen in found.items()]
        self._cross(number, near, far, [lane.card for lane in lanes if not found[lane].reached])

    def _cross(self, number: int, near: Guest, far: Guest, silent: list[Card]) -> None:
        """Cards that reach nobody on their rail try every other one: a swapped cable shows."""
        lanes = [Lane(card, other) for card in silent for other in far.member.cards if other.rail != card.rail]
        seen = zip(lanes, self._ask(near, "reach", lanes), strict=True)
        self._paths += [path_of(near, far, lane, one, number, crossing=True) for lane, one in seen if one.reached]

    def _lanes(self, near: Guest, far: Guest) -> list[Lane]:
        there = {card.rail: card for card in far.member.cards}
        for card in near.member.cards:
            if card.rail not in there:
                self._notes.append(f"card {card.name} on {near.member.node} has no partner on {far.member.node}")
        return [Lane(card, there[card.rail]) for card in near.member.cards if card.rail in there]

    def _rdma_lanes(self, near: Guest, far: Guest, lanes: list[Lane]) -> list[Lane]:
        able = [lane for lane in lanes if lane.card.rdma and lane.target.rdma]
        without = [guest.member.node for guest in (near, far) if not guest.member.perftest]
        if able and without:
            self._notes.append(f"RDMA is not measured: no ib_write_bw in the image on {', '.join(without)}")
        elif not able:
            self._notes.append("RDMA is not measured: no two cards of a rail have RDMA devices and addresses")
        return [] if without else able

    def _ask(self, guest: Guest, do: str, lanes: list[Lane]) -> list[Seen]:
        return guest.ask(do, lanes, self._seconds, self._streams)

    def _second_look(self) -> None:
        """Alone this time; then, where both ends are open to blame, each with another card."""
        for path in self._slow():
            self._again(path)
        suspects = {(p.source, p.target) for p in self._slow()}
        for ends, paths in blame(self._paths, lambda p: (p.source, p.target) in suspects).items():
            if len(ends) == 2:
                for path in paths:
                    self._try_others(path, {p.rail for p in self._paths if (p.source, p.target) in suspects})

    def _slow(self) -> list[Path]:
        """Without those whose packets are too large for the way: that is why they are slow."""
        return [p for p in slow(self._paths, tcp, self._below) if p.seen.path_mtu is None or p.seen.path_mtu >= p.mtu]

    def _again(self, path: Path) -> None:
        near, lane = self._lane(path.source, path.target)
        with contextlib.suppress(Lost):
            (seen,) = self._ask(near, "send", [lane])
            if (seen.gbits or 0) > (path.seen.gbits or 0):
                better = msgspec.structs.replace(path, seen=merged(path.seen, seen))
                self._paths[self._paths.index(path)] = better

    def _try_others(self, path: Path, slow_rails: set[str]) -> None:
        """The sender to another card over there, and another card here to the receiver."""
        near, lane = self._lane(path.source, path.target)
        far = self._guest(path.target.node)
        there = next((card for card in far.member.cards if card.rail not in slow_rails), None)
        here = next((card for card in near.member.cards if card.rail not in slow_rails), None)
        if there is None or here is None:
            return
        trials = [Lane(lane.card, there), Lane(here, lane.target)]
        with contextlib.suppress(Lost):
            answers = zip(trials, self._ask(near, "reach", trials), strict=True)
            reached = [trial for trial, seen in answers if seen.reached]
            for trial, seen in zip(reached, self._ask(near, "send", reached), strict=True):
                self._paths.append(path_of(near, far, trial, seen, 0, crossing=True))

    def _guest(self, node: str) -> Guest:
        return next(guest for guest in self._guests if guest.member.node == node)

    def _lane(self, source: End, target: End) -> tuple[Guest, Lane]:
        near, far = self._guest(source.node), self._guest(target.node)
        card = next(card for card in near.member.cards if card.name == source.card)
        return near, Lane(card, next(other for other in far.member.cards if other.name == target.card))


def merged(one: Seen, more: Seen) -> Seen:
    """What was measured later added to what was known; that a lane answers once is enough for `reached`."""
    empty = Seen(False)
    fields = {name: getattr(more, name) for name in Seen.__struct_fields__ if name != "reached"}
    new = {name: value for name, value in fields.items() if value != getattr(empty, name)}
    return msgspec.structs.replace(one, **new)


def path_of(near: Guest, far: Guest, lane: Lane, seen: Seen, number: int, *, crossing: bool = False) -> Path:
    speeds = [card.gbits for card in (lane.card, lane.target)]
    known = [speed for speed in speeds if speed is not None]
    return Path(
        source=End(near.member.node, lane.card.name),
        target=End(far.member.node, lane.target.name),
        rail=lane.card.rail,
        mtu=lane.card.mtu,
        seen=seen,
        round=number,
        expected=round(min(known) * parameters().network_efficiency, 3) if known else None,
        crossing=crossing,
    )
