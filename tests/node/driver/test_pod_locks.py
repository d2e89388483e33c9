"""One worker a pod at a time, in one process and between two."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from dranet.node.lifecycle.pod_locks import PodLocks


def wants_in(locks: PodLocks, entered: threading.Event) -> threading.Thread:
    def work() -> None:
        with locks.hold("pod"):
            entered.set()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize("drivers", ["one", "two"])
def test_second_worker_of_a_pod_waits(tmp_path: Path, drivers: str) -> None:
    """Two objects on one file are as two drivers are: each opens the file for itself."""
    first = PodLocks(str(tmp_path / "lock"))
    second = first if drivers == "one" else PodLocks(str(tmp_path / "lock"))
    entered = threading.Event()
    with first.hold("pod"):
        thread = wants_in(second, entered)
        assert not entered.wait(0.3)
    assert entered.wait(10)
    thread.join()


@pytest.mark.parametrize("drivers", ["one", "two"])
def test_nonblocking_lock_fails_while_held(tmp_path: Path, drivers: str) -> None:
    first = PodLocks(str(tmp_path / "lock"))
    second = first if drivers == "one" else PodLocks(str(tmp_path / "lock"))
    seen: list[bool] = []

    def work() -> None:
        with second.hold_if_free("pod") as is_held:
            seen.append(is_held)

    for is_free in (False, True):
        with nullcontext() if is_free else first.hold("pod"):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join(10)
        assert seen.pop() is is_free


def test_lock_is_reentrant(tmp_path: Path) -> None:
    locks = PodLocks(str(tmp_path / "lock"))
    with locks.hold("pod"), locks.hold("pod"):
        pass
    entered = threading.Event()
    wants_in(locks, entered).join()
    assert entered.is_set()
