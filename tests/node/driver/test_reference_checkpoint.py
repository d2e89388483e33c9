"""The reference driver's database is read as its own library reads it; damage is said, never guessed around."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from dranet.node.records.reference import bolt, checkpoint
from dranet.node.records.reference.checkpoint import Checkpoint

DATA = Path(__file__).parents[2] / "data/reference-store"
"""running, after: the reference with a pod of eight NICs, and after it. many-*: written by bbolt 1.4.3 with two page
sizes: 40 pods of which every fourth was deleted again, one with 300 devices, values longer than a page."""
POD = "47f2f964-cba1-401d-92e0-9c554ee51344"


Unpack = Callable[[str], Path]


def read(path: Path) -> Checkpoint:
    found = checkpoint.read(path)
    assert found is not None
    return found


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpack:
    def unpack(name: str) -> Path:
        path = tmp_path / name
        path.write_bytes(gzip.decompress((DATA / f"{name}.gz").read_bytes()))
        return path

    return unpack


def test_checkpoint_has_devices_claim_and_host_name(unpacked: Unpack) -> None:
    found = read(unpacked("running.db"))
    assert set(found.pods) == {POD}
    assert {name: record.host_name for name, record in found.pods[POD].items()} == {
        f"rx{n}": f"rx{n}" for n in range(8)
    }
    assert found.claims == {("default", "eight")}


def test_checkpoint_has_pod_config_and_published_attributes(unpacked: Unpack) -> None:
    record = read(unpacked("running.db")).pods[POD]["rx7"]
    assert record.network_interface_config_in_pod["interface"] == {
        "name": "dranet0",
        "addresses": ["10.77.7.10/24"],
        "mtu": 1400,
    }
    assert record.device_snapshot["attributes"]["dra.net/mtu"] == {"int": 1460}


def test_checkpoint_is_empty_after_the_pod(unpacked: Unpack) -> None:
    assert read(unpacked("after.db")).pods == {}


def test_missing_file_is_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.read(tmp_path / "dranet.db") is None


@pytest.mark.parametrize("page_size", [4096, 16384])
def test_branches_long_values_and_deleted_pods_are_read(unpacked: Unpack, page_size: int) -> None:
    found = read(unpacked(f"many-{page_size}.db"))
    assert sorted(found.pods) == [f"pod-{n:03}" for n in range(40) if n % 4]
    counts = {uid: len(devices) for uid, devices in found.pods.items()}
    assert counts.pop("pod-007") == 300
    assert set(counts.values()) == {8}
    names = {uid: [record.host_name for record in devices.values()] for uid, devices in found.pods.items()}
    assert names["pod-001"] == [f"eth{n}" for n in range(8)]


def test_torn_meta_page_reads_the_previous_transaction(unpacked: Unpack) -> None:
    path = unpacked("running.db")
    raw = bytearray(path.read_bytes())
    transactions = [struct.unpack_from("<Q", raw, at + 16 + 48)[0] for at in (0, 4096)]
    torn = 4096 * transactions.index(max(transactions))
    raw[torn + 20] ^= 0xFF
    path.write_bytes(raw)
    assert len(read(path).pods.get(POD, {})) < 8


def test_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "dranet.db"
    path.write_bytes(b"SQLite format 3\0" + bytes(8192))
    with pytest.raises(bolt.BoltError, match="no valid meta page"):
        checkpoint.read(path)


def test_undecodable_document_affects_only_its_device(unpacked: Unpack, caplog: pytest.LogCaptureFixture) -> None:
    path = unpacked("running.db")
    begin = b'{"claim":{"Namespace":"default","Name":"eight"},"deviceSnapshot":{"name":"rx3"'
    raw = path.read_bytes().replace(begin, b"?" * len(begin))
    path.write_bytes(raw)
    assert set(read(path).pods[POD]) == {f"rx{n}" for n in range(8) if n != 3}
    assert "record of a device device=rx3" in caplog.text


@pytest.mark.parametrize("seed", range(5))
def test_damage_never_causes_a_loop(unpacked: Unpack, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    whole = unpacked("many-4096.db").read_bytes()
    path = tmp_path / "damaged.db"
    for _ in range(20):
        raw = bytearray(whole[: dice.randrange(1, len(whole))] if dice.random() < 0.3 else whole)
        for _ in range(dice.randrange(1, 40)):
            raw[dice.randrange(min(len(raw), 200_000))] = dice.randrange(256)
        path.write_bytes(raw)
        found: Checkpoint | None = None
        with contextlib.suppress(bolt.BoltError):
            found = checkpoint.read(path)
        assert found is None or len(found.pods) <= 40
