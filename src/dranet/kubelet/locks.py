"""One claim, one call at a time: within this process and across two instances of the driver during an update.

Between processes the lock is a byte of a file, at an offset made from the claim's UID: no file per claim to clean up,
and the kernel lets go when a process dies.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

# struct flock on 64-bit Linux: type, whence, start, length, pid (0 for locks owned by the open file).
_FLOCK = struct.Struct("hhqqi4x")
_RETRY = 0.02


class ClaimLocks:
    """Locks by claim UID. `path` names the file the instances share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    def open(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @asynccontextmanager
    async def hold(self, uid: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(uid, asyncio.Lock())
        self._users[uid] = self._users.get(uid, 0) + 1
        try:
            async with lock:
                await self._lock_byte(uid)
                try:
                    yield
                finally:
                    self._set(uid, fcntl.F_UNLCK)
        finally:
            self._users[uid] -= 1
            if not self._users[uid]:
                del self._users[uid], self._locks[uid]

    async def _lock_byte(self, uid: str) -> None:
        # Another process holds it only during an update, and briefly: asking again is simpler than a waiting thread.
        while not self._set(uid, fcntl.F_WRLCK):  # noqa: ASYNC110 (no event reaches us from there)
            await asyncio.sleep(_RETRY)

    def _set(self, uid: str, kind: int) -> bool:
        offset = int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=7).digest())
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True
