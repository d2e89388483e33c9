"""No metric is forgotten: the reference page names exactly what a driver tells, and nobody looks for anything else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from dranet.driver.serving import metrics
from dranet.driver.serving.card_counters import FAMILIES, READ_TIME
from dranet.driver.serving.service import ClaimService
from dranet.kubelet.handler import PreparedDevice
from dranet.model.names import ClaimRef

from .test_daemon import _get, bench

ROOT = Path(__file__).parents[2]
PAGE = re.findall(r"^\| `(\w+)` \| (\w+) \|", (ROOT / "docs/reference/metrics.md").read_text(), re.MULTILINE)
NOT_NOW = {"dranet_driver_device_faults", READ_TIME, *(f"{name}_total" for name in FAMILIES)}
"""What a well node without pods and PCI cards has no series of: declared all the same; `test_health_watch.py` and
`test_card_counters.py` see them told."""
MONITORING = sorted(path for path in (ROOT / "deploy/monitoring").iterdir() if path.is_file())


@pytest.mark.usefixtures("may_make_namespaces")
async def test_every_metric_of_the_page_is_told_after_one_pods_life() -> None:
    async with bench() as b:
        pod = b.claim("card0")
        await b.node.start_pod(pod)
        await b.node.stop_pod(pod)
        _, text = await _get(b, "/metrics")
    told = {line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if line.startswith("dranet_")}
    series = {name if kind != "histogram" else f"{name}_count" for name, kind in PAGE}
    assert series - told == NOT_NOW
    assert {name for name in NOT_NOW if f"# TYPE {name} " in text} == NOT_NOW
    base = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in told}
    assert base - {re.sub(r"_total$", "", name) for name, _ in PAGE} - {name for name, _ in PAGE} == set()


@pytest.mark.parametrize("file", MONITORING, ids=lambda path: path.name)
def test_dashboards_and_alerts_ask_only_for_metrics_of_the_page(file: Path) -> None:
    asked = set(re.findall(r"dranet_driver_\w+", file.read_text()))
    known = {name + ending for name, _ in PAGE for ending in ("", "_bucket", "_sum", "_count")}
    assert asked - known == set()


async def test_the_time_of_prepare_begins_once_the_claim_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the reference's does: its library reads claims before it asks the driver."""
    now = 100.0
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now)

    class Preparer:
        async def read(self, ref: ClaimRef) -> dict[str, str]:
            nonlocal now
            now += 5.0
            return {}

        async def prepare_as_read(self, claim: object) -> list[PreparedDevice]:
            nonlocal now
            now += 1.0
            return []

    registry = CollectorRegistry()
    nothing: Any = None
    service = ClaimService(cast("Any", Preparer()), nothing, metrics.ClaimMetrics(registry), nothing)
    await service.prepare(ClaimRef("default", "claim", "uid"))
    method = {"method": "PrepareResourceClaims"}
    assert registry.get_sample_value("dranet_driver_dra_plugin_requests_latency_seconds_sum", method) == 1.0
    assert registry.get_sample_value("dranet_driver_dra_plugin_requests_latency_seconds_count", method) == 1
