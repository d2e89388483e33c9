"""The reference's metrics, under its names, and the HTTP side's view of them.

Hook histograms start at one millisecond: a hook has two seconds at most, and what matters happens far below.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from dranet.driver.serving.card_counters import CardCounters
from dranet.health.judging import Finding
from dranet.model import attributes
from dranet.model.device import Device

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 5.0, 10.0)


class Outcome:
    """How a hook ended; success unless said otherwise."""

    def __init__(self) -> None:
        self.status = "success"

    def noop(self) -> None:
        """The hook was none of our business; such hooks are counted apart, or they would hide the others."""
        self.status = "noop"


class HookMetrics:
    """Counts and times the runtime's hooks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        name = "dranet_driver_nri_plugin_requests"
        self._total = Counter(f"{name}_total", "NRI hooks by outcome", ["method", "status"], registry=registry)
        self._seconds = Histogram(
            f"{name}_latency_seconds", "time of NRI hooks", ["method", "status"], buckets=BUCKETS, registry=registry
        )
        self._known: dict[tuple[str, str], tuple[Counter, Histogram]] = {}

    def _labelled(self, method: str, status: str) -> tuple[Counter, Histogram]:
        """Looked up once: the library checks its labels at every use, which a hook without claims would notice."""
        key = method, status
        if key not in self._known:
            self._known[key] = self._total.labels(*key), self._seconds.labels(*key)
        return self._known[key]

    @contextmanager
    def observe(self, method: str) -> Iterator[Outcome]:
        """Counts and times the block; the outcome is what the block says, or failed where it raises."""
        outcome, start = Outcome(), time.perf_counter()
        try:
            yield outcome
        except BaseException:
            outcome.status = "failed"
            raise
        finally:
            total, seconds = self._labelled(method, outcome.status)
            total.inc()
            seconds.observe(time.perf_counter() - start)


class ClaimMetrics:
    """Counts and times the kubelet's calls."""

    def __init__(self, registry: CollectorRegistry) -> None:
        name = "dranet_driver_dra_plugin_requests"
        self._total = Counter(f"{name}_total", "DRA calls by outcome", ["method", "status"], registry=registry)
        self._seconds = Histogram(
            f"{name}_latency_seconds",
            "time of DRA calls, without reading the claim from the API server",
            ["method"],
            buckets=BUCKETS,
            registry=registry,
        )

    @contextmanager
    def observe(self, method: str) -> Iterator[Clock]:
        """Counts and times the block as a success, or as failed where it raises."""
        status, clock = "failed", Clock()
        try:
            yield clock
            status = "success"
        finally:
            taken = clock.seconds()
            self._total.labels(method, status).inc()
            self._seconds.labels(method).observe(taken)


class Clock:
    """Runs from the beginning of a call, or from where it is started again: drivers that are made with Kubernetes' own
    library time a call once the library has read the claim, and figures of the same name must be comparable."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self._began = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._began


class PublishMetrics:
    """What was last handed to the API server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._devices = Gauge(
            "dranet_driver_published_devices_total", "devices published", ["feature"], registry=registry
        )
        self._time = Gauge(
            "dranet_driver_last_published_time_seconds", "when devices were last published", registry=registry
        )

    def published(self, devices: Sequence[Device]) -> None:
        """Called once the API server has taken these devices."""
        self._devices.labels("total").set(len(devices))
        self._devices.labels("rdma").set(sum(1 for d in devices if d.attributes.get(attributes.RDMA) is True))
        self._time.set(time.time())


class FaultMetrics:
    """What is wrong now."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._faults = Gauge(
            "dranet_driver_device_faults",
            "1 for each fault that a device has now; an empty device is the node itself",
            ["device", "fault", "severity"],
            registry=registry,
        )
        self.looks = Counter("dranet_driver_health_looks", "looks at the health of all cards", registry=registry)

    def set(self, findings: Sequence[Finding]) -> None:
        self._faults.clear()
        for finding in findings:
            self._faults.labels(finding.device, str(finding.fault), finding.severity).set(1)


class Metrics:
    """All of them, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.hooks = HookMetrics(self.registry)
        self.claims = ClaimMetrics(self.registry)
        self.publish = PublishMetrics(self.registry)
        self.faults = FaultMetrics(self.registry)
        self.cards = CardCounters()

    def text(self) -> bytes:
        """What /metrics answers."""
        return generate_latest(self.registry) + self.cards.text().encode()
