"""`dranet check` on a made machine: verdicts, formats, exit status."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from dranet.cli.check import check
from dranet.sandbox.sysfs_tree import write_sysfs
from dranet.topology.shape import load_shape

SHAPE = "nd-gb300-v6"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The sysfs of a GB300 machine; its four cards are InfiniBand and none of its interfaces is in our namespace."""
    write_sysfs(load_shape(SHAPE), tmp_path)
    for device in (tmp_path / "class/infiniband").iterdir():
        (device / "fw_ver").write_text("40.44.1036\n")
    return tmp_path


def run(machine: Path, *more: str) -> Result:
    return CliRunner().invoke(check, ["--sysfs", str(machine), "--seconds", "0", "--node", "n1", *more])


def findings(machine: Path, *more: str) -> list[tuple[str, str]]:
    result = run(machine, "-o", "json", *more)
    return [
        (f["device"], f["fault"]) for f in json.loads(result.output)["findings"] if f["fault"] != "netdev-elsewhere"
    ]


def devices(machine: Path) -> list[str]:
    return [d["device"] for d in json.loads(run(machine, "-o", "json").output)["devices"]]


def test_a_machine_like_its_description_has_no_fault(machine):
    assert findings(machine, "--shape", SHAPE) == []
    assert len(devices(machine)) == 4


def test_a_card_that_left_the_bus_is_missed(machine):
    nic = load_shape(SHAPE).nics[0]
    (machine / "bus/pci/devices" / str(nic.pci)).unlink()
    for device in (machine / "class/infiniband").iterdir():
        if str(nic.pci) in str((device / "device").resolve()):
            device.unlink()
    assert ("", "card-missing") in findings(machine, "--shape", SHAPE)


def test_a_card_with_other_firmware_is_named_and_degraded_is_not_a_failure_by_default(machine):
    odd = sorted((machine / "class/infiniband").iterdir())[1]
    (odd / "fw_ver").write_text("1.0\n")
    ((device, fault),) = findings(machine)
    assert fault == "firmware-mismatch"
    policy = machine / "policy.toml"
    policy.write_text('[netdev-elsewhere]\nseverity = "off"\n')
    assert run(machine, "--policy", str(policy)).exit_code == 0
    assert run(machine, "--policy", str(policy), "--fail-on", "degraded").exit_code == 1
    assert f"degraded: {device}: firmware 1.0 where its siblings have 40.44.1036" in run(machine).output


def test_what_the_kernel_does_not_tell_is_said(machine):
    assert "not told by the kernel:" in run(machine).output


def test_junit_has_a_case_a_card_and_one_for_the_node(machine):
    suite = ElementTree.fromstring(run(machine, "-o", "junit").output)
    assert [case.get("name") for case in suite] == ["node", *devices(machine)]


def test_a_policy_that_is_wrong_ends_the_check_in_words(machine):
    policy = machine / "policy.toml"
    policy.write_text("[speed]\nseen = 1\n")
    result = run(machine, "--policy", str(policy))
    assert "no such fault" in str(result.exception)
