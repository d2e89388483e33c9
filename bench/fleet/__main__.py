"""``python -m bench.fleet N``: what N nodes cost an API server, phase by phase, as JSON.

Needs root and the parts of the cluster tier. The control plane is real and on this machine, so times include its share
of the same two cores; counts and bytes do not depend on the machine. Exits with 1 where a promise is broken.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import contextlib
import json
import random
import resource
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/cluster"))

from kubebed import Cluster, Options
from kubebed.layout import Layout

from bench.fleet.ledger import Refusal
from bench.fleet.nodes import Fleet, Server, thinned
from dranet.basics.http import Request
from dranet.kube.http import Response

BED = 7
QUIET_SECONDS = 30
ROLLING_SHARE = 0.02


def main() -> int:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    # asyncio gives each TLS connection a buffer of 256 kB; a node has two of them, this process thousands.
    asyncio.sslproto.SSLProtocol.max_size = 16 * 1024
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most < 2 * size + 500:
        print(f"{size} nodes need {2 * size + 500} open files, the limit is {most}: ulimit -Hn", file=sys.stderr)
    bed = Cluster(Layout(BED), Options(nodes=0, cards=0))
    bed.up()
    try:
        figures = asyncio.run(_measure(bed, size))
    finally:
        bed.down()
    print(json.dumps(figures, indent=2))
    for problem in figures["broken_promises"]:
        print(f"broken promise: {problem}", file=sys.stderr)
    return 1 if figures["broken_promises"] else 0


class Run:
    """The phases of one measurement and what each counted."""

    def __init__(self, bed: Cluster, fleet: Fleet) -> None:
        self.bed, self.fleet = bed, fleet
        self.figures: dict[str, object] = {}
        self.broken: list[str] = []

    @contextlib.asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[None]:
        print(f"fleet: {name} ...", file=sys.stderr)
        self.fleet.ledger.turn()
        began = time.monotonic()
        yield
        found = self.fleet.ledger.figures(len(self.fleet.nodes))
        self.figures[name] = {"until_true_seconds": round(time.monotonic() - began, 2), **found}

    def promise(self, kept: bool, words: str) -> None:
        if not kept:
            self.broken.append(words)


async def _measure(bed: Cluster, size: int) -> dict[str, object]:
    token = json.loads(bed.layout.kubeconfig.read_text())["users"][0]["user"]["token"]
    before = _own_memory()
    fleet = Fleet(Server(bed.layout.api_url, bed.layout.pki / "ca.crt", token), size)
    run = Run(bed, fleet)
    await fleet.register()
    etcd_before = _etcd_bytes(bed)
    await _start_storm(run)
    figures = {
        "nodes": size,
        "memory_per_publisher_kb": (_own_memory() - before) // size,
        "etcd_bytes_per_node": (_etcd_bytes(bed) - etcd_before) // size,
        "api_server_memory_mb": _memory_of(bed, "kube-apiserver") // 1024,
    }
    for step in (_quiet, _rolling_update, _flaps, _refusals, _lost_nodes, _restart):
        await step(run)
    await fleet.stop()
    return {**figures, **run.figures, "broken_promises": run.broken}


async def _start_storm(run: Run) -> None:
    async with run.phase("start_storm"):
        run.fleet.start()
        await run.fleet.published()
    await run.fleet.watching()
    writes = run.fleet.ledger.requests["create"] + run.fleet.ledger.requests["update"]
    run.promise(writes == len(run.fleet.nodes), f"{writes} writes for {len(run.fleet.nodes)} nodes at the start")
    run.promise(await run.fleet.slices() == len(run.fleet.nodes), "not every node has exactly one slice")


async def _quiet(run: Run) -> None:
    async with run.phase("quiet"):
        await asyncio.sleep(QUIET_SECONDS)
    asked = {kind: count for kind, count in run.fleet.ledger.requests.items() if kind != "watch"}
    run.promise(not asked, f"a quiet fleet asked: {asked}")
    run.promise(run.fleet.ledger.watches == len(run.fleet.nodes), "a quiet node has not exactly one watch")


async def _rolling_update(run: Run) -> None:
    """A few nodes at a time, as a DaemonSet's maxUnavailable lets them."""
    count = max(1, int(len(run.fleet.nodes) * ROLLING_SHARE))
    async with run.phase("rolling_update"):
        for number in range(count):
            node = await run.fleet.replace(number)
            await node.publisher.published()
    run.promise(run.fleet.ledger.requests["create"] == 0, "a new driver wrote slices that stood there already")
    run.promise(run.fleet.ledger.requests["update"] == 0, "a new driver replaced slices that were right")


async def _flaps(run: Run) -> None:
    flapping = thinned(run.fleet, 0.01)
    async with run.phase("link_flaps"):
        for up in (False, True):
            for node in flapping:
                node.flap(up)
            await run.fleet.published(flapping)
    writes = run.fleet.ledger.requests["update"]
    run.promise(writes <= 2 * len(flapping), f"{writes} writes for {2 * len(flapping)} changes")
    run.promise(run.fleet.ledger.requests["list"] == 0, "a change of a link was followed by lists")


async def _refusals(run: Run) -> None:
    """Every third request is answered 429, as priority and fairness does under load."""
    dice = random.Random(7)

    def trouble(request: Request) -> Response | None:
        return Refusal() if dice.random() < 0.3 else None

    flapping = thinned(run.fleet, 0.01, seed=2)
    for node in flapping:
        node.client._transport.trouble = trouble  # type: ignore[attr-defined]
    async with run.phase("too_many_requests"):
        for up in (False, True):
            for node in flapping:
                node.flap(up)
            await run.fleet.published(flapping)
    for node in flapping:
        node.client._transport.trouble = None  # type: ignore[attr-defined]


async def _lost_nodes(run: Run) -> None:
    lost = max(1, len(run.fleet.nodes) // 100)
    async with run.phase("node_loss"):
        for number in range(len(run.fleet.nodes) - lost, len(run.fleet.nodes)):
            await run.fleet.lose(number)
    del run.fleet.nodes[-lost:]


async def _restart(run: Run) -> None:
    """The API server is killed with all watches open, is away for a while, and comes back."""
    async with run.phase("api_server_restart"):
        await asyncio.to_thread(_bounce, run.bed)
        run.fleet.ledger.turn()
        await run.fleet.watching()
    figures = run.fleet.ledger.figures(len(run.fleet.nodes))
    peak, mean = figures["peak_per_second"], figures["mean_per_second"]
    run.promise(peak <= 3 * mean, f"after a restart {peak} requests in one second, {mean} in the mean")
    lists = run.fleet.ledger.requests["list"]
    run.promise(run.fleet.ledger.requests["update"] == 0, "slices were written again after a restart")
    run.figures["lists_after_restart_per_node"] = round(lists / len(run.fleet.nodes), 3)


def _bounce(bed: Cluster) -> None:
    with bed.api_server_away():
        time.sleep(5)


def _own_memory() -> int:
    return _resident(Path("/proc/self/status"))


def _memory_of(bed: Cluster, name: str) -> int:
    return _resident(Path(f"/proc/{bed.processes.find(name).pid}/status"))


def _resident(status: Path) -> int:
    """In kB."""
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])


def _etcd_bytes(bed: Cluster) -> int:
    with urllib.request.urlopen(f"{bed.layout.etcd_url}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    name = "etcd_mvcc_db_total_size_in_use_in_bytes"
    return int(float(next(line for line in lines if line.startswith(f"{name} ")).split()[1]))


if __name__ == "__main__":
    sys.exit(main())
