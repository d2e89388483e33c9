"""`dranet check` on a made machine: verdicts, formats, exit status."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from dranet.cli.check import check
from dranet.machines.shape import load_shape
from dranet.testing.sysfs_tree import write_sysfs

SHAPE = "nd-gb300-v6"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The sysfs of a GB300 machine; its four NICs are InfiniBand and none of its interfaces is in our namespace."""
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


def test_finds_no_fault_on_a_machine_that_matches_its_shape(machine: Path) -> None:
    assert findings(machine, "--shape", SHAPE) == []
    assert len(devices(machine)) == 4


def test_reports_a_nic_missing_from_the_bus(machine: Path) -> None:
    nic = load_shape(SHAPE).nics[0]
    (machine / "bus/pci/devices" / str(nic.pci)).unlink()
    for device in (machine / "class/infiniband").iterdir():
        if str(nic.pci) in str((device / "device").resolve()):
            device.unlink()
    assert ("", "card-missing") in findings(machine, "--shape", SHAPE)
    policy = machine / "policy.toml"
    policy.write_text('[netdev-elsewhere]\nseverity = "off"\n')
    assert run(machine, "--policy", str(policy)).exit_code == 0
    assert run(machine, "--policy", str(policy), "--shape", SHAPE).exit_code == 1
    assert run(machine, "--policy", str(policy), "--shape", SHAPE, "--fail-on", "never").exit_code == 0


def test_reports_other_firmware_without_failing_by_default(machine: Path) -> None:
    odd = sorted((machine / "class/infiniband").iterdir())[1]
    (odd / "fw_ver").write_text("1.0\n")
    ((device, fault),) = findings(machine)
    assert fault == "firmware-mismatch"
    policy = machine / "policy.toml"
    policy.write_text('[netdev-elsewhere]\nseverity = "off"\n')
    assert run(machine, "--policy", str(policy)).exit_code == 0
    assert run(machine, "--policy", str(policy), "--fail-on", "degraded").exit_code == 1
    assert f"degraded: {device}: firmware 1.0, its peers have 40.44.1036" in run(machine).output


def test_reports_what_the_kernel_does_not_expose(machine: Path) -> None:
    assert "not reported by the kernel:" in run(machine).output


def test_junit_has_one_case_a_nic_and_one_for_the_node(machine: Path) -> None:
    suite = ElementTree.fromstring(run(machine, "-o", "junit").output)
    assert [case.get("name") for case in suite] == ["node", *devices(machine)]


def test_rejects_an_invalid_policy(machine: Path) -> None:
    policy = machine / "policy.toml"
    policy.write_text("[speed]\nseen = 1\n")
    result = run(machine, "--policy", str(policy))
    assert "unknown fault" in str(result.exception)
