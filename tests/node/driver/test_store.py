"""The durable store."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dranet.node.records import plan as plans
from dranet.node.records import store_file as stores
from dranet.node.records.plan import AttachMode, ClaimPlan, DevicePlan, UnreadablePlan
from dranet.node.records.store_file import StoreError
from dranet.node.store import Store

from .conftest import OpenStore, claim_plan


def plan(uid: str = "u1", pod: str = "p1", *devices: str) -> ClaimPlan:
    made = (DevicePlan(name=d, pool="n", request="r", mode=AttachMode.RDMA_ONLY) for d in devices)
    return claim_plan(*made, uid=uid, pod=pod)


def test_plans_survive_a_restart(tmp_path: Path, open_store: OpenStore) -> None:
    path = str(tmp_path / "a" / "dranet.sqlite")
    first = open_store(path)
    first.put(plan("u1", "p1", "nic0"))
    first.close()
    assert open_store(path).get("u1") == plan("u1", "p1", "nic0")


def test_file_is_readable_only_by_its_owner(store_path: Path, open_store: OpenStore) -> None:
    open_store().close()
    assert store_path.stat().st_mode & 0o777 == 0o600


def test_empty_path_keeps_plans_in_memory(open_store: OpenStore) -> None:
    store = open_store(None)
    store.put(plan())
    assert store.get("u1") == plan()


def test_plan_survives_a_kill_right_after_put(open_store: OpenStore) -> None:
    store = open_store()
    store.put(plan())
    # The other connection stands for the next process: nothing of the first one is flushed or closed.
    assert open_store().get("u1") == plan()


def test_two_drivers_on_one_file_see_each_others_writes(open_store: OpenStore) -> None:
    old, new = open_store(), open_store()
    old.put(plan("u1"))
    assert new.get("u1") is not None
    new.delete("u1")
    assert old.get("u1") is None


@pytest.mark.parametrize("seed", range(20))
def test_two_drivers_see_all_writes_in_any_order(seed: int, open_store: OpenStore) -> None:
    dice = random.Random(seed)
    drivers = [open_store() for _ in range(2)]
    right: dict[str, ClaimPlan] = {}
    for number in range(60):
        driver, uid = dice.choice(drivers), dice.choice("abc")
        match dice.choice(["put", "delete", "release", "read"]):
            case "put":
                right[uid] = plan(uid, f"p{number}")
                driver.put(right[uid])
            case "delete":
                right.pop(uid, None)
                driver.delete(uid)
            case "release":
                assert driver.get(uid) == right.pop(uid, None)  # a caller has just read the plan
                driver.release(uid)
                assert driver.get(uid) is None
                driver.flush()
            case "read":
                assert driver.plans == right
    assert [dict(driver.plans) for driver in drivers] == [right, right]


def test_own_writes_cause_no_second_read(open_store: OpenStore) -> None:
    store = open_store()
    store.put(plan("u1"))
    assert store.get("u1") is not None
    statements: list[str] = []
    assert store._file is not None
    store._file._reader.set_trace_callback(statements.append)
    store.change("u1", netns="/run/netns/a")
    store.put(plan("u2"))
    store.delete("u1")
    assert set(store.plans) == {"u2"}
    assert statements and not any(statement.startswith("SELECT") for statement in statements)


@pytest.mark.parametrize("then", ["flush", "put", "close"])
def test_release_deletes_from_memory_at_once_and_from_the_file_later(then: str, open_store: OpenStore) -> None:
    store, other = open_store(), open_store()
    store.put(plan("u1"))
    store.put(plan("u2"))
    store.release("u1")
    assert set(store.plans) == {"u2"}
    other.put(plan("u3"))  # news, for which everything is read again
    assert set(store.plans) == {"u2", "u3"}
    assert set(other.plans) == {"u1", "u2", "u3"}
    store.put(plan("u2", "p2")) if then == "put" else getattr(store, then)()
    assert set(other.plans) == {"u2", "u3"}
    for each in (store, other):
        each.close()


def test_close_logs_released_plans_that_it_cannot_delete(
    store_path: Path, caplog: pytest.LogCaptureFixture, open_store: OpenStore
) -> None:
    store = open_store()
    store.put(plan("u1"))
    store.release("u1")
    with contextlib.closing(sqlite3.connect(store_path)) as other:
        other.execute("BEGIN IMMEDIATE")  # no other process can write now
        store.close()
    assert "Could not delete released plans from the store" in caplog.text and "database is locked" in caplog.text


def test_release_keeps_a_row_that_another_driver_rewrote(open_store: OpenStore) -> None:
    store, other = open_store(), open_store()
    store.put(plan("u1"))
    store.release("u1")
    other.put(plan("u1", "p2"))
    assert store.get("u1") == plan("u1", "p2")
    store.flush()
    assert store.get("u1") == other.get("u1") == plan("u1", "p2")


def test_released_plan_can_be_put_again(store_path: Path, open_store: OpenStore) -> None:
    store = open_store()
    store.put(plan("u1"))
    store.release("u1")
    store.put(plan("u1", "p2"))
    store.flush()
    assert store.get("u1") == Store.read_copy(str(store_path)).get("u1") == plan("u1", "p2")


@pytest.mark.parametrize("ending", ["put", "delete"])
def test_replacing_or_deleting_an_unreadable_row_forgets_it(ending: str, open_store: OpenStore) -> None:
    store = open_store()
    store.put(plan("u2"))
    assert store.path is not None
    with sqlite3.connect(store.path) as db:
        db.execute("INSERT INTO claims VALUES ('u1', 'p1', ?)", (b"{",))
    db.close()
    store.put(plan("u2"))  # now the next write is the only news
    assert set(store.unreadable) == {"u1"}
    store.put(plan("u1")) if ending == "put" else store.delete("u1")
    assert not store.unreadable


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads that take turns as often as Python lets them."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("eager_threads")
def test_concurrent_writers_lose_nothing(open_store: OpenStore) -> None:
    store = open_store(None)
    store.put(plan("shared"))

    def lives(worker: int) -> None:
        for number in range(300):
            store.put(plan(f"{worker}-{number}"))
            changes: dict[str, Any] = {("netns", "boot", "name")[worker]: str(number)}
            store.change("shared", **changes)
            if number % 3:
                store.delete(f"{worker}-{number}")

    with ThreadPoolExecutor() as pool:
        list(pool.map(lives, range(3)))
    assert set(store.plans) == {"shared", *(f"{w}-{n}" for w in range(3) for n in range(0, 300, 3))}
    shared = store.get("shared")
    assert shared is not None
    assert (shared.netns, shared.boot, shared.name) == ("299", "299", "299")


def test_plans_of_a_pod_are_sorted_by_name(open_store: OpenStore) -> None:
    store = open_store(None)
    for uid in ("c", "a", "b"):
        store.put(plan(uid))
    assert [p.uid for p in store.for_pod("p1")] == ["a", "b", "c"]


def test_holder_of_a_device_is_another_claim(open_store: OpenStore) -> None:
    store = open_store(None)
    store.put(plan("u1", "p1", "nic0"))
    assert store.holder("nic0", other_than="u2") == "claim default/u1 of pod p1"
    assert store.holder("nic0", other_than="u1") is None


@pytest.mark.parametrize("content", [b"not a database at all, not even nearly", b"SQLite format 3\0" + b"\xff" * 4096])
def test_unreadable_file_is_set_aside_and_not_deleted(store_path: Path, content: bytes, open_store: OpenStore) -> None:
    store_path.write_bytes(content)
    store = open_store()
    assert store.set_aside is not None
    assert Path(store.set_aside).read_bytes() == content
    store.put(plan())
    store.close()
    assert open_store().get("u1") == plan()


def test_new_store_is_incomplete_until_marked_complete(tmp_path: Path, open_store: OpenStore) -> None:
    for _ in range(2):  # a driver that died before it had rebuilt anything leaves it to the next
        store = open_store()
        assert not store.is_complete
        store.put(plan())
        store.close()
    store = open_store()
    store.mark_complete()
    store.close()
    assert store.is_complete and open_store().is_complete
    assert not list(tmp_path.glob("*.incomplete"))


def test_set_aside_path_is_kept_until_the_store_is_complete(store_path: Path, open_store: OpenStore) -> None:
    store_path.write_bytes(b"not a database at all, not even nearly")
    first = open_store()
    first.close()
    second = open_store()
    assert second.set_aside == first.set_aside
    second.mark_complete()
    assert second.set_aside is None


def write_row(path: Path, uid: str, pod_uid: str, raw: bytes) -> None:
    """As another driver would."""
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO claims VALUES (?, ?, ?)", (uid, pod_uid, raw))
    db.close()


NEWER = b'{"version":9,"oldest_reader":8,"uid":"x","devices":[{"device":"nic7","use":"split","snapshot":{"a":1}}]}'

DAMAGED = "cannot be read .*; run the driver that wrote it"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", DAMAGED),
        (b"\xff\xfe", DAMAGED),
        (b'{"uid":"x"}', DAMAGED),
        (NEWER, "written by a newer driver .format 9; this driver reads up to format 2.; run that driver"),
        (
            plans.encode(plan("x", "p1", "nic7")).replace(b"rdma-only", b"folded"),
            DAMAGED,
        ),
        (
            plans.encode(plan("x", "p1", "nic7")).replace(b'"use"', b'"parts":{"foil":{}},"use"'),
            "does not support its features foil",
        ),
    ],
    ids=["cut off", "no text", "too little", "newer", "unknown use", "unknown part"],
)
def test_unreadable_row_affects_only_its_own_claim(
    store_path: Path, raw: bytes, reason: str, open_store: OpenStore
) -> None:
    store = open_store()
    store.put(plan("good", "p2", "nic0"))
    write_row(store_path, "x", "p1", raw)
    for reader in (store, open_store()):
        with pytest.raises(UnreadablePlan, match=reason):
            reader.get("x")
        assert list(reader.unreadable_for_pod("p1")) == ["x"]
        assert reader.set_aside is None
        assert [p.uid for p in reader.for_pod("p2")] == ["good"]
        assert not reader.unreadable_for_pod("p2")
    store.delete("good")
    assert not store.plans
    assert "x" in store.unreadable


def test_device_of_an_unreadable_plan_stays_held(store_path: Path, open_store: OpenStore) -> None:
    store = open_store()
    write_row(store_path, "x", "p1", NEWER)
    assert "claim x, whose plan this driver cannot read" in (store.holder("nic7", other_than="y") or "")
    assert store.unreadable["x"].devices == {"nic7": {"a": 1}}


def test_readers_do_not_wait_for_writers(store_path: Path, open_store: OpenStore) -> None:
    store = open_store()
    store.put(plan("u1"))
    with store._write_lock:  # as a commit does while the disk takes its time
        with ThreadPoolExecutor() as pool:
            found = pool.submit(lambda: (store.get("u1"), store.for_pod("p1"), store.holder("a", other_than="")))
            assert found.result(timeout=60)[0] == plan("u1")
    other = sqlite3.connect(store_path)
    other.execute("BEGIN IMMEDIATE")
    assert store.get("u1") == plan("u1")
    other.close()


def test_own_writes_are_not_decoded_again(open_store: OpenStore) -> None:
    store = open_store()
    written = plan("u1")
    store.put(written)
    assert store.get("u1") is written


def test_file_of_a_newer_driver_is_refused(store_path: Path, open_store: OpenStore) -> None:
    open_store().close()
    with sqlite3.connect(store_path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="written by a newer driver"):
        open_store()


def test_empty_file_is_migrated(store_path: Path, open_store: OpenStore) -> None:
    sqlite3.connect(store_path).close()
    store = open_store()
    store.put(plan())
    store.close()
    with sqlite3.connect(store_path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(stores.MIGRATIONS),)
    db.close()


def test_migration_keeps_old_plans(open_store: OpenStore) -> None:
    old = open_store()
    old.put(plan("u1"))
    old.close()

    def add_column(db: sqlite3.Connection) -> None:
        db.execute("ALTER TABLE claims ADD COLUMN note TEXT DEFAULT ''")

    new = open_store(migrations=(*stores.MIGRATIONS, add_column))
    assert new.get("u1") == plan("u1")


def test_record_of_the_first_version_is_read() -> None:
    raw = (
        b'{"uid":"u","namespace":"d","name":"c","pod":{"uid":"p","name":"p","namespace":"d"},"devices":'
        b'[{"device":"nic0","pool":"n","request":"r","rdma":{"device":"mlx5_0","char_devices":'
        b'[{"path":"/dev/infiniband/uverbs0","major":231,"minor":192}]}}],"netns":"/run/netns/x"}'
    )
    read = plans.decode(raw)
    assert (read.netns, read.char_devices[0].minor) == ("/run/netns/x", 192)


def test_folder_that_cannot_be_created_is_an_error(tmp_path: Path, open_store: OpenStore) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot use the folder"):
        open_store(str(tmp_path / "file" / "dranet.sqlite"))


def test_close_waits_for_a_thread_that_reads(
    store_path: Path,
) -> None:
    """sqlite crashes the process when a connection is closed while another thread uses it."""
    for _ in range(100):
        store = Store(str(store_path))
        stop = threading.Event()

        def read(store: Store = store, stop: threading.Event = stop) -> None:
            while not stop.is_set():
                assert store.plans == {}

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        store.close()
        stop.set()
        for reader in readers:
            reader.join()


def test_flush_waits_for_the_disk(store_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log, and once the folder that has its name."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    store = open_store()
    store.put(claim_plan(), survives_reboot=False)
    store.flush()
    assert synced == [f"{store_path}-wal", str(store_path.parent)]
    store.put(claim_plan(uid="uid-2"), survives_reboot=False)
    store.flush()
    assert synced[2:] == [f"{store_path}-wal"]
