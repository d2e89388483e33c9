"""Counters of claimed NICs at /metrics: their labels, and that they disappear with the claim."""

from __future__ import annotations

import time

from prometheus_client.parser import text_string_to_metric_families

from dranet.node.health.readings import DeviceReading
from dranet.node.server.metrics import READ_TIME, DeviceCounters, Owner

OWNER = Owner("ml", "worker-3", "nics")
WHOSE = {"claim": "nics", "device": "pci-0", "namespace": "ml", "pod": "worker-3"}
NIC = DeviceReading(
    device="pci-0",
    at=1.0,
    claim="uid-1",
    traffic={"rx_bytes": 10, "port_xmit_data": 25, "rx_dropped": 3, "np_cnp_sent": 4},
    counters={"symbol_error": 5, "port_xmit_discards": 6},
)


def exported(*nics: DeviceReading, owners: dict[str, Owner] | None = None) -> set[object]:
    counters = DeviceCounters()
    counters.readings, counters.owners = nics, lambda: {"uid-1": OWNER} if owners is None else owners
    families = text_string_to_metric_families(counters.text())
    samples = [sample for family in families for sample in family.samples if sample.name != READ_TIME]
    return {(s.name, frozenset(s.labels.items()), s.value) for s in samples}


def series(name: str, value: float, **labels: str) -> tuple[str, frozenset[tuple[str, str]], float]:
    return f"dranet_driver_card_{name}_total", frozenset({**WHOSE, **labels}.items()), value


def test_each_counter_is_exported_once_with_its_owner() -> None:
    assert exported(NIC) == {
        series("bytes", 10, path="interface", direction="receive"),
        series("bytes", 100, path="rdma", direction="transmit"),
        series("drops", 3, counter="rx_dropped"),
        series("drops", 6, counter="port_xmit_discards"),
        series("congestion", 4, counter="np_cnp_sent"),
        series("errors", 5, counter="symbol_error"),
    }


def test_unclaimed_device_has_no_counters() -> None:
    assert exported(DeviceReading(device="pci-0", at=1.0, counters={"symbol_error": 5})) == set()


def test_series_disappear_with_the_claim() -> None:
    assert exported(NIC, owners={}) == set()


def test_read_time_is_that_of_the_reading() -> None:
    counters = DeviceCounters()
    counters.readings = [DeviceReading(device="pci-0", at=time.monotonic() - 100)]
    (line,) = [line for line in counters.text().splitlines() if line.startswith(f"{READ_TIME} ")]
    assert time.time() - 110 < float(line.split()[1]) < time.time() - 99
