"""How long a pod takes to start, from the API server's own events: created, given a node, running.

The times are taken when the events arrive. The timestamps inside the objects have whole seconds only, too coarse for a
start of half a second.
"""

from __future__ import annotations

import json
import subprocess
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


def start_pod(kubectl: Kubectl, manifest: Manifest, seconds: float = 60) -> Startup:
    """Create the pod and follow it until it runs."""
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods{WATCH}"
    arguments = ("timeout", f"{seconds:.0f}", *kubectl.command("get", "--raw", path))
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as watcher:
        try:
            events = _events(watcher)
            next(event for _, event in events if event["type"] == "BOOKMARK")
            kubectl.apply(manifest)
            return _follow(events, manifest["metadata"]["name"])
        finally:
            watcher.terminate()


def _follow(events: Iterator[tuple[float, Manifest]], name: str) -> Startup:
    created = scheduled = None
    for now, event in events:
        pod = event["object"]
        if pod["metadata"].get("name") != name:
            continue
        created = created or now
        scheduled = scheduled or (now if pod["spec"].get("nodeName") else None)
        if pod["status"]["phase"] == "Running":
            return Startup((scheduled or now) - created, now - created)
    raise BedError(f"pod {name} did not run while it was watched")


def _events(watcher: subprocess.Popen[bytes]) -> Iterator[tuple[float, Manifest]]:
    """Watch events with the time of their arrival."""
    assert watcher.stdout is not None
    for line in watcher.stdout:
        yield time.monotonic(), json.loads(line)


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
