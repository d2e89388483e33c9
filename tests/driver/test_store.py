"""The durable store."""

from __future__ import annotations

import random
import sqlite3
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dranet.driver.records import plan as plans
from dranet.driver.records import store_file as stores
from dranet.driver.records.plan import ClaimPlan, DevicePlan, PodRef, UnreadablePlan, Use
from dranet.driver.records.store_file import StoreError
from dranet.driver.store import Store


def plan(uid: str = "u1", pod: str = "p1", *devices: str) -> ClaimPlan:
    user = PodRef(uid=pod, name=pod, namespace="d")
    made = tuple(DevicePlan(name=d, pool="n", request="r", use=Use.RDMA_ONLY) for d in devices)
    return ClaimPlan(uid=uid, namespace="d", name=uid, pod=user, devices=made)


def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "dranet.sqlite")
    first = Store(path)
    first.put(plan("u1", "p1", "card0"))
    first.close()
    assert Store(path).get("u1") == plan("u1", "p1", "card0")


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    Store(str(tmp_path / "dranet.sqlite")).close()
    assert (tmp_path / "dranet.sqlite").stat().st_mode & 0o777 == 0o600


def test_an_empty_path_keeps_everything_in_memory() -> None:
    store = Store(None)
    store.put(plan())
    assert store.get("u1") == plan()


def test_a_process_killed_right_after_put_loses_nothing(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "dranet.sqlite"))
    store.put(plan())
    # The other connection stands for the next process: nothing of the first one is flushed or closed.
    assert Store(str(tmp_path / "dranet.sqlite")).get("u1") == plan()
    store.close()


def test_two_drivers_on_one_file_see_each_others_writes(tmp_path: Path) -> None:
    old, new = Store(str(tmp_path / "dranet.sqlite")), Store(str(tmp_path / "dranet.sqlite"))
    old.put(plan("u1"))
    assert new.get("u1") is not None
    new.delete("u1")
    assert old.get("u1") is None
    old.close()
    new.close()


@pytest.mark.parametrize("seed", range(20))
def test_who_writes_and_looks_in_any_order_misses_nothing_of_the_other(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    drivers = [Store(str(tmp_path / "dranet.sqlite")) for _ in range(2)]
    right: dict[str, ClaimPlan] = {}
    for number in range(60):
        driver, uid = dice.choice(drivers), dice.choice("abc")
        match dice.choice(["put", "delete", "strike", "look"]):
            case "put":
                right[uid] = plan(uid, f"p{number}")
                driver.put(right[uid])
            case "delete":
                right.pop(uid, None)
                driver.delete(uid)
            case "strike":
                assert driver.get(uid) == right.pop(uid, None)  # who strikes has just looked
                driver.strike(uid)
                assert driver.get(uid) is None
                driver.settle()
            case "look":
                assert driver.plans == right
    assert [dict(driver.plans) for driver in drivers] == [right, right]
    for driver in drivers:
        driver.close()


def test_a_look_after_own_writes_reads_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path / "dranet.sqlite"))
    store.put(plan("u1"))
    assert store.get("u1") is not None
    read: list[object] = []
    monkeypatch.setattr(stores, "_rows", read.append)
    store.change("u1", netns="/run/netns/a")
    store.put(plan("u2"))
    store.delete("u1")
    assert set(store.plans) == {"u2"}
    assert not read
    store.close()


@pytest.mark.parametrize("then", ["settle", "put", "close"])
def test_a_struck_plan_is_gone_at_once_and_from_the_file_with_the_next_write(tmp_path: Path, then: str) -> None:
    store, other = Store(str(tmp_path / "dranet.sqlite")), Store(str(tmp_path / "dranet.sqlite"))
    store.put(plan("u1"))
    store.put(plan("u2"))
    store.strike("u1")
    assert set(store.plans) == {"u2"}
    other.put(plan("u3"))  # news, for which everything is read again
    assert set(store.plans) == {"u2", "u3"}
    assert set(other.plans) == {"u1", "u2", "u3"}
    store.put(plan("u2", "p2")) if then == "put" else getattr(store, then)()
    assert set(other.plans) == {"u2", "u3"}
    for each in (store, other):
        each.close()


def test_a_struck_plan_that_cannot_be_taken_from_the_file_at_the_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    store = Store(str(tmp_path / "dranet.sqlite"))
    store.put(plan("u1"))
    store.strike("u1")
    monkeypatch.setattr(stores.StoreFile, "strike", full)
    store.close()
    assert "plans that are over stay in the file: the disk is full" in caplog.text


def test_what_another_driver_makes_of_a_struck_plan_stays(tmp_path: Path) -> None:
    store, other = Store(str(tmp_path / "dranet.sqlite")), Store(str(tmp_path / "dranet.sqlite"))
    store.put(plan("u1"))
    store.strike("u1")
    other.put(plan("u1", "p2"))
    assert store.get("u1") == plan("u1", "p2")
    store.settle()
    assert store.get("u1") == other.get("u1") == plan("u1", "p2")
    for each in (store, other):
        each.close()


def test_a_struck_plan_can_be_put_again(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "dranet.sqlite"))
    store.put(plan("u1"))
    store.strike("u1")
    store.put(plan("u1", "p2"))
    store.settle()
    assert store.get("u1") == Store.copy_of(str(tmp_path / "dranet.sqlite")).get("u1") == plan("u1", "p2")
    store.close()


