"""Metrics: those of the reference driver under its names, faults, and counters of claimed devices.

Hook histograms start at one millisecond: a hook has two seconds at most, and usually takes a few milliseconds.

Claimed devices have counters here because the node's own exporters do not see into pods. The health watch reads them,
so a scrape reads nothing: its values are a few seconds old. A device has a fixed set of counters and one claim: two or
three dozen series, which disappear with the claim.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from dranet.core import attributes
from dranet.core.device import Device
from dranet.node.health.checks import Finding
from dranet.node.health.readings import DeviceReading
from dranet.node.store import Store

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 5.0, 10.0)

OWNER_LABELS = ("device", "namespace", "pod", "claim")
_BYTES, _ERRORS, _DROPS, _CONGESTION = (
    f"dranet_driver_card_{what}" for what in ("bytes", "errors", "drops", "congestion")
)
DEVICE_COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    _BYTES: (
        "bytes of claimed devices; RDMA bytes are the port's own counters, which most NICs count separately",
        ("path", "direction"),
    ),
    _ERRORS: ("errors of claimed devices, by the kernel's counter name", ("counter",)),
    _DROPS: ("packets that claimed devices dropped, by the kernel's counter name", ("counter",)),
    _CONGESTION: (
        "congestion marks, notifications and waits of claimed devices, by the kernel's counter name",
        ("counter",),
    ),
}
"""The help text of each metric, and its labels besides `OWNER_LABELS`."""
READ_TIME = "dranet_driver_cards_read_time_seconds"
READ_TIME_HELP = "when the counters of the devices were read; divide by its differences for exact rates"
_BYTE_COUNTERS = {
    "rx_bytes": ('path="interface",direction="receive"', 1),
    "tx_bytes": ('path="interface",direction="transmit"', 1),
    # RDMA ports count words of four bytes.
    "port_rcv_data": ('path="rdma",direction="receive"', 4),
    "port_xmit_data": ('path="rdma",direction="transmit"', 4),
}
_DROP_COUNTERS = frozenset({"rx_dropped", "tx_dropped", "port_xmit_discards"})
_PAUSE_COUNTERS = frozenset({"rx_pause_frames", "tx_pause_frames", "port_xmit_wait"})
_CONGESTION_COUNTERS = _PAUSE_COUNTERS | {"np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled"}


class _Outcome:
    """The outcome of a hook; success by default."""

    def __init__(self) -> None:
        self.status = "success"

    def noop(self) -> None:
        """The pod has no claims; such hooks are counted separately, because they would hide the others."""
        self.status = "noop"


class HookMetrics:
    """Counts and times the runtime's hooks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        name = "dranet_driver_nri_plugin_requests"
        self._total = Counter(f"{name}_total", "NRI hooks by outcome", ["method", "status"], registry=registry)
        self._seconds = Histogram(
            f"{name}_latency_seconds", "time of NRI hooks", ["method", "status"], buckets=_BUCKETS, registry=registry
        )
        self._known: dict[tuple[str, str], tuple[Counter, Histogram]] = {}

    def _labelled(self, method: str, status: str) -> tuple[Counter, Histogram]:
        """Cached: the library checks its labels at every use, which is measurable in a hook without claims."""
        key = method, status
        if key not in self._known:
            self._known[key] = self._total.labels(*key), self._seconds.labels(*key)
        return self._known[key]

    @contextmanager
    def observe(self, method: str) -> Iterator[_Outcome]:
        """Count and time the block by its outcome; failed where it raises."""
        outcome, start = _Outcome(), time.perf_counter()
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

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        name = "dranet_driver_dra_plugin_requests"
        self._total = Counter(f"{name}_total", "DRA calls by outcome", ["method", "status"], registry=registry)
        self._seconds = Histogram(
            f"{name}_latency_seconds",
            "time of DRA calls, without reading the claim from the API server",
            ["method"],
            buckets=_BUCKETS,
            registry=registry,
        )

    @contextmanager
    def observe(self, method: str) -> Iterator[_Clock]:
        """Count and time the block; failed where it raises."""
        status, clock = "failed", _Clock(self._clock)
        try:
            yield clock
            status = "success"
        finally:
            taken = clock.seconds()
            self._total.labels(method, status).inc()
            self._seconds.labels(method).observe(taken)


