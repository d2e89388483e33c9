"""Virtual functions: what a claim may ask of one, who excludes whom, and what is on disk. The rest needs real cards:
tests/vm/test_virtual_functions.py."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dranet.driver.parts.registry import PARTS
from dranet.driver.parts.vf import PART, wanted_settings
from dranet.driver.records import plan as plans
from dranet.driver.records.plan import ClaimPlan, DevicePlan, PodRef, Use
from dranet.kernel.sriov import VfSettings
from dranet.model.errors import InvalidInput
from dranet.model.netconfig_parse import parse

from .conftest import TestNode

PF = "pci-0000-62-00-0"
FOUND = VfSettings()


@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        ({"vf": {"vlan": 100, "vlanPriority": 3}}, VfSettings(vlan=100, priority=3)),
        ({"vf": {"trust": True}}, VfSettings(trust=True)),
        ({"vf": {"spoofCheck": False}}, VfSettings(spoof_check=False)),
        ({"vf": {"minRate": 10, "maxRate": 100}}, VfSettings(min_rate=10, max_rate=100)),
        ({"interface": {"hardwareAddr": "02-00-00-00-00-01"}}, VfSettings(mac="02:00:00:00:00:01")),
        ({}, FOUND),
    ],
)
def test_each_parameter_is_a_setting_of_the_physical_function(asked: dict[str, Any], settings: VfSettings) -> None:
    assert wanted_settings(FOUND, parse(asked), moved=True) == settings


def test_the_address_of_a_child_on_top_of_it_is_the_childs_own() -> None:
    asked = {"interface": {"type": "Macvlan", "hardwareAddr": "02:00:00:00:00:01"}}
    assert wanted_settings(FOUND, parse(asked), moved=False) == FOUND


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ({"vlan": 4095}, "vf.vlan"),
        ({"vlanPriority": 3}, "vf.vlanPriority"),
        ({"vlan": 1, "vlanPriority": 8}, "vf.vlanPriority"),
        ({"minRate": 200, "maxRate": 100}, "vf.minRate"),
        ({"mac": "02:00:00:00:00:01"}, "vf"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(asked: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse({"vf": asked})
    assert refused.value.problems[0].path.startswith(place)


def test_a_card_that_is_no_virtual_function_takes_none_of_it(node: TestNode) -> None:
    with pytest.raises(InvalidInput, match="vf: this device is no virtual function that the driver made"):
        node.plan("card0", config={"vf": {"trust": True}})


ROW = (
    b'{"version":2,"oldest_reader":2,"uid":"u","namespace":"default","name":"c",'
    b'"pod":{"uid":"p","name":"p","namespace":"default"},"devices":[{"device":"pci-0000-62-00-0-vf3","pool":"node",'
    b'"request":"nic","use":"pending","parts":{"vf":{"version":1,"pf":"0000:62:00.0","number":3,"was_up":false,'
    b'"found":{"mac":"02:00:00:00:00:01"},"wanted":{"mac":"02:00:00:00:00:01","vlan":100,"trust":true}}}}],'
    b'"provisional":true}'
)
"""Golden: a row as the first driver with virtual functions wrote it."""


def test_the_golden_row_is_read_and_written_word_for_word() -> None:
    plan = plans.decode(ROW)
    PARTS.check(plan)
    (device,) = plan.devices
    record = PART.of(device)
    assert record is not None
    assert (record.pf, record.number, record.was_up) == ("0000:62:00.0", 3, False)
    assert record.wanted == VfSettings(mac="02:00:00:00:00:01", vlan=100, trust=True)
    kept = PART.keep(msgspec.structs.replace(device, parts={}), record)
    assert plans.encode(msgspec.structs.replace(plan, devices=(kept,))) == ROW


def test_whole_and_part_of_a_card_are_held_by_one_claim_at_a_time(node: TestNode) -> None:
    user = PodRef(uid="p", name="p", namespace="default")
    held = DevicePlan(name=f"{PF}-vf0", pool="node", request="r", use=Use.PENDING)
    node.store.put(ClaimPlan(uid="u", namespace="default", name="c", pod=user, devices=(held,)))
    holders = {name: node.store.holder(name, other_than="") for name in (PF, f"{PF}-vf0", f"{PF}-vf1")}
    assert holders == {PF: "claim default/c of pod p", f"{PF}-vf0": "claim default/c of pod p", f"{PF}-vf1": None}
