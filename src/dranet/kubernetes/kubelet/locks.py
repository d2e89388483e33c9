"""One call at a time for each claim: in this process and across two instances of the driver during an update.

Between processes the lock is a byte of a file (:mod:`dranet.core.file_locks`) at an offset made from the claim's UID.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dranet.core import file_locks

_RETRY = 0.02


class ClaimLocks:
    """Locks by claim UID. `path` names the file the instances share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    def open(self) -> None:
        """Open the shared file, before the first `hold`."""
        self._file = file_locks.open_lock_file(self._path)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @asynccontextmanager
    async def hold(self, uid: str) -> AsyncIterator[None]:
        """Hold the lock of a claim."""
        lock = self._locks.setdefault(uid, asyncio.Lock())
        self._users[uid] = self._users.get(uid, 0) + 1
        try:
            async with lock:
                byte = _byte_of(uid)
                await self._lock_byte(byte)
                try:
                    yield
                finally:
                    file_locks.unlock(self._file, byte)
        finally:
            self._users[uid] -= 1
            if not self._users[uid]:
                del self._users[uid], self._locks[uid]

    async def _lock_byte(self, byte: int) -> None:
        # Another process holds it only during an update, and briefly, so polling is simpler than a waiting thread.
        while not file_locks.try_lock(self._file, byte):  # noqa: ASYNC110 (the holder is another process)
            await asyncio.sleep(_RETRY)


def _byte_of(uid: str) -> int:
    return int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=7).digest())
