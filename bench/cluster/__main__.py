"""``python -m bench.cluster``: the driver's figures on a real two-node Kubernetes, as a table and JSON.

With ``--second "COMMAND"`` another driver is measured in the same run, in turns with ours: it gets the reference's
flags and must have its metrics. Needs root and the parts of the cluster tier.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import time

from bench.cluster.bare_kernel import BareKernel
from bench.cluster.drivers import Driver, Running
from bench.cluster.lives import NICS, Lives, objects
from tests.cluster.kubebed import Cluster, Options
from tests.cluster.kubebed.layout import Layout

BED = int(os.environ.get("BED", "6"))
NAMESPACE = "bench"
OURS = Driver("dranet", (sys.executable, "-m", "dranet", "run", "--db-path=/var/lib/dranet/dranet.db"))


def main() -> int:
    given = _arguments()
    drivers = [OURS, *([Driver("second", tuple(shlex.split(given.second)))] if given.second else [])]
    bed = Cluster(Layout(BED), Options(nics=NICS))
    bed.up()
    try:
        runs = _measure(bed, drivers, given.runs, given.cycles)
    finally:
        bed.down()
    print(json.dumps({"cycles": given.cycles, "runs": runs}, indent=2))
    for line in _table(runs):
        print(line, file=sys.stderr)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--second", default="", metavar="COMMAND", help="another driver, measured in turns with ours")
    parser.add_argument("--runs", type=int, default=5, help="runs of each driver; the medians are printed (5)")
    parser.add_argument("--cycles", type=int, default=12, help="pods of each kind in a run (12)")
    return parser.parse_args()


def _measure(bed: Cluster, drivers: list[Driver], runs: int, cycles: int) -> dict[str, list[dict[str, float]]]:
    bed.kubectl.run("create", "namespace", NAMESPACE)
    kubectl = bed.kubectl.in_namespace(NAMESPACE)
    kubectl.wait("serviceaccount/default", "create")
    kubectl.apply(*objects())
    kernel = BareKernel(bed, NICS)
    found: dict[str, list[dict[str, float]]] = {driver.name: [] for driver in drivers}
    for number in range(runs):
        for driver in drivers:
            print(f"run {number + 1} of {runs}: {driver.name} ...", file=sys.stderr)
            found[driver.name].append(_run(bed, driver, kernel, cycles))
            print(json.dumps({driver.name: found[driver.name][-1]}), file=sys.stderr)  # in case the rest is cut short
    kernel.close()
    return found


def _run(bed: Cluster, driver: Driver, kernel: BareKernel, cycles: int) -> dict[str, float]:
    for node in bed.nodes:
        bed.replug(node, bed.nics(node))
    began = time.monotonic()
    running = Running(bed, driver)
    try:
        running.wait_published(NICS)
        first_slices = time.monotonic() - began
        time.sleep(2)
        lives = Lives(running, bed.nodes[0], bed.kubectl.in_namespace(NAMESPACE), kernel)
        return {"all_published_s": first_slices, **lives.measure(cycles)}
    finally:
        running.stop()


def _table(runs: dict[str, list[dict[str, float]]]) -> list[str]:
    """Medians of all runs, a column for each driver."""
    keys = list(next(iter(runs.values()))[0])
    width = max(map(len, keys))
    lines = [f"{'median of runs':{width}}" + "".join(f"{name:>12}" for name in runs)]
    for key in keys:
        cells = (f"{statistics.median(run[key] for run in own):12.2f}" for own in runs.values())
        lines.append(f"{key:{width}}" + "".join(cells))
    return lines


if __name__ == "__main__":
    sys.exit(main())
