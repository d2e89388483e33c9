"""What is on disk: every row ever written can be read, and the driver before this one can read what this one writes.

`records/version-N.json` holds rows written by the driver of that version on real links: full plans, both sides. A new
version adds a file; none is ever changed. `first_version.py` is how the first driver reads them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dranet.driver.parts.registry import PARTS
from dranet.driver.records import plan as plans
from dranet.driver.records.kernel_rows import LinkRow
from dranet.driver.records.plan import ClaimPlan, Use

from . import first_version
from .conftest import TestNode
from .test_home import RICH

GOLDEN = Path(__file__).parent / "records"
USES = {
    "moved-with-rdma-and-lease": Use.MOVED,
    "moved-nothing-asked": Use.MOVED,
    "moved-into-a-vrf": Use.MOVED,
    "moved-without-bpf": Use.MOVED,
    "rdma-only": Use.RDMA_ONLY,
    "admin-with-rdma": Use.ADMIN,
    "admin-without-rdma": Use.ADMIN,
    "provisional": Use.PENDING,
}


def rows() -> list[Any]:
    found = [(path.stem, name, row) for path in sorted(GOLDEN.glob("*.json")) for name, row in _read(path).items()]
    return [pytest.param(name, msgspec.json.encode(row), id=f"{version} {name}") for version, name, row in found]


def _read(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text())
    return read


def test_there_is_a_golden_file_for_every_version() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.json")) == [f"version-{n + 1}" for n in range(plans.VERSION)]


@pytest.mark.parametrize(("name", "raw"), rows())
def test_every_row_ever_written_can_be_read_and_says_what_the_claim_has(name: str, raw: bytes) -> None:
    plan = plans.decode(raw)
    PARTS.check(plan)
    assert {device.use for device in plan.devices} == {USES[name]}


@pytest.mark.parametrize(("name", "raw"), rows())
def test_a_row_written_anew_says_the_same_to_the_first_driver(name: str, raw: bytes) -> None:
    assert first_version.decode(plans.encode(plans.decode(raw))) == first_version.decode(raw)


@pytest.mark.parametrize(("name", "raw"), rows())
def test_nothing_is_lost_when_a_row_is_written_anew(name: str, raw: bytes) -> None:
    plan = plans.decode(raw)
    assert plans.decode(plans.encode(plan)) == plan


@pytest.mark.parametrize(("name", "raw"), rows())
def test_a_row_that_the_first_driver_took_over_and_wrote_again_has_lost_nothing(name: str, raw: bytes) -> None:
    plan = plans.decode(raw)
    assert plans.decode(msgspec.json.encode(first_version.decode(plans.encode(plan)))) == plan


@pytest.mark.parametrize("config", [None, RICH, {"interface": {"vrf": {"name": "blue"}}}], ids=["plain", "rich", "vrf"])
def test_a_plan_made_now_passes_through_the_first_driver(node: TestNode, config: object) -> None:
    node.run("ip", "route", "add", "10.78.0.0/16", "via", "10.1.0.254", "dev", "card0", "table", "100")
    node.run("ip", "rule", "add", "from", "10.20.30.0/24", "table", "100", "priority", "500")
    node.run("ip", "neigh", "add", "10.1.0.9", "lladdr", "00:11:22:33:44:55", "dev", "card0", "nud", "permanent")
    plan = plans.decode(plans.encode(node.plan("card0", config=config)))
    passed = plans.decode(msgspec.json.encode(first_version.decode(plans.encode(plan))))
    assert passed == without_what_came_later(plan)


def without_what_came_later(plan: ClaimPlan) -> ClaimPlan:
    """The first driver loses what it does not know; then it is not put back, as it never was by that driver."""
    later = {"broadcast": None, "link_mode": None, "gso_max_segs": None}
    devices = []
    for device in plan.devices:
        assert device.found is not None
        link = msgspec.structs.replace(device.found.link, **later)
        found = msgspec.structs.replace(device.found, link=link, unasked=None)
        devices.append(msgspec.structs.replace(device, found=found))
    return msgspec.structs.replace(plan, devices=tuple(devices))


def test_the_row_of_a_link_is_ours_and_read_without_what_it_does_not_know(node: TestNode) -> None:
    """One more field in the kernel's record, or in tomorrow's row, makes no store unreadable."""
    (device,) = node.plan("card0").devices
    assert device.found is not None
    required = {field.name for field in msgspec.structs.fields(first_version.Link) if field.required}
    assert required <= set(msgspec.to_builtins(device.found.link))
    raw = msgspec.json.encode({"index": 2, "name": "card0", "a field of tomorrow": {"x": 1}})
    assert msgspec.json.decode(raw, type=LinkRow).name == "card0"


def test_a_plan_with_a_part_that_came_later_says_that_the_first_driver_will_not_do(node: TestNode) -> None:
    (device,) = node.plan("card0").devices
    plan = node.plan("card0")
    assert plans.oldest_reader(plan) == 1
    later = msgspec.structs.replace(device, parts={"beacon": {"version": 1}})
    assert plans.oldest_reader(msgspec.structs.replace(plan, devices=(device, later))) == 2
    shared = msgspec.structs.replace(device, use=Use.SHARED)
    assert b'"oldest_reader":2' in plans.encode(msgspec.structs.replace(plan, devices=(shared,)))
