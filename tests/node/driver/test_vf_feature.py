"""Virtual functions: what a claim may ask of one, who excludes whom, and what is on disk. The rest needs real NICs:
tests/vm/test_virtual_functions.py."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dranet.core.errors import InvalidInput
from dranet.core.netconfig_parse import parse
from dranet.linux.sriov import VfSettings
from dranet.node.features.registry import FEATURES
from dranet.node.features.vf import FEATURE, wanted_settings
from dranet.node.records import plan as plans
from dranet.node.records.plan import AttachMode, DevicePlan

from .conftest import TestNode, claim_plan

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
def test_parameters_are_set_on_the_physical_function(asked: dict[str, Any], settings: VfSettings) -> None:
    assert wanted_settings(FOUND, parse(asked), moved=True) == settings


def test_child_of_a_vf_has_its_own_mac() -> None:
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
def test_invalid_vf_settings_are_refused_with_their_path(asked: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse({"vf": asked})
    assert refused.value.problems[0].path.startswith(place)


def test_nic_that_is_not_a_vf_refuses_vf_settings(node: TestNode) -> None:
    with pytest.raises(InvalidInput, match="vf: this device is not a virtual function that the driver created"):
        node.plan("nic0", config={"vf": {"trust": True}})


ROW = (
    b'{"version":2,"oldest_reader":2,"uid":"u","namespace":"default","name":"c",'
    b'"pod":{"uid":"p","name":"p","namespace":"default"},"devices":[{"device":"pci-0000-62-00-0-vf3","pool":"node",'
    b'"request":"nic","use":"pending","parts":{"vf":{"version":1,"pf":"0000:62:00.0","number":3,"was_up":false,'
    b'"found":{"mac":"02:00:00:00:00:01"},"wanted":{"mac":"02:00:00:00:00:01","vlan":100,"trust":true}}}}],'
    b'"provisional":true}'
)
"""Golden: a row as the first driver with virtual functions wrote it."""


def test_golden_row_is_read_and_written_unchanged() -> None:
    plan = plans.decode(ROW)
    FEATURES.check(plan)
    (device,) = plan.devices
    record = FEATURE.record_of(device)
    assert record is not None
    assert (record.pf, record.number, record.was_up) == ("0000:62:00.0", 3, False)
    assert record.wanted == VfSettings(mac="02:00:00:00:00:01", vlan=100, trust=True)
    kept = FEATURE.with_record(msgspec.structs.replace(device, feature_records={}), record)
    assert plans.encode(msgspec.structs.replace(plan, devices=(kept,))) == ROW


def test_pf_and_vf_exclude_each_other(node: TestNode) -> None:
    held = DevicePlan(name=f"{PF}-vf0", pool="node", request="r", mode=AttachMode.PENDING)
    node.store.put(claim_plan(held, uid="c", pod="p"))
    holders = {name: node.store.holder(name, other_than="") for name in (PF, f"{PF}-vf0", f"{PF}-vf1")}
    assert holders == {PF: "claim default/c of pod p", f"{PF}-vf0": "claim default/c of pod p", f"{PF}-vf1": None}
