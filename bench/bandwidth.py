"""How far the bandwidth model is from published results: every row of the users' documents, and the paper's.

python -m bench.bandwidth     a table; exits 1 when a row is off by more than 15 %
python -m bench bandwidth     the same as JSON
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tomllib
from pathlib import Path
from typing import Any

from dranet.topology.alignment import align
from dranet.topology.bandwidth import job_busbw, pod_busbw, sweep_average
from dranet.topology.machine import Machine, machine_of_shape
from dranet.topology.shape import load_shape

LIMIT = 0.15
PUBLISHED = Path(__file__).parent / "published.toml"


def published() -> list[dict[str, Any]]:
    """The rows of `published.toml`."""
    rows: list[dict[str, Any]] = tomllib.loads(PUBLISHED.read_text("utf-8"))["rows"]
    return rows


def expected(row: dict[str, Any]) -> float:
    """What the model says for one row, GB/s: the mean over all GPUs its pods may have got."""
    machine = machine_of_shape(load_shape(row["shape"]), "node")
    rates = [job_busbw(pods) for pods in itertools.product(*(_pod_rates(machine, pod) for pod in row["pods"]))]
    rate = statistics.mean(rates)
    if row["figure"] != "average":
        return rate
    return sweep_average(rate, sum(len(pod["gpus"]) for pod in row["pods"]), row["collective"])


def _pod_rates(machine: Machine, pod: dict[str, Any]) -> list[float]:
    nics = [machine.nics[i] for i in pod["nics"]]
    choices = [[gpu] for gpu in machine.gpus] if pod.get("any_gpu") else [[machine.gpus[i] for i in pod["gpus"]]]
    rates = [pod_busbw(align(gpus, nics), gpus) for gpus in choices]
    return [rate for rate in rates if rate is not None]


def compare() -> list[dict[str, Any]]:
    """Each row with the model's figure and its error."""
    compared = []
    for row in published():
        model = expected(row)
        compared.append(
            {
                "document": row["document"],
                "what": row["what"],
                "figure": row["figure"],
                "published_gbytes": row["gbytes"],
                "model_gbytes": round(model, 2),
                "error": round(model / row["gbytes"] - 1, 4),
            }
        )
    return compared


def measure() -> dict[str, Any]:
    """All rows, and the worst of them."""
    rows = compare()
    return {"limit": LIMIT, "worst_error": max(abs(row["error"]) for row in rows), "rows": rows}


def main() -> int:
    """Print the comparison; 1 when a row is off by more than the limit."""
    rows = compare()
    for row in rows:
        print(
            f"{row['published_gbytes']:8.2f} GB/s published  {row['model_gbytes']:8.2f} model  "
            f"{row['error']:+7.1%}  {row['document']}: {row['what']}"
        )
    return int(any(abs(row["error"]) > LIMIT for row in rows))


if __name__ == "__main__":
    sys.exit(main())
