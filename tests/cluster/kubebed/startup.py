"""How long a pod takes to start, from the API server's own events: created, given a node, running.

The times are taken when the events arrive. The timestamps inside the objects have whole seconds only, too coarse for a
start of half a second.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from .cache import BedError
from .kubectl import Kubectl, Manifest

# With the initial events the server marks where they end: from then on nothing that happens is missed.
WATCH = "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
PERCENTS = (50, 90, 99)


@dataclass(frozen=True)
class Startup:
    """Seconds since the pod was created."""

    scheduled: float
    running: float


def start_pod(kubectl: Kubectl, manifest: Manifest, seconds: float = 120) -> Startup:
    """Create the pod and follow it until it runs."""
    return start_pods(kubectl, manifest, seconds=seconds)[0]


def start_pods(kubectl: Kubectl, *manifests: Manifest, seconds: float = 120) -> list[Startup]:
    """Create pods at once and follow them until all run; all times are since the first was created."""
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods{WATCH}"
    with subprocess.Popen(kubectl.command("get", "--raw", path), stdout=subprocess.PIPE) as watcher:
        try:
            events = _events(watcher, seconds)
            next(event for _, event in events if event["type"] == "BOOKMARK")
            kubectl.apply(*manifests)
            return _follow(events, {manifest["metadata"]["name"] for manifest in manifests})
        finally:
            watcher.terminate()


def _follow(events: Iterator[tuple[float, Manifest]], names: set[str]) -> list[Startup]:
    created: float | None = None
    scheduled: dict[str, float] = {}
    running: dict[str, float] = {}
    for now, event in events:
        pod = event["object"]
        if (name := pod["metadata"].get("name")) not in names:
            continue
        created = now if created is None else created
        if pod["spec"].get("nodeName"):
            scheduled.setdefault(name, now - created)
        if pod["status"]["phase"] == "Running":
            running.setdefault(name, now - created)
        if running.keys() == names:
            return [Startup(scheduled[name], running[name]) for name in sorted(names)]
    raise BedError(f"the watch ended before these pods ran: {', '.join(sorted(names - running.keys()))}")


def _events(watcher: subprocess.Popen[bytes], seconds: float) -> Iterator[tuple[float, Manifest]]:
    """Watch events with the time of their arrival, whenever they are looked at."""
    arrived: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
    threading.Thread(target=_stamp, args=(watcher, arrived), daemon=True).start()
    deadline = time.monotonic() + seconds
    while True:
        try:
            now, line = arrived.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise BedError(f"the pod did not run within {seconds:.0f} s") from None
        if not line:
            return
        yield now, json.loads(line)


def _stamp(watcher: subprocess.Popen[bytes], arrived: queue.SimpleQueue[tuple[float, bytes]]) -> None:
    """Reads on while the caller waits for kubectl; an empty line says that the watch is over."""
    assert watcher.stdout is not None
    for line in watcher.stdout:
        arrived.put((time.monotonic(), line))
    arrived.put((time.monotonic(), b""))


@dataclass
class Samples:
    """Named series of seconds, and the table of their percentiles."""

    series: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        self.series.setdefault(name, []).append(seconds)

    def lines(self) -> list[str]:
        width = max(map(len, self.series), default=0)
        head = "  ".join(f"{f'p{percent}':>8}" for percent in PERCENTS)
        rows = [f"{'':{width}}  {'count':>5}  {head}"] if self.series else []
        for name, values in self.series.items():
            cells = "  ".join(f"{percentile(values, percent):6.3f} s" for percent in PERCENTS)
            rows.append(f"{name:{width}}  {len(values):5}  {cells}")
        return rows


def percentile(values: list[float], percent: int) -> float:
    """The smallest value that at least `percent` of all do not exceed: always one that was measured."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
