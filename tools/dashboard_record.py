"""A dashboard's queries, answered by a real Prometheus about real drivers: what dashboard_picture draws.

The drivers are those of a demo scenario that is repeated; their /metrics are read inside the machines' network
namespaces, where no Prometheus could reach both. What was read goes into Prometheus with the times it was read at.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dranet.linux.namespaces import run_inside
from dranet.testing import observing, traffic
from dranet.testing.cluster import SandboxCluster
from dranet.testing.demo import Observer, ScenarioRunner
from dranet.testing.running import RunningPod
from dranet.testing.scenarios import SCENARIOS, Stage
from tools import apt

SCRAPE_SECONDS, STEP_SECONDS, BURSTS = 10.0, 15, 12
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
Series = dict[str, Any]
"""One of Prometheus' answers: `metric`, its labels, and `values`, pairs of time and text."""


@dataclass
class Recorder:
    """The drivers' samples, by the name of the metric."""

    samples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    begun: float = field(default_factory=time.time)

    @contextlib.asynccontextmanager
    async def record_while(self, cluster: SandboxCluster) -> AsyncIterator[None]:
        reading = asyncio.create_task(self._read(cluster))
        try:
            yield
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, cluster: SandboxCluster) -> None:
        while True:
            for name, node in cluster.nodes.items():
                text = await asyncio.to_thread(run_inside, node.node.namespace.fd, _metrics)
                self._keep(f'job="dranet",instance="{name}"', f"up 1\n{text}")
            await asyncio.sleep(SCRAPE_SECONDS)

    def _keep(self, where: str, text: str) -> None:
        now = time.time()
        for name, labels, value in filter(None, map(_parsed, text.splitlines())):
            own = ",".join(filter(None, (labels, where)))
            self.samples[name].append(f"{name}{{{own}}} {value} {now:.3f}")

    def text(self) -> str:
        """In Prometheus' own form for data with times."""
        return "".join("".join(f"{line}\n" for line in lines) for lines in self.samples.values()) + "# EOF\n"


def _metrics() -> str:
    connection = http.client.HTTPConnection("127.0.0.1", 9177, timeout=5)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()


def _parsed(line: str) -> tuple[str, str, str] | None:
    found = SAMPLE.match(line)
    return (found[1], found[2] or "", found[3]) if found else None


class Onlooker(Observer):
    """Lets pods stay for some bursts of traffic."""

    async def pause(self, cluster: SandboxCluster, stage: Stage, pods: Sequence[RunningPod]) -> None:
        for _ in range(BURSTS):
            for _, _, lanes in observing.lanes(pods):
                await asyncio.to_thread(traffic.throughput, lanes, 0.2)
            await asyncio.sleep(SCRAPE_SECONDS / 2)


def record(times: int) -> Recorder:
    """Play the first scenario's stages that often."""
    scenario = replace(SCENARIOS[0], stages=SCENARIOS[0].stages * times)
    recorder = Recorder()
    with tempfile.TemporaryDirectory(prefix="dranet-dashboard-") as folder:
        result = asyncio.run(ScenarioRunner(scenario, Path(folder), Onlooker(), recorder.record_while).run())
    if result.failures:
        raise SystemExit("\n".join(result.failures))
    return recorder


@contextlib.contextmanager
def prometheus(recorder: Recorder) -> Iterator[str]:
    """Debian's, unpacked, with what was recorded; its address."""
    with tempfile.TemporaryDirectory(prefix="dranet-prometheus-") as name, socket.socket() as probe:
        folder = Path(name)
        archive = apt.Archive(folder / "apt", apt.source("bookworm"))
        archive.update()
        apt.unpack(archive.download("prometheus"), folder / "root")
        programs = folder / "root/usr/bin"
        (folder / "recorded").write_text(recorder.text())
        (folder / "none.yaml").write_text("{}\n")
        backfill = ["tsdb", "create-blocks-from", "openmetrics", str(folder / "recorded"), str(folder / "data")]
        subprocess.run([programs / "promtool", *backfill], check=True, stdout=subprocess.DEVNULL)
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        probe.close()
        files = [f"--storage.tsdb.path={folder / 'data'}", f"--config.file={folder / 'none.yaml'}"]
        command = [str(programs / "prometheus"), *files, f"--web.listen-address={address}", "--log.level=error"]
        process = subprocess.Popen(command)
        try:
            _ready(address)
            yield address
        finally:
            process.terminate()
            process.wait()


def _ready(address: str) -> None:
    for _ in range(240):
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            if urllib.request.urlopen(f"http://{address}/-/ready", timeout=5).status == 200:
                return
        time.sleep(0.5)
    raise SystemExit("Prometheus did not start")


def answers(address: str, expression: str, begun: float, ended: float) -> list[Series]:
    """Of a panel's expression, with all jobs and instances chosen."""
    chosen = expression.replace("$job", ".*").replace("$instance", ".*")
    asked = {"query": chosen, "start": begun, "end": ended, "step": STEP_SECONDS}
    with urllib.request.urlopen(f"http://{address}/api/v1/query_range?{urllib.parse.urlencode(asked)}") as response:
        found: list[Series] = json.load(response)["data"]["result"]
        return found
