"""What happens to a fleet, phase by phase, what each phase counts, and what is promised of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from bench.fleet.etcd import Etcd
from bench.fleet.ledger import Refusal
from bench.fleet.nodes import Fleet, thinned
from dranet.core.http import Request
from dranet.kubernetes.api.http import Response
from dranet.kubernetes.api.reflector import WATCH_SECONDS
from tests.cluster.kubebed import Cluster

ROLLING_SHARE = 0.02
FLAPPING_SHARE = 0.01
REFUSED_SHARE = 0.3
STALLED_SECONDS = 12
FULL_SECONDS = 10
AWAY_SECONDS = 3
READY_SECONDS = 300
"""A server with ten thousand watchers at its door and two cores for all of them is not ready in a minute."""
WRITES_WHILE_FULL = 9
"""Of one node in FULL_SECONDS: what waits that begin with 0.1 s and double allow for."""


class Run:
    """The phases of one measurement, what each counted, and the promises that were broken."""

    def __init__(self, bed: Cluster, fleet: Fleet, quiet_seconds: float) -> None:
        self.bed, self.fleet, self.quiet_seconds = bed, fleet, quiet_seconds
        self.etcd = Etcd(bed.layout.etcd_url)
        self.figures: dict[str, dict[str, object]] = {}
        self.broken: list[str] = []
        self.began = 0.0
        """Of the phase that is on."""

    @contextlib.asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[None]:
        print(f"fleet: {self.fleet.prefix}: {name} ...", file=sys.stderr)
        self.fleet.ledger.turn()
        began, before = time.monotonic(), cpu_seconds(self.bed)
        self.began = began
        yield
        found = self.fleet.ledger.figures(len(self.fleet.nodes))
        after = cpu_seconds(self.bed)  # a program that was restarted has begun at zero
        spent = {name: round(now - before[name] if now >= before[name] else now, 1) for name, now in after.items()}
        self.figures[name] = {
            "until_true_seconds": round(time.monotonic() - began, 2),
            "processor_seconds": spent,
            "load_average": os.getloadavg()[0],
            **found,
        }
        print(f"fleet: {name}: {json.dumps(self.figures[name])}", file=sys.stderr)

    def promise(self, kept: bool, words: str) -> None:
        if not kept:
            self.broken.append(words)

    def promise_only_renewals(self, who: str) -> None:
        """Nothing was asked since the phase began but for watches that had lived their time: the shortest of them
        bounds how many that can be, whenever they were opened."""
        asked = dict(self.fleet.ledger.requests)
        watches = asked.pop("watch", 0)
        self.promise(not asked, f"{who} asked: {asked}")
        lived = (time.monotonic() - self.began) / WATCH_SECONDS[0]
        most = 2 * len(self.fleet.nodes) * lived  # those opened together end within as long as the shortest lives
        self.promise(watches <= max(most, 1), f"{who} renewed {watches} watches in {lived * WATCH_SECONDS[0]:.0f} s")


Phase = Callable[[Run], Awaitable[None]]


async def start_storm(run: Run) -> None:
    """A DaemonSet is made: its controller starts 250 pods at a time, as fast as they come up."""
    fleet = run.fleet
    async with run.phase("start_storm"):
        await fleet.start()
    await fleet.watching()
    written = fleet.ledger.written
    run.promise(written == len(fleet.nodes), f"{written} slices written for {len(fleet.nodes)} nodes")
    run.promise(await fleet.slices() == len(fleet.nodes), "not every node has exactly one slice")


async def quiet(run: Run) -> None:
    """Nothing happens."""
    ledger = run.fleet.ledger
    async with run.phase("quiet"):
        await asyncio.sleep(run.quiet_seconds)
        run.promise_only_renewals("a quiet fleet")
        await run.fleet.watching()
    run.promise(ledger.watches <= len(run.fleet.nodes), f"{ledger.watches} watches of {len(run.fleet.nodes)} nodes")


async def rolling_update(run: Run) -> None:
    """Driver after driver is replaced, as a DaemonSet does it."""
    ledger = run.fleet.ledger
    async with run.phase("rolling_update"):
        for number in range(max(1, int(len(run.fleet.nodes) * ROLLING_SHARE))):
            await run.fleet.replace(number)
    run.promise(ledger.writes == 0, f"new drivers wrote {ledger.writes} slices that stood there already")


async def link_flaps(run: Run) -> None:
    """Links go down and come back."""
    flapping = thinned(run.fleet, FLAPPING_SHARE)
    async with run.phase("link_flaps"):
        for up in (False, True):
            for node in flapping:
                node.flap(up)
            await run.fleet.published(flapping)
    writes, lists = run.fleet.ledger.writes, run.fleet.ledger.requests["list"]
    run.promise(writes <= 2 * len(flapping), f"{writes} writes for {2 * len(flapping)} changes")
    run.promise(lists == 0, f"a change of a link was followed by {lists} lists")


async def too_many_requests(run: Run) -> None:
    """The same, while some requests are answered 429, as priority and fairness does under load."""
    dice = random.Random(7)

    def trouble(request: Request) -> Response | None:
        return Refusal() if dice.random() < REFUSED_SHARE else None

    flapping = thinned(run.fleet, FLAPPING_SHARE, seed=2)
    for node in flapping:
        node.meet(trouble)
    async with run.phase("too_many_requests"):
        for up in (False, True):
            for node in flapping:
                node.flap(up)
            await run.fleet.published(flapping)
    for node in flapping:
        node.meet(None)


async def slow_server(run: Run) -> None:
    """The same, while the server takes longer to answer than we wait: it is stopped as a process."""
    flapping = thinned(run.fleet, FLAPPING_SHARE, seed=3)
    server = run.bed.processes.find("kube-apiserver")
    async with run.phase("slow_server"):
        run.bed.processes.signal([server], signal.SIGSTOP)
        try:
            for node in flapping:
                node.flap(False)
            await asyncio.sleep(STALLED_SECONDS)
        finally:
            run.bed.processes.signal([server], signal.SIGCONT)
        await run.fleet.published(flapping)
    await run.fleet.watching()


async def etcd_full(run: Run) -> None:
    """Links change while etcd takes no writes; then the operator makes space. Reads and watches go on meanwhile."""
    flapping = thinned(run.fleet, FLAPPING_SHARE, seed=4)
    pieces = await asyncio.to_thread(run.etcd.fill)
    async with run.phase("etcd_full"):
        for node in flapping:
            node.flap(False)
        await asyncio.sleep(FULL_SECONDS)
        writes = run.fleet.ledger.writes
        await asyncio.to_thread(run.etcd.free)
        freed = time.monotonic()
        await run.fleet.published(flapping)
    found = {"filled_mb": pieces, "writes_tried_while_full": writes, "after_space": round(time.monotonic() - freed, 2)}
    run.figures["etcd_full"] |= found
    run.promise(writes <= WRITES_WHILE_FULL * len(flapping), f"{writes} writes of {len(flapping)} nodes to a full etcd")


async def node_loss(run: Run) -> None:
    """Nodes vanish with their drivers; the garbage collector takes their slices."""
    lost = max(1, int(len(run.fleet.nodes) * FLAPPING_SHARE))
    async with run.phase("node_loss"):
        await run.fleet.lose(lost)
        while await run.fleet.slices() != len(run.fleet.nodes):  # noqa: ASYNC110 - it is another program that collects
            await asyncio.sleep(0.2)
    run.promise_only_renewals(f"after the loss of {lost} nodes the others")


async def api_server_restart(run: Run) -> None:
    """The API server is killed with all watches open, is away for a while, and comes back."""
    fleet = run.fleet
    async with run.phase("api_server_restart"):
        await asyncio.to_thread(_bounce, run.bed)
        await fleet.watching()
    peak, mean = fleet.ledger.peak, fleet.ledger.mean
    served = fleet.ledger.served.total()
    run.promise(peak <= 3 * mean, f"after a restart {peak} requests in one second, {mean:.1f} in the mean")
    run.promise(fleet.ledger.writes == 0, f"{fleet.ledger.writes} writes after a restart")
    run.promise(served <= 2.1 * len(fleet.nodes), f"{served} answers for {len(fleet.nodes)} nodes after a restart")


def cpu_seconds(bed: Cluster) -> dict[str, float]:
    """What each program has spent so far: says more than seconds on a machine that others use as well."""
    spent = {"fleet": time.process_time()}
    for program in ("kube-apiserver", "etcd"):
        fields = Path(f"/proc/{bed.processes.find(program).pid}/stat").read_text().rpartition(")")[2].split()
        spent[program] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return spent


def _bounce(bed: Cluster) -> None:
    with bed.api_server_away(ready_within=READY_SECONDS):
        time.sleep(AWAY_SECONDS)


SHORT: tuple[Phase, ...] = (start_storm, quiet, link_flaps, api_server_restart)
"""What every change must pass, and what is compared with the stand-in."""
LONG: tuple[Phase, ...] = (
    start_storm,
    rolling_update,
    link_flaps,
    too_many_requests,
    slow_server,
    etcd_full,
    node_loss,
    quiet,
    api_server_restart,
)
