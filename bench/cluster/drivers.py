"""One driver on every node of a bed, as a process: started, asked for its metrics, watched for CPU and memory.

Any driver that takes the reference's flags and has its metrics can be put here. Each keeps its state where its own
installation puts it: ours on the node's disk, as our chart does; another's where its default is.
"""

from __future__ import annotations

import os
import re
import ssl
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from dranet.testing.waiting import wait_until
from tests.cluster.kubebed import Cluster
from tests.cluster.kubebed.node import Node
from tests.cluster.kubebed.processes import Record

PREPARE = 'dra_plugin_requests_latency_seconds_%s{method="PrepareResourceClaims"}'
UNPREPARE = 'dra_plugin_requests_latency_seconds_%s{method="UnprepareResourceClaims"}'
ATTACH = 'nri_plugin_requests_latency_seconds_%s{method="RunPodSandbox",status="success"}'
DETACH = 'nri_plugin_requests_latency_seconds_%s{method="StopPodSandbox",status="success"}'
CALLS = {"prepare_ms": PREPARE, "attach_ms": ATTACH, "detach_ms": DETACH, "unprepare_ms": UNPREPARE}
_OUTSIDE = 'dra_grpc_operations_duration_seconds_%%s{driver_name="dra.net",.*/Node%sResources"}'
SEEN_BY_KUBELET = {
    "prepare_seen_by_kubelet_ms": _OUTSIDE % "Prepare",
    "unprepare_seen_by_kubelet_ms": _OUTSIDE % "Unprepare",
}
"""The same calls from outside: the reference counts its own only from when it has read the claim, ours with that."""
_TICK = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Driver:
    """How a driver is started; the flags every one gets are added."""

    name: str
    command: tuple[str, ...]


class Running:
    """A driver that runs on all nodes of a bed."""

    def __init__(self, bed: Cluster, driver: Driver) -> None:
        self.bed = bed
        self._records: dict[str, Record] = {}
        for node in bed.nodes:
            self._records[node.name] = node.start("bench-driver", [*driver.command, *_flags(bed, node)])

    def wait_published(self, nics: int) -> None:
        wait_until(lambda: all(self._published(node) >= nics for node in self.bed.nodes), "NICs to be published")

    def _published(self, node: Node) -> int:
        slices = [item["spec"] for item in self.bed.kubectl.items("resourceslices")]
        names = [device["name"] for s in slices if s.get("nodeName") == node.name for device in s.get("devices") or []]
        return sum(name.startswith("nic") for name in names)

    def spent(self, node: Node) -> dict[str, tuple[float, int]]:
        """Seconds and calls since the start, for each kind of call."""
        own = _metrics(f"http://{node.layout.address}:9177/metrics")
        kubelet = _metrics(f"https://{node.layout.address}:10250/metrics")
        series = {key: (own, f"dranet_driver_{re.escape(name)}") for key, name in CALLS.items()}
        series |= {key: (kubelet, name) for key, name in SEEN_BY_KUBELET.items()}
        return {
            key: (_value(text, name % "sum"), int(_value(text, name % "count"))) for key, (text, name) in series.items()
        }

    def cpu(self, node: Node) -> float:
        """Seconds of CPU of the process and its children that have ended."""
        fields = Path(f"/proc/{self._pid(node)}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) * _TICK

    def memory(self, node: Node) -> float:
        """Resident, in MB."""
        status = Path(f"/proc/{self._pid(node)}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+)", status, re.MULTILINE)[1]) / 1024  # type: ignore[index]

    def _pid(self, node: Node) -> int:
        record = self._records[node.name]
        if not record.alive():
            raise RuntimeError(f"the driver on {node.name} has ended: see {self.bed.layout.logs}")
        return record.pid

    def stop(self) -> None:
        for node in self.bed.nodes:
            node.stop("bench-driver", patience=40)
            # The next driver begins on a node without a past.
            node.run("rm", "-rf", "/var/run/dranet", "/var/lib/dranet")
        self.bed.kubectl.run("delete", "resourceslices", "--all")


def _flags(bed: Cluster, node: Node) -> list[str]:
    return [f"--kubeconfig={bed.layout.kubeconfig}", f"--hostname-override={node.name}", "--filter=", "--v=2"]


def _metrics(url: str) -> str:
    # A bed's kubelet signs its certificate itself.
    context = ssl._create_unverified_context() if url.startswith("https") else None
    with urllib.request.urlopen(url, timeout=10, context=context) as answer:
        text: str = answer.read().decode()
        return text


def _value(text: str, series: str) -> float:
    """Of all series that match, together."""
    return sum(map(float, re.findall(rf"^{series} (\S+)$", text, re.MULTILINE)))
