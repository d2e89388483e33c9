"""A store file that is damaged while the driver runs: the plans in memory are written to a new one, and pods go on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dranet.testing.node import SandboxPod

from .conftest import OpenStore
from .daemon_bench import bench
from .test_store import plan


def garbage(path: Path) -> None:
    """A disk that returns other bytes than were written."""
    with path.open("r+b") as file:
        file.write(b"\xa5" * path.stat().st_size)


def first_page_kept(path: Path) -> None:
    """The pages behind the first one are lost."""
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))


def truncated(path: Path) -> None:
    path.write_bytes(b"")


def deleted(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def checkpoint(path: Path) -> None:
    """Write everything to the file itself: until then, readers take it from the log."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


DAMAGE = pytest.mark.parametrize("damage", [garbage, first_page_kept, truncated, deleted])


@DAMAGE
@pytest.mark.parametrize("first", ["read", "write"])
def test_plans_in_memory_are_written_to_a_new_file(
    store_path: Path, open_store: OpenStore, damage: Callable[[Path], None], first: str
) -> None:
    store = open_store()
    store.mark_complete()
    for uid in ("u1", "u2", "u3"):
        store.put(plan(uid))
    checkpoint(store_path)
    damage(store_path)
    if first == "read":
        store._file._version = -1  # type: ignore[union-attr]  # as after a write of another process
        assert set(store.plans) == {"u1", "u2", "u3"}
    store.put(plan("u4"))
    store.delete("u1")
    assert set(store.plans) == {"u2", "u3", "u4"}
    after_restart = open_store()
    assert set(after_restart.plans) == {"u2", "u3", "u4"} and after_restart.is_complete
    assert bool(list(store_path.parent.glob("dranet.sqlite.unreadable-*"))) is (damage is not deleted)


def change_bytes(path: Path, offset: int, value: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(value)


def change_row(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


WRONG_CONTENT: dict[str, Callable[[Path], None]] = {
    "file format of a later sqlite": lambda path: change_bytes(path, 18, b"\x07"),
    "schema format of a later sqlite": lambda path: change_bytes(path, 44, b"\x00\x00\x00\x77"),
    "negative version": lambda path: change_bytes(path, 60, b"\xff\xff\xff\x01"),
    "key that is not UTF-8": lambda path: change_row(path, "UPDATE claims SET uid = CAST(x'75ff' AS TEXT)"),
    "key that is a blob": lambda path: change_row(path, "UPDATE claims SET uid = x'7531'"),
    "another table": lambda path: change_row(path, "ALTER TABLE claims RENAME TO other"),
}
"""Damage that sqlite reports as OperationalError, or that only the driver can see."""


@pytest.mark.parametrize("damage", WRONG_CONTENT)
def test_file_with_wrong_content_is_set_aside_at_start(store_path: Path, open_store: OpenStore, damage: str) -> None:
    store = open_store()
    store.mark_complete()
    store.put(plan("u1"))
    store.close()
    checkpoint(store_path)
    WRONG_CONTENT[damage](store_path)
    store = open_store()
    store.put(plan("u2"))
    assert "u2" in store.plans
    assert "u1" in store.plans or not store.is_complete, "a lost plan is recovered"
    assert len(list(store_path.parent.glob("dranet.sqlite.unreadable-*"))) == 1


@pytest.mark.parametrize("damage", WRONG_CONTENT)
def test_file_with_wrong_content_is_replaced_while_running(
    store_path: Path, open_store: OpenStore, damage: str
) -> None:
    store = open_store()
    store.mark_complete()
    store.put(plan("u1"))
    checkpoint(store_path)
    WRONG_CONTENT[damage](store_path)
    store._file._version = -1  # type: ignore[union-attr]
    assert [one.uid for one in store.for_pod("p1")] == ["u1"]
    store.put(plan("u2"))
    assert set(store.plans) == {"u1", "u2"}


def test_second_driver_uses_the_new_file_of_the_first(store_path: Path, open_store: OpenStore) -> None:
    first, second = open_store(), open_store()
    first.put(plan("u1"))
    assert set(second.plans) == {"u1"}
    checkpoint(store_path)
    garbage(store_path)
    first.put(plan("u2"))
    second.put(plan("u3"))
    assert set(first.plans) == set(second.plans) == {"u1", "u2", "u3"}
    assert len(list(store_path.parent.glob("dranet.sqlite.unreadable-*"))) == 1


def test_full_disk_keeps_the_plans_in_memory(store_path: Path, open_store: OpenStore) -> None:
    """Nothing can be written, so the plans stay in memory until something can."""
    store = open_store()
    store.put(plan("u1"))
    checkpoint(store_path)
    garbage(store_path)
    folder = store_path.parent
    (folder / "dranet.sqlite.incomplete").unlink(missing_ok=True)
    (folder / "dranet.sqlite.incomplete").mkdir()  # as root, a read-only folder would not refuse the marker file
    store._file._version = -1  # type: ignore[union-attr]
    assert set(store.plans) == {"u1"}
    (folder / "dranet.sqlite.incomplete").rmdir()
    store.put(plan("u2"))
    assert set(open_store().plans) == {"u1", "u2"}


@pytest.mark.usefixtures("may_make_namespaces")
@DAMAGE
async def test_pods_start_and_stop_with_a_damaged_store(damage: Callable[[Path], None]) -> None:
    async with bench() as b:
        before = b.picture("nic0")
        path = b.node.folder / "dranet.sqlite"
        pod = await b.start("nic0")
        checkpoint(path)
        damage(path)
        await b.node.run_sandbox(SandboxPod("plain", "plain-uid"))
        assert (await b.node.create_container(pod)).environment
        other = await b.start("nic1")
        assert b.names(other.netns) == {"nic1"}
        await b.node.stop_pod(pod)
        assert b.picture("nic0") == before
        await b.restart_driver()
        await b.compared()
        assert b.names(other.netns) == {"nic1"}
        await b.node.stop_pod(other)
        assert b.names() == {"nic0", "nic1"}
