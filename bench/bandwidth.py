"""How far the bandwidth model is from published results, and the fit of its parameters.

python -m bench.bandwidth          every row: the model's figure, its error, and its error when left out of the fit
python -m bench.bandwidth --fit    the parameters that fit the rows best, next to those of bandwidth.toml
python -m bench.bandwidth --write  the table into docs/evidence/bandwidth.md
python -m bench bandwidth          the rows as JSON

It exits 1 when a row is off by more than its limit: 15 % where the source states the algorithm, 25 % where the model
had to choose it. Rows of the users' documents, whose devices are known one by one, have 15 %.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
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
STATED, CHOSEN = 0.15, 0.25
"""How far a row may be off where its algorithm is known, and where the model had to choose it."""

STEPS = (0.08, 0.02, 0.005)
FITTED = (
    "network_efficiency",
    "staged_gbytes",
    "ring_share",
    "nvls_share",
    "tree_share",
    "xgmi_share",
    "pcie_exchange_gbytes",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One published figure and how the model gets at it."""

    name: str
    what: str
    gbytes: float
    limit: float
    expected: Callable[[Parameters], float]
    algorithm: str
    bound: str
    unexplained: str = ""

    def error(self, p: Parameters) -> float:
        """Of the model against the published figure."""
        return self.expected(p) / self.gbytes - 1


def rows() -> list[Row]:
    """All of them: public tables first, then the users' documents."""
    tables = tomllib.loads((HERE / "collectives.toml").read_text("utf-8"))["rows"]
    documents = tomllib.loads((HERE / "published.toml").read_text("utf-8"))["rows"]
    return [*map(_of_table, tables), *map(_of_document, documents)]


def _of_table(row: dict[str, Any]) -> Row:
    member = _member(row)
    algorithm, size = row.get("algorithm", ""), row.get("bytes", 8 << 30)

    def found(p: Parameters) -> Estimate:
        return _figure(estimate([member] * row["nodes"], row["collective"], algorithm=algorithm, size=size, p=p))

    shown = found(parameters())
    what = f"{row['machine']}, {row['nodes']} x {row['gpus']} GPUs, {row['collective']}"
    limit = STATED if algorithm else CHOSEN
    unexplained = row.get("unexplained", "")
    return Row(
        row["id"], what, row["gbytes"], limit, lambda p: found(p).at(size), shown.algorithm, shown.bound, unexplained
    )


