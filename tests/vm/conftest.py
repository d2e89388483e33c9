"""Fixtures for this tier's own tests; those of the machine are in world.py, for shared test bodies need them too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dranet.driver.moving.cards import Cards
from dranet.driver.moving.receipt import Receipts
from dranet.driver.namespaces import Host
from dranet.driver.store import Store
from tests.vm.parts import Driver
from tests.vm.world import NamedNamespace, named_namespace


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    host = Host.open()
    store = Store(str(tmp_path / "store.db"))
    receipts = Receipts(str(tmp_path / "cdi"))
    cards = Cards(host, store, receipts)
    yield Driver(host, store, cards, receipts)
    cards.close()
    store.close()
    host.close()


@pytest.fixture
def other_pod(pod: NamedNamespace) -> Iterator[NamedNamespace]:
    with named_namespace("other-pod") as namespace:
        yield namespace
