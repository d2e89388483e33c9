"""How far the bandwidth model is from published results, and the fit of its parameters.

python -m bench.bandwidth          every row: the model's figure, its error, and its error when its machine is left out
python -m bench.bandwidth --fit    the parameters that fit the rows best, next to those of bandwidth.toml
python -m bench.bandwidth --write  the table into docs/evidence/bandwidth.md
python -m bench bandwidth          the rows as JSON

"Left out" means that no row of the same kind of machine takes part in the fit, and that parameters of a fabric which
only this machine has, and what its shape records as measured, are those of an unknown machine.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from dranet.machines.alignment import Alignment, Pair, align
from dranet.machines.bandwidth import Estimate, JobPod, NoEstimate, estimate, sweep_average
from dranet.machines.bandwidth_parameters import Parameters, parameters
from dranet.machines.distance import Distance, Position
from dranet.machines.machine import Machine, MachineDevice, machine_of_shape
from dranet.machines.shape import load_shape

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "evidence" / "bandwidth.md"
STEPS = (0.02, 0.005)
FITTED = (
    "network_efficiency",
    "staged_gbytes",
    "staged_c2c_share",
    "ring_share",
    "nvls_share",
    "tree_share",
    "xgmi_share",
    "pcie_exchange_gbytes",
    "domain_gbytes",
    "fabrics.gce-roce",
    "fabrics.tcpx",
)
"""Parameters of bandwidth.toml; of a fabric it is `several_gpus`."""


@dataclass(frozen=True, slots=True)
class Row:
    """One published figure and how the model gets at it."""

    name: str
    group: str
    what: str
    gbytes: float
    found: Callable[[Parameters, bool], tuple[float, Estimate]]
    """The figure, and an estimate with its limit; the flag leaves out what the machine's shape records as measured."""
    fabric: str = ""
    unexplained: str = ""

    def expected(self, p: Parameters) -> float:
        """The model's figure."""
        return self.found(p, False)[0]

    def error(self, p: Parameters) -> float:
        """Of the model against the published figure."""
        return self.expected(p) / self.gbytes - 1


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row under parameters fitted on other machines."""

    row: Row
    error: float
    bound: str

    def within(self, p: Parameters) -> bool:
        """Whether the published figure is in the range that would have been printed."""
        low, high = getattr(p.spread, self.bound)
        return bool(low <= 1 / (1 + self.error) <= high)


def rows() -> list[Row]:
    """All of them: public tables first, then the users' documents."""
    tables = tomllib.loads((HERE / "collectives.toml").read_text("utf-8"))["rows"]
    documents = tomllib.loads((HERE / "published.toml").read_text("utf-8"))["rows"]
    return [*map(_of_table, tables), *map(_of_document, documents)]


def _of_table(row: dict[str, Any]) -> Row:
    algorithm, size = row.get("algorithm", ""), row.get("bytes", 8 << 30)
    nodes = row.get("domain", row["nodes"])
    members = [member for start in range(0, row["nodes"], nodes) for member in [_member(row, start)] * nodes]

    def found(p: Parameters, _: bool) -> tuple[float, Estimate]:
        one = _figure(estimate(members, row["collective"], algorithm=algorithm, size=size, p=p))
        return one.at(size), one

    what = f"{row['machine']}, {row['nodes']} x {row['gpus']} GPUs, {row['collective']}"
    unexplained = row.get("unexplained", "")
    return Row(row["id"], row["group"], what, row["gbytes"], found, row.get("fabric", ""), unexplained)