@pytest.mark.parametrize("ending", ["put", "delete"])
def test_a_row_that_could_not_be_read_is_forgotten_with_what_replaces_it(tmp_path: Path, ending: str) -> None:
    store = Store(str(tmp_path / "dranet.sqlite"))
    store.put(plan("u2"))
    with sqlite3.connect(store.path) as db:
        db.execute("INSERT INTO claims VALUES ('u1', 'p1', ?)", (b"{",))
    db.close()
    store.put(plan("u2"))  # now the next write is the only news
    assert set(store.unreadable) == {"u1"}
    store.put(plan("u1")) if ending == "put" else store.delete("u1")
    assert not store.unreadable
    store.close()


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
    assert store.holder("card0", other_than="u2") == "claim d/u1 of pod p1"
    assert store.holder("card0", other_than="u1") is None


@pytest.mark.parametrize("content", [b"not a database at all, not even nearly", b"SQLite format 3\0" + b"\xff" * 4096])
def test_an_unreadable_file_is_set_aside_and_never_deleted(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "dranet.sqlite"
    path.write_bytes(content)
    store = Store(str(path))
    assert store.set_aside is not None
    assert Path(store.set_aside).read_bytes() == content
    store.put(plan())
    store.close()
    assert Store(str(path)).get("u1") == plan()


def test_a_store_that_begins_empty_is_incomplete_until_it_is_said_to_be_complete(tmp_path: Path) -> None:
    path = tmp_path / "dranet.sqlite"
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
    path = tmp_path / "dranet.sqlite"
    path.write_bytes(b"not a database at all, not even nearly")
    first = Store(str(path))
    first.close()
    second = Store(str(path))
    assert second.set_aside == first.set_aside
    second.completed()
    assert second.set_aside is None


def write_row(path: Path, uid: str, pod_uid: str, raw: bytes) -> None:
    """As another driver would."""
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO claims VALUES (?, ?, ?)", (uid, pod_uid, raw))
    db.close()


NEWER = b'{"version":9,"oldest_reader":8,"uid":"x","devices":[{"device":"card7","use":"split","snapshot":{"a":1}}]}'

DAMAGED = "cannot be read .*: run the driver that wrote it"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", DAMAGED),
        (b"\xff\xfe", DAMAGED),
        (b'{"uid":"x"}', DAMAGED),
        (NEWER, "written by a newer driver .format 9; this one reads up to 2.: run that driver again"),
        (
            plans.encode(plan("x", "p1", "card7")).replace(b"rdma-only", b"folded"),
            DAMAGED,
        ),
        (plans.encode(plan("x", "p1", "card7")).replace(b'"use"', b'"parts":{"foil":{}},"use"'), "parts .*foil"),
    ],
    ids=["cut off", "no text", "too little", "newer", "unknown use", "unknown part"],
)
def test_a_row_that_cannot_be_read_costs_its_own_claim_only(tmp_path: Path, raw: bytes, reason: str) -> None:
    path = tmp_path / "dranet.sqlite"
    store = Store(str(path))
    store.put(plan("good", "p2", "card0"))
    write_row(path, "x", "p1", raw)
    for reader in (store, Store(str(path))):
        with pytest.raises(UnreadablePlan, match=reason):
            reader.get("x")
        assert list(reader.unreadable_for_pod("p1")) == ["x"]
        assert reader.set_aside is None
        assert [p.uid for p in reader.for_pod("p2")] == ["good"]
        assert not reader.unreadable_for_pod("p2")
    store.delete("good")
    assert not store.plans
    assert "x" in store.unreadable


def test_a_device_of_a_plan_that_cannot_be_read_is_given_to_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "dranet.sqlite"
    store = Store(str(path))
    write_row(path, "x", "p1", NEWER)
    assert "claim x, whose plan cannot be used here" in (store.holder("card7", other_than="y") or "")
    assert store.unreadable["x"].devices == {"card7": {"a": 1}}


def test_who_reads_does_not_wait_for_who_writes(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "dranet.sqlite"))
    store.put(plan("u1"))
    with store._writing:  # as a commit does while the disk takes its time
        with ThreadPoolExecutor() as pool:
            found = pool.submit(lambda: (store.get("u1"), store.for_pod("p1"), store.holder("a", other_than="")))
            assert found.result(timeout=60)[0] == plan("u1")
    other = sqlite3.connect(tmp_path / "dranet.sqlite")
    other.execute("BEGIN IMMEDIATE")
    assert store.get("u1") == plan("u1")
    other.close()
    store.close()


def test_our_own_writes_are_not_decoded_again(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "dranet.sqlite"))
    written = plan("u1")
    store.put(written)
    assert store.get("u1") is written


def test_a_file_of_a_newer_driver_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "dranet.sqlite"
    Store(str(path)).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="written by a newer driver"):
        Store(str(path))


def test_a_file_from_before_the_first_version_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "dranet.sqlite"
    sqlite3.connect(path).close()
    store = Store(str(path))
    store.put(plan())
    store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(stores.MIGRATIONS),)
    db.close()


def test_a_migration_carries_old_plans_over(tmp_path: Path) -> None:
    path = tmp_path / "dranet.sqlite"
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
        Store(str(tmp_path / "file" / "dranet.sqlite"))
