"""One worker at a time for each pod: between threads, and between two drivers during a rolling update.

Both drivers get every hook while they overlap. The second one waits here and then finds the work done. Between
processes the lock is a byte of a file (:mod:`dranet.core.file_locks`) at an offset made from the pod's UID.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dranet.core import file_locks

_STRIPES = 64
"""Instead of one lock for each pod, which both processes would have to count and remove as pods come and go. Two pods
of one stripe only wait for each other, and a node starts few at once."""


class PodLocks:
    """Locks by pod UID; re-entrant within a thread. Without a path they hold within this process only."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._threads = [threading.RLock() for _ in range(_STRIPES)]
        self._depth = [0] * _STRIPES
        self._files = [-1] * _STRIPES

    @contextmanager
    def hold(self, pod_uid: str) -> Iterator[None]:
        """Hold the lock; waits without limit, so never on the event loop."""
        stripe = _stripe(pod_uid)
        self._acquire(stripe, wait=True)
        try:
            yield
        finally:
            self._release(stripe)

    @contextmanager
    def hold_if_free(self, pod_uid: str) -> Iterator[bool]:
        """Hold the lock if it is free; yields whether it is held. Does not wait."""
        stripe = _stripe(pod_uid)
        if not self._acquire(stripe, wait=False):
            yield False
            return
        try:
            yield True
        finally:
            self._release(stripe)

    def _acquire(self, stripe: int, *, wait: bool) -> bool:
        # Threads first, the file second: the lock of the file belongs to the process and admits all its threads.
        if not self._threads[stripe].acquire(blocking=wait):
            return False
        try:
            is_locked = self._depth[stripe] > 0 or self._lock_file(stripe, wait=wait)
        except BaseException:
            self._threads[stripe].release()
            raise
        if is_locked:
            self._depth[stripe] += 1
        else:
            self._threads[stripe].release()
        return is_locked

    def _release(self, stripe: int) -> None:
        self._depth[stripe] -= 1
        if self._depth[stripe] == 0:
            self._unlock_file(stripe)
        self._threads[stripe].release()

    def _lock_file(self, stripe: int, *, wait: bool) -> bool:
        if self._path is None:
            return True
        # A lock belongs to an open file description: each stripe opens its own, so that threads do not share one.
        file = self._files[stripe] = file_locks.open_lock_file(self._path)
        if wait:
            file_locks.lock(file, stripe)
        elif not file_locks.try_lock(file, stripe):
            self._unlock_file(stripe)
            return False
        return True

    def _unlock_file(self, stripe: int) -> None:
        if self._files[stripe] >= 0:
            os.close(self._files[stripe])
            self._files[stripe] = -1


def _stripe(pod_uid: str) -> int:
    return hashlib.blake2b(pod_uid.encode(), digest_size=1).digest()[0] % _STRIPES
