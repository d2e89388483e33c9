"""Stored rows: every row ever written can be read, and the previous driver can read what this one writes.

`records/version-N.json` holds rows written by the driver of that version on real links: full plans, both sides. A new
version adds a file; none is ever changed. `first_version.py` is how the first driver reads them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dranet.node.features.registry import FEATURES
from dranet.node.records import plan as plans
from dranet.node.records.kernel_rows import LinkRow
from dranet.node.records.plan import AttachMode, ClaimPlan

from . import first_version
from .conftest import TestNode
from .test_detach import RICH

GOLDEN = Path(__file__).parent / "records"
USES = {
    "moved-with-rdma-and-lease": AttachMode.MOVED,
    "moved-nothing-asked": AttachMode.MOVED,
    "moved-into-a-vrf": AttachMode.MOVED,
    "moved-without-bpf": AttachMode.MOVED,
    "rdma-only": AttachMode.RDMA_ONLY,
    "admin-with-rdma": AttachMode.ADMIN,
    "admin-without-rdma": AttachMode.ADMIN,
    "provisional": AttachMode.PENDING,
}


def rows() -> list[Any]:
    found = [(path.stem, name, row) for path in sorted(GOLDEN.glob("*.json")) for name, row in _read(path).items()]
    return [pytest.param(name, msgspec.json.encode(row), id=f"{version} {name}") for version, name, row in found]


def _read(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text())
    return read


def test_every_format_has_a_golden_file() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.json")) == [f"version-{n + 1}" for n in range(plans.VERSION)]


@pytest.mark.parametrize(("name", "raw"), rows())
def test_rows_of_every_format_are_read(name: str, raw: bytes) -> None:
    plan = plans.decode(raw)
    FEATURES.check(plan)
    assert {device.mode for device in plan.devices} == {USES[name]}


@pytest.mark.parametrize(("name", "raw"), rows())
def test_rewritten_row_is_readable_for_the_first_version(name: str, raw: bytes) -> None:
    assert first_version.decode(plans.encode(plans.decode(raw))) == first_version.decode(raw)


@pytest.mark.parametrize(("name", "raw"), rows())
def test_rewriting_a_row_loses_nothing(name: str, raw: bytes) -> None:
    plan = plans.decode(raw)
    assert plans.decode(plans.encode(plan)) == plan


@pytest.mark.parametrize(("name", "raw"), rows())
def test_row_rewritten_by_the_first_version_loses_nothing(name: str, raw: bytes) -> None:
    plan = plans.decode(raw)
    assert plans.decode(msgspec.json.encode(first_version.decode(plans.encode(plan)))) == plan


@pytest.mark.parametrize("config", [None, RICH, {"interface": {"vrf": {"name": "blue"}}}], ids=["plain", "rich", "vrf"])
def test_new_plan_is_readable_for_the_first_version(node: TestNode, config: object) -> None:
    node.run("ip", "route", "add", "10.78.0.0/16", "via", "10.1.0.254", "dev", "nic0", "table", "100")
    node.run("ip", "rule", "add", "from", "10.20.30.0/24", "table", "100", "priority", "500")
    node.run("ip", "neigh", "add", "10.1.0.9", "lladdr", "00:11:22:33:44:55", "dev", "nic0", "nud", "permanent")
    plan = plans.decode(plans.encode(node.plan("nic0", config=config)))
    passed = plans.decode(msgspec.json.encode(first_version.decode(plans.encode(plan))))
    assert passed == without_what_came_later(plan)


def without_what_came_later(plan: ClaimPlan) -> ClaimPlan:
    """The first driver loses what it does not know; then it is not put back, as it never was by that driver."""
    later = {"broadcast": None, "link_mode": None, "gso_max_segs": None, "ipv6_token": None}
    devices = []
    for device in plan.devices:
        assert device.host_state is not None
        link = msgspec.structs.replace(device.host_state.link, **later)
        found = msgspec.structs.replace(device.host_state, link=link, saved_settings=None, nexthops=())
        devices.append(msgspec.structs.replace(device, host_state=found))
    return msgspec.structs.replace(plan, devices=tuple(devices))


def test_link_row_ignores_unknown_fields(node: TestNode) -> None:
    """One more field in the kernel's record, or in tomorrow's row, makes no store unreadable."""
    (device,) = node.plan("nic0").devices
    assert device.host_state is not None
    required = {field.name for field in msgspec.structs.fields(first_version.Link) if field.required}
    assert required <= set(msgspec.to_builtins(device.host_state.link))
    raw = msgspec.json.encode({"index": 2, "name": "nic0", "a field of tomorrow": {"x": 1}})
    assert msgspec.json.decode(raw, type=LinkRow).name == "nic0"


def test_plan_with_a_later_feature_requires_a_newer_reader(node: TestNode) -> None:
    (device,) = node.plan("nic0").devices
    plan = node.plan("nic0")
    assert plans.oldest_reader(plan) == 1
    later = msgspec.structs.replace(device, feature_records={"beacon": {"version": 1}})
    assert plans.oldest_reader(msgspec.structs.replace(plan, devices=(device, later))) == 2
    shared = msgspec.structs.replace(device, mode=AttachMode.SHARED)
    assert b'"oldest_reader":2' in plans.encode(msgspec.structs.replace(plan, devices=(shared,)))
