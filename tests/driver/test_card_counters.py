"""Counters of claimed cards at /metrics: whose they are, and that they go with the claim."""

from __future__ import annotations

import time

from prometheus_client.parser import text_string_to_metric_families

from dranet.driver.serving.card_counters import READ_TIME, CardCounters, Owner
from dranet.health.reading import CardReading

OWNER = Owner("ml", "worker-3", "nics")
WHOSE = {"claim": "nics", "device": "pci-0", "namespace": "ml", "pod": "worker-3"}
CARD = CardReading(
    device="pci-0",
    at=1.0,
    holder="uid-1",
    traffic={"rx_bytes": 10, "port_xmit_data": 25, "rx_dropped": 3, "np_cnp_sent": 4},
    counters={"symbol_error": 5, "port_xmit_discards": 6},
)


def told(*cards: CardReading, owners: dict[str, Owner] | None = None) -> set[object]:
    counters = CardCounters()
    counters.cards, counters.owners = cards, lambda: {"uid-1": OWNER} if owners is None else owners
    families = text_string_to_metric_families(counters.text())
    samples = [sample for family in families for sample in family.samples if sample.name != READ_TIME]
    return {(s.name, frozenset(s.labels.items()), s.value) for s in samples}


def series(name: str, value: float, **labels: str) -> tuple[str, frozenset[tuple[str, str]], float]:
    return f"dranet_driver_card_{name}_total", frozenset({**WHOSE, **labels}.items()), value


def test_each_counter_is_told_once_in_the_metric_of_its_kind_with_its_owner() -> None:
    assert told(CARD) == {
        series("bytes", 10, path="interface", direction="receive"),
        series("bytes", 100, path="rdma", direction="transmit"),
        series("drops", 3, counter="rx_dropped"),
        series("drops", 6, counter="port_xmit_discards"),
        series("congestion", 4, counter="np_cnp_sent"),
        series("errors", 5, counter="symbol_error"),
    }


def test_a_card_that_nobody_has_is_left_to_the_node_s_own_exporters() -> None:
    assert told(CardReading(device="pci-0", at=1.0, counters={"symbol_error": 5})) == set()


def test_the_series_of_a_claim_go_with_it() -> None:
    assert told(CARD, owners={}) == set()


def test_the_time_told_is_that_of_the_reading_and_not_of_the_scrape() -> None:
    counters = CardCounters()
    counters.cards = [CardReading(device="pci-0", at=time.monotonic() - 100)]
    (line,) = [line for line in counters.text().splitlines() if line.startswith(f"{READ_TIME} ")]
    assert time.time() - 110 < float(line.split()[1]) < time.time() - 99
