"""The reference page lists exactly the exported metrics, and dashboards use no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from dranet.core.names import ClaimRef
from dranet.kubernetes.kubelet.handler import PreparedDevice
from dranet.node.server import metrics
from dranet.node.server.metrics import DEVICE_COUNTERS, READ_TIME
from dranet.node.server.service import ClaimService

from .daemon_bench import bench
from .test_daemon import _get

ROOT = Path(__file__).parents[3]
PAGE = re.findall(r"^\| `(\w+)` \| (\w+) \|", (ROOT / "docs/reference/metrics.md").read_text(), re.MULTILINE)
NOT_NOW = {"dranet_driver_device_faults", READ_TIME, *(f"{name}_total" for name in DEVICE_COUNTERS)}
"""Declared, but without series on a healthy node without pods and PCI NICs; `test_health_watch.py` and
`test_device_counters.py` test their values."""
MONITORING = sorted(path for path in (ROOT / "deploy/helm/dranet/files").iterdir() if path.is_file())


@pytest.mark.usefixtures("may_make_namespaces")
async def test_every_documented_metric_is_exported() -> None:
    async with bench() as b:
        pod = await b.start("nic0")
        await b.node.stop_pod(pod)
        _, text = await _get(b, "/metrics")
    exported = {line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if line.startswith("dranet_")}
    series = {name if kind != "histogram" else f"{name}_count" for name, kind in PAGE}
    assert series - exported == NOT_NOW
    assert {name for name in NOT_NOW if f"# TYPE {name} " in text} == NOT_NOW
    base = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in exported}
    assert base - {re.sub(r"_total$", "", name) for name, _ in PAGE} - {name for name, _ in PAGE} == set()


@pytest.mark.parametrize("file", MONITORING, ids=lambda path: path.name)
def test_dashboards_and_alerts_use_documented_metrics(file: Path) -> None:
    asked = set(re.findall(r"dranet_driver_\w+", file.read_text()))
    known = {name + ending for name, _ in PAGE for ending in ("", "_bucket", "_sum", "_count")}
    assert asked - known == set()


async def test_prepare_time_starts_after_reading_the_claim() -> None:
    """As the reference's does: its library reads claims before it asks the driver."""
    now = 100.0

    class Preparer:
        async def read_claim(self, ref: ClaimRef) -> dict[str, str]:
            nonlocal now
            now += 5.0
            return {}

        async def prepare_claim(self, claim: object) -> list[PreparedDevice]:
            nonlocal now
            now += 1.0
            return []

    registry = CollectorRegistry()
    nothing: Any = None
    service = ClaimService(cast("Any", Preparer()), nothing, metrics.ClaimMetrics(registry, clock=lambda: now), nothing)
    await service.prepare(ClaimRef("default", "claim", "uid"))
    method = {"method": "PrepareResourceClaims"}
    assert registry.get_sample_value("dranet_driver_dra_plugin_requests_latency_seconds_sum", method) == 1.0
    assert registry.get_sample_value("dranet_driver_dra_plugin_requests_latency_seconds_count", method) == 1
