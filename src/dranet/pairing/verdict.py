"""What is wrong, in words, from what was measured. Pure.

One path is counted once, under the first that explains the rest: a rail that does not answer has no throughput, and
packets that are too large for a path stall TCP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dranet.pairing.blame import Culprits, blame, rdma, share, slow, tcp, usual
from dranet.pairing.values import End, Outcome, Path

MOST_LOST = 0.02
"""Datagrams on an idle path: one of fifty may be an accident."""


class Finding(msgspec.Struct, frozen=True):
    """One thing wrong, with the cards that may be to blame."""

    kind: str
    cards: tuple[End, ...]
    words: str


def findings(outcome: Outcome, below: float) -> list[Finding]:
    """Everything wrong, by kind and card."""
    found = [Finding("absent", (), words) for words in outcome.absent]
    left = list(outcome.paths)
    kinds: tuple[tuple[str, Callable[[Path], bool], Callable[[tuple[End, ...], list[Path]], str]], ...] = (
        ("unreachable", lambda p: not p.seen.reached, lambda ends, bad: _unreachable(ends, bad, outcome.paths)),
        ("path-mtu", _narrow, _path_mtu),
        ("failed", lambda p: bool(p.seen.trouble), _failed),
        ("slow", _slow(outcome.paths, tcp, below), lambda ends, bad: _slowly(ends, bad, outcome.paths, tcp, "")),
        ("rdma-slow", _slow(outcome.paths, rdma, below), lambda e, bad: _slowly(e, bad, outcome.paths, rdma, "RDMA ")),
        ("loss", lambda p: p.seen.lost > MOST_LOST * p.seen.sent, _lossy),
    )
    for kind, bad, words in kinds:
        culprits = blame(left, bad)
        found += _described(kind, culprits, words)
        explained = {(p.source, p.target) for paths in culprits.values() for p in paths}
        left = [p for p in left if (p.source, p.target) not in explained]
    return found


def _described(kind: str, culprits: Culprits, words: Callable[[tuple[End, ...], list[Path]], str]) -> list[Finding]:
    return [Finding(kind, ends, words(ends, culprits[ends]) + _which(ends)) for ends in sorted(culprits)]


def _which(ends: tuple[End, ...]) -> str:
    return "" if len(ends) == 1 else "; which of the two cannot be told from this run, more pods or rounds would tell"


def _narrow(path: Path) -> bool:
    return path.seen.path_mtu is not None and path.seen.path_mtu < path.mtu


def _slow(paths: Sequence[Path], rate: Callable[[Path], float | None], below: float) -> Callable[[Path], bool]:
    bad = {(p.source, p.target) for p in slow(paths, rate, below)}
    return lambda path: (path.source, path.target) in bad


def _who(ends: tuple[End, ...]) -> str:
    if len(ends) == 1:
        return str(ends[0])
    one, other = ends
    if one.card == other.card:
        return f"card {one.card} on {one.node} or {other.node}"
    return f"{one} or {other}"


def _unreachable(ends: tuple[End, ...], bad: list[Path], paths: Sequence[Path]) -> str:
    lanes = ", ".join(f"{p.source.node} to {p.target.node}" for p in bad)
    said = f"{_who(ends)} does not get through on its rail ({lanes}): {bad[0].seen.trouble}"
    stray = [p for p in paths if p.crossing and p.seen.reached and p.source in {b.source for b in bad}]
    if stray:
        said += f"; but {stray[0].target} answers {stray[0].source}: are cables swapped?"
    return said


def _failed(ends: tuple[End, ...], bad: list[Path]) -> str:
    lanes = ", ".join(f"{p.source.node} to {p.target.node}" for p in bad)
    return f"{_who(ends)} answers, but cannot be measured ({lanes}): {bad[0].seen.trouble}"


def _path_mtu(ends: tuple[End, ...], bad: list[Path]) -> str:
    path = min(bad, key=lambda p: p.seen.path_mtu or 0)
    lanes = ", ".join(f"{p.source.node} to {p.target.node}" for p in bad)
    return (
        f"{_who(ends)} has MTU {path.mtu}, but packets of more than {path.seen.path_mtu} bytes are lost without a word "
        f"({lanes}): give the cards this MTU, or the switches a larger one"
    )


def _slowly(
    ends: tuple[End, ...],
    bad: list[Path],
    paths: Sequence[Path],
    rate: Callable[[Path], float | None],
    kind: str,
) -> str:
    medians = usual(paths, rate)
    worst = min(bad, key=lambda p: share(p, rate, medians) or 0.0)
    lanes = ", ".join(f"{p.source.node} to {p.target.node} {rate(p):.2f}" for p in bad)
    part = 100 * (share(worst, rate, medians) or 0.0)
    return (
        f"{_who(ends)} gives {part:.0f} % of its siblings "
        f"({kind}{lanes} Gbit/s, siblings {medians[worst.expected]:.2f} Gbit/s)"
    )


def _lossy(ends: tuple[End, ...], bad: list[Path]) -> str:
    lanes = ", ".join(f"{p.source.node} to {p.target.node} {p.seen.lost} of {p.seen.sent}" for p in bad)
    return f"{_who(ends)} loses packets on an idle path ({lanes})"