def _member(row: dict[str, Any]) -> JobPod:
    """A pod of a machine that is known by numbers alone."""
    place = Position(None, None, 0)
    gpus = [MachineDevice("gpu", f"gpu-{n}", place, title=f"gpu-{n}", product=row["gpu"]) for n in range(row["gpus"])]
    nics = [
        MachineDevice(
            "dra.net", f"nic-{n}", place, title=f"nic-{n}", line_gbytes=row["line_gbit"] / 8, network=row["fabric"]
        )
        for n in range(row.get("nics", 0))
    ]
    apart = Distance.SYS if row.get("far") else Distance.PIX
    share = max(len(gpus), len(nics))
    pairs = (
        [Pair(gpus[n * len(gpus) // share], nics[n * len(nics) // share], apart) for n in range(share)] if nics else []
    )
    return JobPod(tuple(gpus), Alignment(tuple(pairs)))


def _of_document(row: dict[str, Any]) -> Row:
    """A row of a users' document: its pods on a shape. Where any GPU was possible, the mean over all of them."""
    machine = machine_of_shape(load_shape(row["shape"]), "node")
    choices = list(itertools.product(*(_choices(machine, pod) for pod in row["pods"])))

    def found(p: Parameters) -> list[Estimate]:
        return [_figure(estimate(pods, row["collective"], p=p)) for pods in choices]

    def expected(p: Parameters) -> float:
        average = row["figure"] == "average"
        return statistics.mean(sweep_average(one) if average else one.gbytes for one in found(p))

    name = row["document"] if "arXiv" in row["document"] else f"document {row['document']}"
    first = found(parameters())[0]
    return Row(name, row["what"], row["gbytes"], STATED, expected, first.algorithm, first.bound)


def _choices(machine: Machine, pod: dict[str, Any]) -> list[JobPod]:
    nics = [machine.nics[i] for i in pod["nics"]]
    sets = [(gpu,) for gpu in machine.gpus] if pod.get("any_gpu") else [tuple(machine.gpus[i] for i in pod["gpus"])]
    return [JobPod(gpus, align(gpus, nics)) for gpus in sets]


def _figure(found: Estimate | NoEstimate) -> Estimate:
    if isinstance(found, NoEstimate):
        raise ValueError(f"a published row without a figure: {found.reason}")
    return found


def fit(used: Iterable[Row], steps: Sequence[float] = STEPS, start: Parameters | None = None) -> Parameters:
    """The parameters with the least sum of squared logarithms of errors: each in turn, in ever smaller steps."""
    found, kept = start or parameters(), [row for row in used if not row.unexplained]
    least = _loss(kept, found)
    for step in steps:
        moved = True
        while moved:
            moved = False
            for name in FITTED:
                better = [tried for tried in _moved(found, name, step) if _loss(kept, tried) < least * (1 - 1e-6)]
                if better:
                    found, moved = better[0], True
                    least = _loss(kept, found)
    return found


def _moved(p: Parameters, name: str, step: float) -> Iterator[Parameters]:
    for factor in (1 + step, 1 / (1 + step)):
        yield msgspec.structs.replace(p, **{name: getattr(p, name) * factor})


def _loss(used: Sequence[Row], p: Parameters) -> float:
    return sum(math.log(row.expected(p) / row.gbytes) ** 2 for row in used)


def left_out(everything: Sequence[Row]) -> list[float]:
    """The error of each row under parameters fitted on all the others."""
    best = fit(everything)
    return [row.error(fit([other for other in everything if other is not row], STEPS[1:], best)) for row in everything]


def compare() -> list[dict[str, Any]]:
    """Each row with the model's figure and its error."""
    p = parameters()
    return [
        {
            "row": row.name,
            "what": row.what,
            "algorithm": row.algorithm,
            "bound": row.bound,
            "published_gbytes": row.gbytes,
            "model_gbytes": row.expected(p),
            "error": row.error(p),
            "limit": row.limit,
            "unexplained": row.unexplained,
        }
        for row in rows()
    ]


def measure() -> dict[str, Any]:
    """All rows, the median error and the worst."""
    found = compare()
    errors = [abs(row["error"]) for row in found if not row["unexplained"]]
    return {"median_error": statistics.median(errors), "worst_error": max(errors), "rows": found}


def table() -> str:
    """The rows as Markdown, for docs/evidence/bandwidth.md."""
    everything = rows()
    lines = [
        "| row | what | algorithm | limit is | published GB/s | model | error | left out |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row, without in zip(everything, left_out(everything), strict=True):
        p = parameters()
        error = f"{row.error(p):+.1%}" + (" (not fitted)" if row.unexplained else "")
        figures = f"{row.gbytes:g} | {row.expected(p):.1f} | {error} | {without:+.1%}"
        lines.append(f"| {row.name} | {row.what} | {row.algorithm} | {row.bound} | {figures} |")
    return "\n".join(lines)


def _print_fit() -> None:
    everything = rows()
    best = fit(everything)
    for name in FITTED:
        print(f"{name:24} {getattr(parameters(), name):8.3f} in bandwidth.toml   {getattr(best, name):8.3f} fits best")
    for title, p in (("bandwidth.toml", parameters()), ("best fit", best)):
        errors = [abs(row.error(p)) for row in everything if not row.unexplained]
        print(f"{title}: median error {statistics.median(errors):.1%}, worst {max(errors):.1%}")


def _write(made: str) -> None:
    before, _, rest = PAGE.read_text("utf-8").partition("<!-- rows -->\n")
    after = rest.partition("<!-- /rows -->")[2]
    PAGE.write_text(f"{before}<!-- rows -->\n{made}\n<!-- /rows -->{after}", "utf-8")


def main() -> int:
    """Print the comparison or the fit; 1 when a row is off by more than its limit."""
    if "--fit" in sys.argv[1:]:
        _print_fit()
        return 0
    print(made := table())
    if "--write" in sys.argv[1:]:
        _write(made)
    found = measure()
    print(f"\nmedian error {found['median_error']:.1%}, worst {found['worst_error']:.1%}")
    return int(any(abs(row["error"]) > row["limit"] for row in found["rows"] if not row["unexplained"]))


if __name__ == "__main__":
    sys.exit(main())
