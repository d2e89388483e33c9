"""Locks between open files: one holder for each byte, released with the file."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dranet.core import file_locks


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Two openings of one file, as two drivers have them."""
    one, other = (file_locks.open_lock_file(tmp_path / "locks") for _ in range(2))
    yield one, other
    os.close(other)


def test_a_byte_has_one_holder_and_its_neighbours_stay_free(files: tuple[int, int]) -> None:
    one, other = files
    assert file_locks.try_lock(one, 7)
    assert not file_locks.try_lock(other, 7)
    assert file_locks.try_lock(other, 8)
    file_locks.unlock(one, 7)
    assert file_locks.try_lock(other, 7)
    os.close(one)


def test_a_closed_file_holds_nothing(files: tuple[int, int]) -> None:
    one, other = files
    file_locks.lock(one, 1 << 55)
    os.close(one)
    assert file_locks.try_lock(other, 1 << 55)


def test_a_waiter_gets_the_byte_once_it_is_free(files: tuple[int, int]) -> None:
    one, other = files
    file_locks.lock(one, 3)
    waiter = threading.Thread(target=file_locks.lock, args=(other, 3))
    waiter.start()
    waiter.join(0.1)
    assert waiter.is_alive()
    os.close(one)
    waiter.join(10)
    assert not waiter.is_alive()
