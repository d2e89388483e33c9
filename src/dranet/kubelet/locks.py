"""One claim, one call at a time: within this process and across two instances of the driver during an update.

Between processes the lock is a byte of a file (:mod:`dranet.basics.byte_locks`) at an offset made from the claim's UID.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dranet.basics import byte_locks

_RETRY = 0.02


class ClaimLocks:
    """Locks by claim UID. `path` names the file the instances share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    def open(self) -> None:
        """Before the first `hold`: opens the file that both drivers of an update share."""
        self._file = byte_locks.open_lock_file(self._path)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @asynccontextmanager
    async def hold(self, uid: str) -> AsyncIterator[None]:
        """One worker a claim, among the tasks here and between two drivers during an update."""
        lock = self._locks.setdefault(uid, asyncio.Lock())
        self._users[uid] = self._users.get(uid, 0) + 1
        try:
            async with lock:
                byte = _byte_of(uid)
                await self._lock_byte(byte)
                try:
                    yield
                finally:
                    byte_locks.unlock(self._file, byte)
        finally:
            self._users[uid] -= 1
            if not self._users[uid]:
                del self._users[uid], self._locks[uid]

    async def _lock_byte(self, byte: int) -> None:
        # Another process holds it only during an update, and briefly: asking again is simpler than a waiting thread.
        while not byte_locks.try_lock(self._file, byte):  # noqa: ASYNC110 (no event reaches us from there)
            await asyncio.sleep(_RETRY)


def _byte_of(uid: str) -> int:
    return int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=7).digest())