class _Clock:
    """Runs from the start of a call, or from its last restart: drivers that use Kubernetes' own library start the clock
    once the library has read the claim, and metrics of the same name must be comparable."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.start()

    def start(self) -> None:
        self._began = self._clock()

    def seconds(self) -> float:
        return self._clock() - self._began


class PublishMetrics:
    """The devices that were last published."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._devices = Gauge(
            "dranet_driver_published_devices_total", "devices published", ["feature"], registry=registry
        )
        self._time = Gauge(
            "dranet_driver_last_published_time_seconds", "when devices were last published", registry=registry
        )

    def published(self, devices: Sequence[Device]) -> None:
        """The API server has accepted these devices."""
        self._devices.labels("total").set(len(devices))
        self._devices.labels("rdma").set(sum(1 for d in devices if d.attributes.get(attributes.RDMA) is True))
        self._time.set(time.time())


class FaultMetrics:
    """The current faults."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._faults = Gauge(
            "dranet_driver_device_faults",
            "1 for each fault that a device has now; an empty device is the node itself",
            ["device", "fault", "severity"],
            registry=registry,
        )
        self.checks = Counter("dranet_driver_health_checks", "health checks of all devices", registry=registry)

    def set(self, findings: Sequence[Finding]) -> None:
        self._faults.clear()
        for finding in findings:
            self._faults.labels(finding.device, str(finding.fault), finding.severity).set(1)


class Owner(NamedTuple):
    """The claim and pod that a device belongs to, as labels."""

    namespace: str
    pod: str
    claim: str


def owners(store: Store) -> dict[str, Owner]:
    """By claim UID."""
    return {plan.uid: Owner(plan.namespace, plan.pod.name, plan.name) for plan in store.plans.values()}


class DeviceCounters:
    """The counters of the last health check, in the text format of Prometheus. Built by hand: with the Prometheus
    client's own families the four hundred series of sixteen NICs take five times as long, more than the rest of a
    scrape."""

    def __init__(self) -> None:
        self.readings: Sequence[DeviceReading] = ()
        self.owners: Callable[[], Mapping[str, Owner]] = dict

    def text(self) -> str:
        # Names of devices, pods and claims are DNS labels, so they need no escaping.
        known, readings = self.owners(), self.readings
        lines: dict[str, list[str]] = {name: [] for name in DEVICE_COUNTERS}
        for one in readings:
            owner = known.get(one.claim)
            if owner is not None:
                labels = f'device="{one.device}",namespace="{owner.namespace}",pod="{owner.pod}",claim="{owner.claim}"'
                for name, more, value in _series(one):
                    lines[name].append(f"{name}_total{{{labels},{more}}} {value}\n")
        return _read_time(readings) + "".join(
            f"# HELP {name}_total {meaning}\n# TYPE {name}_total counter\n{''.join(lines[name])}"
            for name, (meaning, _) in DEVICE_COUNTERS.items()
        )


def _read_time(readings: Sequence[DeviceReading]) -> str:
    boot_time = time.time() - time.monotonic()
    line = "".join(f"{READ_TIME} {one.at + boot_time:.3f}\n" for one in readings[:1])
    return f"# HELP {READ_TIME} {READ_TIME_HELP}\n# TYPE {READ_TIME} gauge\n{line}"


def _series(reading: DeviceReading) -> Iterator[tuple[str, str, int]]:
    for counters in (reading.traffic, reading.counters):
        for counter, value in counters.items():
            if counter in _BYTE_COUNTERS:
                labels, size = _BYTE_COUNTERS[counter]
                yield _BYTES, labels, value * size
            else:
                is_drop, is_congestion = counter in _DROP_COUNTERS, counter in _CONGESTION_COUNTERS
                yield _DROPS if is_drop else _CONGESTION if is_congestion else _ERRORS, f'counter="{counter}"', value


class Metrics:
    """All metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.hooks = HookMetrics(self.registry)
        self.claims = ClaimMetrics(self.registry)
        self.publish = PublishMetrics(self.registry)
        self.faults = FaultMetrics(self.registry)
        self.devices = DeviceCounters()

    def text(self) -> bytes:
        """The reply of /metrics."""
        return generate_latest(self.registry) + self.devices.text().encode()
