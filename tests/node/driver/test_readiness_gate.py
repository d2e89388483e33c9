"""Readiness gates."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dranet.core.errors import DranetError
from dranet.node.edits.container_edits import cdi_device_name
from dranet.node.edits.readiness_gate import ReadinessGates
from dranet.node.records.plan import CharDevice, ClaimPlan, DevicePlan, PodConfig, PodRef, RdmaRecord

NODES = (CharDevice(path="/dev/infiniband/uverbs0", major=231, minor=192),)
PLAN = ClaimPlan(
    uid="1234-abcd",
    namespace="d",
    name="my-claim.x",
    pod=PodRef(uid="p", name="p", namespace="d"),
    devices=(
        DevicePlan(
            name="a",
            pool="n",
            request="r",
            pod_config=PodConfig(name="eth1"),
            rdma=RdmaRecord(device="m", char_devices=NODES),
        ),
        DevicePlan(name="b", pool="n", request="r", rdma=RdmaRecord(device="m2", char_devices=NODES)),
    ),
)


def test_gate_is_a_cdi_spec_with_each_node_once(tmp_path: Path) -> None:
    gates = ReadinessGates(str(tmp_path / "cdi"))
    gates.write(PLAN)
    spec = json.loads(gates.path(PLAN.uid).read_text())
    assert (spec["kind"], spec["devices"][0]["name"]) == ("dra.net/claim", PLAN.uid)
    edits = spec["devices"][0]["containerEdits"]
    (device,) = edits["deviceNodes"]
    assert (device["path"], device["permissions"]) == ("/dev/infiniband/uverbs0", "rw")  # not m: no mknod
    assert edits["env"] == ["DRANET_CLAIM_MY_CLAIM_X=eth1"]


def test_prepare_reply_names_the_cdi_device() -> None:
    assert cdi_device_name(PLAN.uid) == "dra.net/claim=1234-abcd"


def test_repeated_removal_is_harmless(tmp_path: Path) -> None:
    gates = ReadinessGates(str(tmp_path))
    gates.write(PLAN)
    gates.remove(PLAN.uid)
    gates.remove(PLAN.uid)
    assert not gates.exists(PLAN.uid)


def test_prune_keeps_known_claims_and_foreign_files(tmp_path: Path) -> None:
    gates = ReadinessGates(str(tmp_path))
    gates.write(PLAN)
    (tmp_path / "nvidia.json").write_text("{}")
    (tmp_path / "dra.net-claim-old.json").write_text("{}")
    assert gates.prune({PLAN.uid}) == ["old"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dra.net-claim-1234-abcd.json", "nvidia.json"]


@pytest.mark.parametrize("uid", ["../../etc/x", "", "a/b", ".hidden"])
def test_uid_cannot_escape_the_folder(tmp_path: Path, uid: str) -> None:
    with pytest.raises(DranetError, match="is not a valid claim UID"):
        ReadinessGates(str(tmp_path)).path(uid)


def test_failed_write_leaves_no_gate(tmp_path: Path) -> None:
    gates = ReadinessGates(str(tmp_path))
    with full_disk(), pytest.raises(OSError):
        gates.write(PLAN)
    assert list(tmp_path.iterdir()) == []


def test_temporary_files_are_removed_with_the_gate(tmp_path: Path) -> None:
    gates = ReadinessGates(str(tmp_path))
    gates.write(PLAN)
    (tmp_path / f".dra.net-claim-{PLAN.uid}.json.new").write_text("{")
    gates.remove(PLAN.uid)
    assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow: what a full disk does, as far as a process can see."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        signal.signal(signal.SIGXFSZ, before)


def test_missing_folder_needs_no_removal(tmp_path: Path) -> None:
    gates = ReadinessGates(str(tmp_path / "cdi"))
    gates.folder.rmdir()
    gates.remove("a")
    assert not gates.exists("a")
