"""Runs with their verdicts as text, JSON and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dranet.advise.report import chart
from dranet.advise.report.runs import Rate, Row
from dranet.advise.report.verdict import ALLOCATION, GOOD, NO_FIGURES, Judged


def to_json(judged: Sequence[Judged]) -> dict[str, Any]:
    """Bandwidths in GB/s; those of a row are out of place, with ``in_place`` next to them."""
    return {"runs": [_run(one) for one in judged]}


def to_svg(judged: Sequence[Judged]) -> str:
    """All runs with rows in one picture."""
    return chart.to_svg(
        [(f"{title(one)}: {one.verdict}", one.run.rows, _expected(one)) for one in judged if one.run.rows]
    )


def to_text(judged: Sequence[Judged]) -> str:
    """Verdict, reasons, figures and plot of every run; several runs first side by side."""
    side_by_side = ["\n".join(_side_by_side(judged))] if len(judged) > 1 else []
    return "\n\n".join([*side_by_side, *("\n".join(_lines(one)) for one in judged)])


def _side_by_side(judged: Sequence[Judged]) -> list[str]:
    rows = [("run", "peak GB/s", "at", "average", "expected", "verdict"), *map(_cells, judged)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cells(one: Judged) -> tuple[str, ...]:
    peak, average = one.run.peak, one.run.average
    expected = f"{one.expected.allocated.low:.1f} to {one.expected.allocated.high:.1f}" if one.expected else "unknown"
    return (
        title(one),
        f"{peak[0]:.2f}" if peak else "-",
        chart.size_text(peak[1]) if peak else "-",
        f"{average:.2f}" if average is not None else "-",
        expected,
        one.verdict,
    )


def title(one: Judged) -> str:
    """``all_reduce, 2 ranks on 2 hosts``."""
    run = one.run
    where = f" on {len(run.hosts)} host{'s' * (len(run.hosts) != 1)}" if run.hosts else ""
    ranks = f"{run.world} rank{'s' * (run.world != 1)}{where}" if run.world else ""
    return ", ".join(filter(None, (run.title, run.collective or "a job", ranks)))


def _run(one: Judged) -> dict[str, Any]:
    run = one.run
    peak = run.peak[0] if run.peak else run.average if run.large_messages else None
    return {
        "collective": run.collective,
        "ranks": run.world,
        "rows": [_row(row) for row in run.rows],
        "avg_busbw": _rounded(run.average),
        "peak_busbw": _rounded(peak),
        "expected": _figures(one),
        "verdict": one.verdict,
        "reasons": list(one.reasons),
    }


def _figures(one: Judged) -> dict[str, Any] | None:
    """GB/s for large messages, and the figure of the comparison."""
    if one.expected is None:
        return None
    found, compared = one.expected.allocated, one.comparison
    return {
        "gbytes_per_second": _rounded(found.gbytes),
        "low": _rounded(found.low),
        "high": _rounded(found.high),
        "best": _rounded(one.expected.best.gbytes),
        "algorithm": found.algorithm,
        "limited_by": found.bound,
        "compared": None
        if compared is None
        else {
            "what": compared.what,
            "measured": _rounded(compared.measured),
            "expected": _rounded(compared.allocated),
            "best": _rounded(compared.best),
        },
    }


def _row(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {"size": row.size, **_rate(row.out_of_place)}
    if row.in_place:
        found["in_place"] = _rate(row.in_place)
    return found


def _rate(rate: Rate) -> dict[str, float]:
    return {"algbw": round(rate.algbw, 4), "busbw": round(rate.busbw, 4)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _expected(one: Judged) -> float | None:
    return one.expected.allocated.gbytes if one.expected else None


def _lines(one: Judged) -> list[str]:
    run = one.run
    lines = [f"{title(one)}: {one.verdict}{_share(one)}"]
    lines += [f"             {n}. {reason}" for n, reason in enumerate(one.reasons, 1)]
    if machines := sorted({pod.machine.shape for pod in one.pods if pod.machine.shape}):
        lines.append(f"  machine    {', '.join(machines)}")
    if run.rows:
        lines.append(f"  sizes      {chart.size_text(run.rows[0].size)} to {chart.size_text(run.rows[-1].size)}")
    if run.peak:
        lines.append(f"  peak       {run.peak[0]:.2f} GB/s at {chart.size_text(run.peak[1])}")
    if run.average is not None:
        lines.append(f"  average    {run.average:.2f} GB/s")
    lines += _expectation(one)
    if one.verdict == NO_FIGURES:
        lines += _evidence(one)
    if plot := chart.to_text(run.rows, _expected(one)):
        lines += ["", "bus bandwidth, GB/s, out of place" + ("; dotted: expected" if one.expected else ""), plot]
    return lines


def _expectation(one: Judged) -> list[str]:
    if one.expected is None:
        return []
    found, best = one.expected.allocated, one.expected.best
    given = f"{found.gbytes:.1f} GB/s for large messages ({found.algorithm}, {found.low:.0f} to {found.high:.0f})"
    if not one.expected.nics_known:
        given += ", if every GPU has a near NIC (the NICs are unknown)"
    elif best.gbytes > found.gbytes * 1.01:
        given += f" with these devices, {best.gbytes:.1f} with as many aligned ones"
    return [f"  expected   {given}"]


def _share(one: Judged) -> str:
    """The share with both of its figures, so that a reader can check it."""
    compared = one.comparison
    if compared is None:
        return ""
    against = compared.best if one.verdict in {ALLOCATION, GOOD} else compared.allocated
    of = "that aligned devices reach" if one.verdict == ALLOCATION else "expected"
    share = f"{compared.measured / against:.0%} of the {against:.1f} {of}"
    return f": {compared.measured:.1f} GB/s {compared.what}, {share}"


def _evidence(one: Judged) -> list[str]:
    """Evidence of a log without figures."""
    evidence, lines = one.run.evidence, []
    if evidence.networks:
        lines.append(f"  network    {', '.join(evidence.networks)}")
    if evidence.direct:
        lines.append(f"  GPUDirect  used: {evidence.direct[-1]}")
    return lines
