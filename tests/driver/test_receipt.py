"""The receipt."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dranet.driver.moving.receipt import Receipts, cdi_name
from dranet.driver.records.plan import CharDevice, ClaimPlan, DevicePlan, PodRef, RdmaRecord, Wanted
from dranet.model.errors import DranetError

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
            wanted=Wanted(name="eth1"),
            rdma=RdmaRecord(device="m", char_devices=NODES),
        ),
        DevicePlan(name="b", pool="n", request="r", rdma=RdmaRecord(device="m2", char_devices=NODES)),
    ),
)


def test_the_file_is_a_cdi_specification_with_each_device_node_once(tmp_path: Path) -> None:
    receipts = Receipts(str(tmp_path / "cdi"))
    receipts.write(PLAN)
    spec = json.loads(receipts.path(PLAN.uid).read_text())
    assert (spec["kind"], spec["devices"][0]["name"]) == ("dra.net/claim", PLAN.uid)
    edits = spec["devices"][0]["containerEdits"]
    assert [node["path"] for node in edits["deviceNodes"]] == ["/dev/infiniband/uverbs0"]
    assert edits["env"] == ["DRANET_CLAIM_MY_CLAIM_X=eth1"]


def test_the_answer_to_prepare_names_the_device_in_it() -> None:
    assert cdi_name(PLAN.uid) == "dra.net/claim=1234-abcd"


def test_removing_twice_is_harmless(tmp_path: Path) -> None:
    receipts = Receipts(str(tmp_path))
    receipts.write(PLAN)
    receipts.remove(PLAN.uid)
    receipts.remove(PLAN.uid)
    assert not receipts.exists(PLAN.uid)


def test_pruning_leaves_known_claims_and_other_peoples_files(tmp_path: Path) -> None:
    receipts = Receipts(str(tmp_path))
    receipts.write(PLAN)
    (tmp_path / "nvidia.json").write_text("{}")
    (tmp_path / "dra.net-claim-old.json").write_text("{}")
    assert receipts.prune({PLAN.uid}) == ["old"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dra.net-claim-1234-abcd.json", "nvidia.json"]


@pytest.mark.parametrize("uid", ["../../etc/x", "", "a/b", ".hidden"])
def test_a_uid_cannot_lead_out_of_the_folder(tmp_path: Path, uid: str) -> None:
    with pytest.raises(DranetError, match="cannot be a claim UID"):
        Receipts(str(tmp_path)).path(uid)


def test_nothing_is_left_of_a_receipt_that_could_not_be_written(tmp_path: Path) -> None:
    receipts = Receipts(str(tmp_path))
    with full_disk(), pytest.raises(OSError):
        receipts.write(PLAN)
    assert list(tmp_path.iterdir()) == []


def test_what_a_driver_left_that_died_while_writing_goes_with_the_receipt(tmp_path: Path) -> None:
    receipts = Receipts(str(tmp_path))
    receipts.write(PLAN)
    (tmp_path / f".dra.net-claim-{PLAN.uid}.json.new").write_text("{")
    receipts.remove(PLAN.uid)
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


def test_where_the_folder_is_gone_there_is_nothing_to_remove(tmp_path: Path) -> None:
    receipts = Receipts(str(tmp_path / "cdi"))
    receipts.folder.rmdir()
    receipts.remove("a")
    assert not receipts.exists("a")
