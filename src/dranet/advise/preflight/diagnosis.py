"""Which NIC is at fault, from the measurements, and the report as a table and as JSON.

A bad path has two ends. An end that works with another partner is not at fault. If both ends remain, as with two pods
and isolated rails, both are named.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

import msgspec

from dranet.advise.preflight.model import Endpoint, Measurements, Path

_ACCEPTED_LOSS = 0.02
"""Share of datagrams on an idle path: one of fifty may be chance."""

Faults = dict[tuple[Endpoint, ...], list[Path]]
"""By the NIC at fault, or the two of which one is at fault: the bad paths."""
Ends = tuple[Endpoint, ...]
Rate = Callable[[Path], float | None]


def attribute_faults(paths: Sequence[Path], is_bad: Callable[[Path], bool]) -> Faults:
    """Assign every bad path to one NIC, or to two if both may be at fault."""
    suspects = [path for path in paths if is_bad(path) and not path.cross_rail]
    good = [path for path in paths if not is_bad(path) and _is_evidence(path)]
    sends_well, receives_well = {path.source for path in good}, {path.target for path in good}
    certain: Faults = {}
    uncertain = []
    for path in suspects:
        ends = _possible_ends(path, sends_well, receives_well)
        if len(ends) == 1:
            certain.setdefault(ends, []).append(path)
        else:
            uncertain.append(path)
    at_fault = {end for (end,) in certain}
    found = dict(certain)
    for path in uncertain:
        known = [end for end in (path.source, path.target) if end in at_fault]
        key = (known[0],) if known else tuple(sorted((path.source, path.target)))
        found.setdefault(key, []).append(path)
    return found


def _is_evidence(path: Path) -> bool:
    """A reply from another rail proves nothing about a NIC; throughput to another rail does."""
    return path.result.reached and (not path.cross_rail or path.result.gbits is not None)


def _possible_ends(path: Path, sends_well: set[Endpoint], receives_well: set[Endpoint]) -> Ends:
    source_is_well, target_is_well = path.source in sends_well, path.target in receives_well
    if source_is_well == target_is_well:
        return (path.source, path.target)
    return (path.target,) if source_is_well else (path.source,)


def tcp_rate(path: Path) -> float | None:
    return path.result.gbits


def rdma_rate(path: Path) -> float | None:
    return path.result.rdma_gbits


def _medians(paths: Iterable[Path], rate: Rate) -> dict[float | None, float]:
    """The median rate by expected rate, so that NICs are compared with equally fast ones."""
    found: dict[float | None, list[float]] = {}
    for path in paths:
        if not path.cross_rail and (value := rate(path)) is not None:
            found.setdefault(path.expected, []).append(value)
    return {expected: statistics.median(values) for expected, values in found.items()}


def _share(path: Path, rate: Rate, medians: dict[float | None, float]) -> float | None:
    value, median = rate(path), medians.get(path.expected)
    return value / median if value is not None and median else None


def slow_paths(paths: Sequence[Path], rate: Rate, below: float) -> list[Path]:
    """Paths whose rate is below this share of the median of comparable NICs."""
    medians = _medians(paths, rate)
    return [p for p in paths if (share := _share(p, rate, medians)) is not None and share < below]


class Finding(msgspec.Struct, frozen=True):
    """One fault, with the NIC at fault or the NICs of which one is."""

    kind: str
    nics: Ends
    message: str


class _Check(msgspec.Struct, frozen=True):
    kind: str
    is_bad: Callable[[Path], bool]
    describe: Callable[[Ends, list[Path]], str]


def findings(measured: Measurements, slow_below: float) -> list[Finding]:
    """All faults. A path counts for the first check that it fails, because that usually explains the others."""
    paths = measured.paths
    found = [Finding("absent", (), message) for message in measured.missing]
    left = list(paths)
    for check in (
        _Check("unreachable", lambda p: not p.result.reached, lambda ends, bad: _unreachable(ends, bad, paths)),
        _Check("path-mtu", lambda p: p.result.path_mtu is not None and p.result.path_mtu < p.mtu, _path_mtu),
        _Check("failed", lambda p: bool(p.result.error), _failed),
        _rate_check("slow", paths, tcp_rate, slow_below, "TCP"),
        _rate_check("rdma-slow", paths, rdma_rate, slow_below, "RDMA"),
        _Check("loss", lambda p: p.result.lost > _ACCEPTED_LOSS * p.result.sent, _loss),
    ):
        faults = attribute_faults(left, check.is_bad)
        for ends in sorted(faults):
            message = check.describe(ends, faults[ends])
            if len(ends) > 1:
                message += "; this run cannot tell which of the two, repeat it with more pods or rounds"
            found.append(Finding(check.kind, ends, message))
        explained = {(p.source, p.target) for bad in faults.values() for p in bad}
        left = [p for p in left if (p.source, p.target) not in explained]
    return found


def _rate_check(kind: str, paths: Sequence[Path], rate: Rate, below: float, protocol: str) -> _Check:
    slow = {(p.source, p.target) for p in slow_paths(paths, rate, below)}
    medians = _medians(paths, rate)

    def describe(ends: Ends, bad: list[Path]) -> str:
        worst = min(bad, key=lambda p: _share(p, rate, medians) or 0.0)
        rates = ", ".join(f"{_direction(p)} {rate(p):.2f}" for p in bad)
        percent = 100 * (_share(worst, rate, medians) or 0.0)
        return (
            f"{_names(ends)} reaches {percent:.0f} % of the median of comparable NICs "
            f"({protocol} {rates} Gbit/s, median {medians[worst.expected]:.2f} Gbit/s)"
        )

    return _Check(kind, lambda path: (path.source, path.target) in slow, describe)


def _names(ends: Ends) -> str:
    if len(ends) == 1:
        return str(ends[0])
    one, other = ends
    if one.nic == other.nic:
        return f"NIC {one.nic} on {one.node} or {other.node}"
    return f"{one} or {other}"


def _direction(path: Path) -> str:
    return f"{path.source.node} to {path.target.node}"


def _directions(paths: list[Path]) -> str:
    return ", ".join(map(_direction, paths))


def _unreachable(ends: Ends, bad: list[Path], paths: Sequence[Path]) -> str:
    message = f"{_names(ends)} cannot be reached on its rail ({_directions(bad)}): {bad[0].result.error}"
    other = [p for p in paths if p.cross_rail and p.result.reached and p.source in {b.source for b in bad}]
    if other:
        message += f"; but {other[0].source} reaches {other[0].target}: check for swapped cables"
    return message


def _failed(ends: Ends, bad: list[Path]) -> str:
    return f"{_names(ends)} is reachable but cannot be measured ({_directions(bad)}): {bad[0].result.error}"


def _path_mtu(ends: Ends, bad: list[Path]) -> str:
    path = min(bad, key=lambda p: p.result.path_mtu or 0)
    return (
        f"{_names(ends)} has MTU {path.mtu}, but packets larger than {path.result.path_mtu} bytes are dropped "
        f"({_directions(bad)}): set this MTU on the NICs, or a larger one on the switches"
    )


def _loss(ends: Ends, bad: list[Path]) -> str:
    counts = ", ".join(f"{_direction(p)} {p.result.lost} of {p.result.sent}" for p in bad)
    return f"{_names(ends)} loses packets on an idle path ({counts})"


_HEADINGS = ("RAIL", "FROM", "TO", "MTU", "RTT us", "LOST", "TCP Gbit/s", "RDMA Gbit/s", "PLAN Gbit/s", "OF PLAN")


def to_table(measured: Measurements, found: Sequence[Finding], seconds: float) -> str:
    """A line a path, totals, notes, faults, and a summary."""
    rows = [_HEADINGS, *(_row(path) for path in measured.paths if not path.cross_rail)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [f"all NICs at once, {t.source} to {t.target}: {t.gbits:.2f} Gbit/s TCP" for t in measured.totals]
    lines += [f"note: {note}" for note in measured.notes]
    lines += [f"fault: {finding.message}" for finding in found]
    faults = f"{len(found)} {'fault' if len(found) == 1 else 'faults'}" if found else "no fault"
    nics = sum(len(member.nics) for member in measured.members)
    lines.append(f"{faults}: {len(measured.members)} pods, {nics} NICs, {seconds:.1f} s")
    return "\n".join(lines)


def to_json(measured: Measurements, found: Sequence[Finding], seconds: float) -> str:
    """One object on one line."""
    summary = {"healthy": not found, "seconds": round(seconds, 1), "findings": list(found)}
    return msgspec.json.encode({**summary, **msgspec.to_builtins(measured)}).decode()


def _row(path: Path) -> tuple[str, ...]:
    result = path.result
    ends = (f"{path.source.node} {path.source.nic}", f"{path.target.node} {path.target.nic}")
    if not result.reached:
        return (path.rail, *ends, "-", "-", "-", result.error, "-", "-", "-")
    best = result.rdma_gbits if result.rdma_gbits is not None else result.gbits
    percent = f"{100 * best / path.expected:.0f} %" if best is not None and path.expected else "-"
    return (
        *(path.rail, *ends, _number(result.path_mtu, 0), _number(result.rtt_us, 0), f"{result.lost}/{result.sent}"),
        *(_number(result.gbits), _number(result.rdma_gbits), _number(path.expected), percent),
    )


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
