"""Fixtures for this tier's own tests; those of the machine are in world.py, for shared test bodies need them too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dranet.node.edits.readiness_gate import ReadinessGates
from dranet.node.lifecycle.device_lifecycle import DeviceLifecycle
from dranet.node.namespaces import Host
from dranet.node.store import Store
from tests.vm.parts import Driver
from tests.vm.world import NamedNamespace, named_namespace


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    host = Host.open()
    store = Store(str(tmp_path / "store.db"))
    gates = ReadinessGates(str(tmp_path / "cdi"))
    lifecycle = DeviceLifecycle(host, store, gates)
    yield Driver(host, store, lifecycle, gates)
    lifecycle.close()
    store.close()
    host.close()


@pytest.fixture
def other_pod(pod: NamedNamespace) -> Iterator[NamedNamespace]:
    with named_namespace("other-pod") as namespace:
        yield namespace
