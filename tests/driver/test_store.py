"""The durable store."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dranet.driver.claims import plan as plans
from dranet.driver.claims import store as stores
from dranet.driver.claims.plan import ClaimPlan, Consumer, DevicePlan
from dranet.driver.claims.store import Store, StoreError


def plan(uid: str = "u1", pod: str = "p1", *devices: str) -> ClaimPlan:
    user = Consumer(uid=pod, name=pod, namespace="d")
    made = tuple(DevicePlan(device=d, pool="n", request="r") for d in devices)
    return ClaimPlan(uid=uid, namespace="d", name=uid, pod=user, devices=made)


def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "dranet.db")
    first = Store(path)
    first.put(plan("u1", "p1", "card0"))
    first.close()
    assert Store(path).get("u1") == plan("u1", "p1", "card0")


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    Store(str(tmp_path / "dranet.db")).close()
    assert (tmp_path / "dranet.db").stat().st_mode & 0o777 == 0o600


def test_an_empty_path_keeps_everything_in_memory() -> None:
    store = Store(None)
    store.put(plan())
    assert store.get("u1") == plan()


def test_a_process_killed_right_after_put_loses_nothing(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "dranet.db"))
    store.put(plan())
    # The other connection stands for the next process: nothing of the first one is flushed or closed.
    assert Store(str(tmp_path / "dranet.db")).get("u1") == plan()
    store.close()


def test_two_drivers_on_one_file_see_each_others_writes(tmp_path: Path) -> None:
    old, new = Store(str(tmp_path / "dranet.db")), Store(str(tmp_path / "dranet.db"))
    old.put(plan("u1"))
    assert new.get("u1") is not None
    new.delete("u1")
    assert old.get("u1") is None
    old.close()
    new.close()


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads that take turns as often as Python lets them."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("eager_threads")
def test_threads_that_write_at_once_lose_nothing_of_each_other() -> None:
    store = Store(None)
    store.put(plan("shared"))

    def lives(worker: int) -> None:
        for number in range(300):
            store.put(plan(f"{worker}-{number}"))
            store.change("shared", **{("netns", "boot", "name")[worker]: str(number)})
            if number % 3:
                store.delete(f"{worker}-{number}")

    with ThreadPoolExecutor() as pool:
        list(pool.map(lives, range(3)))
    assert set(store.plans) == {"shared", *(f"{w}-{n}" for w in range(3) for n in range(0, 300, 3))}
    shared = store.get("shared")
    assert shared is not None
    assert (shared.netns, shared.boot, shared.name) == ("299", "299", "299")


def test_plans_of_a_pod_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    store = Store(None)
    for uid in ("c", "a", "b"):
        store.put(plan(uid))
    assert [p.uid for p in store.for_pod("p1")] == ["a", "b", "c"]


def test_the_holder_of_a_device_is_found_but_never_the_asker(tmp_path: Path) -> None:
    store = Store(None)
    store.put(plan("u1", "p1", "card0"))
    holder = store.holder("card0", other_than="u2")
    assert holder is not None and holder.uid == "u1"
    assert store.holder("card0", other_than="u1") is None


@pytest.mark.parametrize("content", [b"not a database at all, not even nearly", b"SQLite format 3\0" + b"\xff" * 4096])
def test_an_unreadable_file_is_set_aside_and_never_deleted(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "dranet.db"
    path.write_bytes(content)
    store = Store(str(path))
    assert store.set_aside is not None
    assert Path(store.set_aside).read_bytes() == content
    store.put(plan())
    store.close()
    assert Store(str(path)).get("u1") == plan()


def test_a_store_that_begins_empty_is_incomplete_until_it_is_said_to_be_complete(tmp_path: Path) -> None:
    path = tmp_path / "dranet.db"
    for _ in range(2):  # a driver that died before it had rebuilt anything leaves it to the next
        store = Store(str(path))
        assert not store.is_complete
        store.put(plan())
        store.close()
    store = Store(str(path))
    store.completed()
    store.close()
    assert store.is_complete and Store(str(path)).is_complete
    assert not list(tmp_path.glob("*.incomplete"))


def test_that_a_file_was_set_aside_is_remembered_until_the_store_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "dranet.db"
    path.write_bytes(b"not a database at all, not even nearly")
    first = Store(str(path))
    first.close()
    second = Store(str(path))
    assert second.set_aside == first.set_aside
    second.completed()
    assert second.set_aside is None


def test_a_plan_that_cannot_be_decoded_sets_the_file_aside(tmp_path: Path) -> None:
    path = tmp_path / "dranet.db"
    Store(str(path)).close()
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO claims VALUES ('x', 'p', x'7b')")
    db.close()
    assert Store(str(path)).set_aside is not None


def test_a_file_of_a_newer_driver_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "dranet.db"
    Store(str(path)).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="written by a newer driver"):
        Store(str(path))


def test_a_file_from_before_the_first_version_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "dranet.db"
    sqlite3.connect(path).close()
    store = Store(str(path))
    store.put(plan())
    store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(stores.MIGRATIONS),)
    db.close()


def test_a_migration_carries_old_plans_over(tmp_path: Path) -> None:
    path = tmp_path / "dranet.db"
    old = Store(str(path))
    old.put(plan("u1"))
    old.close()

    def add_column(db: sqlite3.Connection) -> None:
        db.execute("ALTER TABLE claims ADD COLUMN note TEXT DEFAULT ''")

    new = Store(str(path), (*stores.MIGRATIONS, add_column))
    assert new.get("u1") == plan("u1")
    new.close()


def test_a_record_written_by_the_first_version_still_reads() -> None:
    raw = (
        b'{"uid":"u","namespace":"d","name":"c","pod":{"uid":"p","name":"p","namespace":"d"},"devices":'
        b'[{"device":"card0","pool":"n","request":"r","rdma":{"device":"mlx5_0","char_devices":'
        b'[{"path":"/dev/infiniband/uverbs0","major":231,"minor":192}]}}],"netns":"/run/netns/x"}'
    )
    read = plans.decode(raw)
    assert (read.netns, read.char_devices[0].minor) == ("/run/netns/x", 192)


def test_a_folder_that_cannot_be_made_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot use the folder"):
        Store(str(tmp_path / "file" / "dranet.db"))
