"""The result as a table for people and as one JSON object for programs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dranet.pairing.values import Outcome, Path
from dranet.pairing.verdict import Finding

_HEAD = ("RAIL", "FROM", "TO", "MTU", "RTT us", "LOST", "TCP Gbit/s", "RDMA Gbit/s", "PLAN Gbit/s", "OF PLAN")


def as_table(outcome: Outcome, found: Sequence[Finding], seconds: float) -> str:
    """A line a path, sums, notes, and last the verdict."""
    rows = [_HEAD, *(_row(path) for path in outcome.paths if not path.crossing)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [f"all cards at once, {t.source} to {t.target}: {t.gbits:.2f} Gbit/s TCP" for t in outcome.totals]
    lines += [f"note: {note}" for note in outcome.notes]
    lines += [f"fault: {finding.words}" for finding in found]
    cards = sum(len(member.cards) for member in outcome.members)
    lines.append(f"{_summary(found)}: {len(outcome.members)} pods, {cards} cards, {seconds:.1f} s")
    return "\n".join(lines)


def as_json(outcome: Outcome, found: Sequence[Finding], seconds: float) -> str:
    """All of it in one line."""
    whole = {"healthy": not found, "seconds": round(seconds, 1), "findings": list(found)}
    return msgspec.json.encode({**whole, **msgspec.to_builtins(outcome)}).decode()


def _summary(found: Sequence[Finding]) -> str:
    return f"{len(found)} {'fault' if len(found) == 1 else 'faults'}" if found else "no fault"


def _row(path: Path) -> tuple[str, ...]:
    seen, ends = path.seen, (f"{path.source.node} {path.source.card}", f"{path.target.node} {path.target.card}")
    if not seen.reached:
        return (path.rail, *ends, "-", "-", "-", seen.trouble, "-", "-", "-")
    best = seen.rdma_gbits if seen.rdma_gbits is not None else seen.gbits
    part = f"{100 * best / path.expected:.0f} %" if best is not None and path.expected else "-"
    return (
        *(path.rail, *ends, _number(seen.path_mtu, 0), _number(seen.rtt_us, 0), f"{seen.lost}/{seen.sent}"),
        *(_number(seen.gbits), _number(seen.rdma_gbits), _number(path.expected), part),
    )


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