def _member(row: dict[str, Any], node: int) -> JobPod:
    """A pod of a machine that is known by numbers alone."""
    place = Position(None, None, 0)
    gpus = [MachineDevice("gpu", f"gpu-{n}", place, title=f"gpu-{n}", product=row["gpu"]) for n in range(row["gpus"])]
    nics = [_nic(row, n) for n in range(row.get("nics", 0))]
    apart = Distance.SYS if row.get("far") else Distance.PIX
    share = max(len(gpus), len(nics))
    pairs = (
        [Pair(gpus[n * len(gpus) // share], nics[n * len(nics) // share], apart) for n in range(share)] if nics else []
    )
    domain = f"domain-{node}" if row.get("domain") else ""
    return JobPod(tuple(gpus), Alignment(tuple(pairs)), domain=domain)


def _nic(row: dict[str, Any], number: int) -> MachineDevice:
    slot, port = divmod(number, row.get("ports", 1))
    return MachineDevice(
        "dra.net",
        f"nic-{number}",
        Position(None, None, number * row.get("sockets", 1) // row["nics"]),
        f"0000:{slot + 1:02x}:00.{port}",
        f"nic-{number}",
        line_gbytes=row["line_gbit"] / 8,
        network=row["fabric"],
    )


def _of_document(row: dict[str, Any]) -> Row:
    """A row of a users' document: its pods on a shape. Where any GPU was possible, the mean over all of them."""
    machine = machine_of_shape(load_shape(row["shape"]), "node")
    unmeasured = msgspec.structs.replace(
        machine, nics=tuple(msgspec.structs.replace(nic, staged_gbytes=0.0) for nic in machine.nics)
    )
    made = [[_choices(one, pod) for pod in row["pods"]] for one in (machine, unmeasured)]

    def found(p: Parameters, blind: bool) -> tuple[float, Estimate]:
        sets = made[blind]
        chosen = [
            (members, math.prod(often)) for members, often in (zip(*c, strict=True) for c in itertools.product(*sets))
        ]
        all_found = [_figure(estimate(members, row["collective"], p=p)) for members, _ in chosen]
        average = row["figure"] == "average"
        figures = [sweep_average(one) if average else one.gbytes for one in all_found]
        return statistics.fmean(figures, [often for _, often in chosen]), all_found[0]

    name = row["document"] if "arXiv" in row["document"] else f"document {row['document']}"
    return Row(name, row["shape"], row["what"], row["gbytes"], found, machine.nics[0].network)


def _choices(machine: Machine, pod: dict[str, Any]) -> list[tuple[JobPod, int]]:
    """The possible pods, and how many choices of a GPU are like each."""
    nics = [machine.nics[i] for i in pod["nics"]]
    sets = [(gpu,) for gpu in machine.gpus] if pod.get("any_gpu") else [tuple(machine.gpus[i] for i in pod["gpus"])]
    found: dict[Distance, list[JobPod]] = {}
    for gpus in sets:
        made = JobPod(gpus, align(gpus, nics))
        found.setdefault(made.alignment.worst, []).append(made)
    return [(pods[0], len(pods)) for pods in found.values()]


def _figure(found: Estimate | NoEstimate) -> Estimate:
    if isinstance(found, NoEstimate):
        raise ValueError(f"a published row without a figure: {found.reason}")
    return found


def fit(used: Iterable[Row], names: Iterable[str] = FITTED, start: Parameters | None = None) -> Parameters:
    """The parameters with the least sum of absolute logarithms of errors: each in turn, in ever smaller steps.

    Absolute values, not squares: one machine with an old NCCL must not move the figures of all others."""
    found, kept = start or parameters(), [row for row in used if not row.unexplained]
    moved_by = {name: _moved_rows(kept, name, found) for name in names}
    for step in STEPS:
        moved = True
        while moved:
            tried = [_line_search(found, name, step, moved_by[name]) for name in moved_by]
            moved = any(factor != 1 for factor in tried)
            for name, factor in zip(moved_by, tried, strict=True):
                found = _scaled(found, name, _line_search(found, name, step, moved_by[name]) if factor != 1 else 1.0)
    return found


def _line_search(p: Parameters, name: str, step: float, used: Sequence[Row]) -> float:
    """The factor that makes the errors least: none, a step up or a step down."""
    least = _loss(used, p) * (1 - 1e-6)
    return next((f for f in (1 + step, 1 / (1 + step)) if _loss(used, _scaled(p, name, f)) < least), 1.0)


def _scaled(p: Parameters, name: str, factor: float) -> Parameters:
    """With one parameter changed; `fabrics.x` is that fabric's `several_gpus`."""
    if factor == 1 or not name.startswith("fabrics."):
        return p if factor == 1 else msgspec.structs.replace(p, **{name: getattr(p, name) * factor})
    fabric = p.fabrics[name.removeprefix("fabrics.")]
    changed = msgspec.structs.replace(fabric, several_gpus=fabric.several_gpus * factor)
    return msgspec.structs.replace(p, fabrics={**p.fabrics, name.removeprefix("fabrics."): changed})


def value(p: Parameters, name: str) -> float:
    """A parameter of `FITTED`."""
    fabric = name.removeprefix("fabrics.")
    return p.fabrics[fabric].several_gpus if fabric != name else float(getattr(p, name))


def _moved_rows(used: Sequence[Row], name: str, p: Parameters) -> list[Row]:
    """Rows whose figure depends on this parameter."""
    return [row for row in used if any(row.expected(_scaled(p, name, f)) != row.expected(p) for f in (0.9, 1.1))]


def _loss(used: Sequence[Row], p: Parameters) -> float:
    return sum(abs(math.log(row.expected(p) / row.gbytes)) for row in used)


@cache
def left_out() -> list[LeftOut]:
    """Each row under parameters fitted on all machines but its own."""
    everything, best = rows(), parameters()
    moved = {name: {row.group for row in _moved_rows(everything, name, best)} for name in FITTED}
    found: dict[str, Parameters] = {}
    for group in dict.fromkeys(row.group for row in everything):
        others, start = [row for row in everything if row.group != group], _without(best, everything, group)
        known = [name for name in FITTED if group in moved[name] and len(moved[name]) > 1]
        found[group] = fit(others, known, start)
    return [_left_out(row, found[row.group]) for row in everything]


def _without(p: Parameters, everything: Sequence[Row], group: str) -> Parameters:
    """Parameters that only this group has ground for are those of an unknown machine."""
    known = {row.fabric for row in everything if row.group != group}
    return msgspec.structs.replace(p, fabrics={name: one for name, one in p.fabrics.items() if name in known})


def _left_out(row: Row, p: Parameters) -> LeftOut:
    figure, one = row.found(p, True)
    return LeftOut(row, figure / row.gbytes - 1, one.bound)


def compare() -> list[dict[str, Any]]:
    """Each row with the model's figure and its error."""
    p = parameters()
    return [_compared(row, p) for row in rows()]


def _compared(row: Row, p: Parameters) -> dict[str, Any]:
    figure, one = row.found(p, False)
    return {
        "row": row.name,
        "what": row.what,
        "algorithm": one.algorithm,
        "bound": one.bound,
        "published_gbytes": row.gbytes,
        "model_gbytes": figure,
        "error": figure / row.gbytes - 1,
        "unexplained": row.unexplained,
    }


def measure() -> dict[str, Any]:
    """All rows, and how far the model is from them."""
    found = compare()
    errors = [abs(row["error"]) for row in found if not row["unexplained"]]
    return {"median_error": statistics.median(errors), "worst_error": max(errors), "rows": found}


class Summary(msgspec.Struct, frozen=True):
    """How good the model is, over the rows that are explained."""

    rows: int
    median: float
    within_fifth: float
    """Share of rows with an error of at most 20 %."""
    left_out_median: float
    covered: float
    """Share of left-out rows inside the printed range."""


def summary() -> Summary:
    """Of all rows, fitted and left out."""
    errors = [abs(row["error"]) for row in compare() if not row["unexplained"]]
    blind = [one for one in left_out() if not one.row.unexplained]
    inside = [one.within(parameters()) for one in blind]
    return Summary(
        len(errors),
        statistics.median(errors),
        statistics.mean(error <= 0.2 for error in errors),
        statistics.median(abs(one.error) for one in blind),
        statistics.mean(inside),
    )


def table() -> str:
    """The rows as Markdown, for docs/evidence/bandwidth.md."""
    made = summary()
    lines = [
        f"Over {made.rows} rows: median error {made.median:.1%}, {made.within_fifth:.0%} within 20 %. "
        f"With the row's machine left out of the fit: median error "
        f"{made.left_out_median:.1%}, {made.covered:.0%} inside the printed range.",
        "",
        "| row | what | algorithm | limit is | published GB/s | model | error | left out |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row, blind in zip(compare(), left_out(), strict=True):
        error = f"{row['error']:+.1%}" + (" (not fitted)" if row["unexplained"] else "")
        outside = "" if blind.within(parameters()) else ", outside"
        figures = f"{row['published_gbytes']:g} | {row['model_gbytes']:.1f} | {error} | {blind.error:+.1%}{outside}"
        lines.append(f"| {row['row']} | {row['what']} | {row['algorithm']} | {row['bound']} | {figures} |")
    return "\n".join(lines)


def _print_fit() -> None:
    everything = rows()
    best = fit(everything)
    for name in FITTED:
        print(f"{name:24} {value(parameters(), name):8.3f} in bandwidth.toml   {value(best, name):8.3f} fits best")
    for bound in ("network", "inside", "staged"):
        ratios = sorted(
            round(1 / (1 + one.error), 3) for one in left_out() if one.bound == bound and not one.row.unexplained
        )
        print(f"{bound}: published over left-out model {ratios}")
    print(summary())


def page_text(text: str, made: str) -> str:
    """The page with this table."""
    before, _, rest = text.partition("<!-- rows -->\n")
    after = rest.partition("<!-- /rows -->")[2]
    return f"{before}<!-- rows -->\n{made}\n<!-- /rows -->{after}"


def main() -> int:
    """Print the comparison or the fit."""
    if "--fit" in sys.argv[1:]:
        _print_fit()
        return 0
    print(made := table())
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page_text(PAGE.read_text("utf-8"), made), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
