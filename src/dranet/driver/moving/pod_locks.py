"""One pod, one worker at a time: between threads, and between two drivers during a rolling update.

Both drivers get every hook while they overlap. The second one waits here and then finds the work done. Between
processes the lock is a byte of a file (:mod:`dranet.basics.byte_locks`) at an offset made from the pod's UID.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dranet.basics import byte_locks

_STRIPES = 64
"""Not one lock a pod: those would have to be counted and removed as pods come and go, in both processes. Two pods that
meet in one stripe only wait for each other, and a node starts few at once."""


class PodLocks:
    """Locks by pod UID; re-entrant within a thread. Without a path they hold within this process only."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._threads = [threading.RLock() for _ in range(_STRIPES)]
        self._depth = [0] * _STRIPES
        self._files = [-1] * _STRIPES

    @contextmanager
    def hold(self, pod_uid: str) -> Iterator[None]:
        """Until the end of the block; waits as long as it takes, so never on the event loop."""
        stripe = _stripe(pod_uid)
        self._take(stripe, wait=True)
        try:
            yield
        finally:
            self._let_go(stripe)

    @contextmanager
    def hold_if_free(self, pod_uid: str) -> Iterator[bool]:
        """Whether nobody had it, and it is held until the end of the block; waits for nobody."""
        stripe = _stripe(pod_uid)
        if not self._take(stripe, wait=False):
            yield False
            return
        try:
            yield True
        finally:
            self._let_go(stripe)

    def _take(self, stripe: int, *, wait: bool) -> bool:
        # Threads first, the file second: the file's lock is this process's, and lets every thread of ours in.
        if not self._threads[stripe].acquire(blocking=wait):
            return False
        try:
            is_ours = self._depth[stripe] > 0 or self._lock_file(stripe, wait=wait)
        except BaseException:
            self._threads[stripe].release()
            raise
        if is_ours:
            self._depth[stripe] += 1
        else:
            self._threads[stripe].release()
        return is_ours

    def _let_go(self, stripe: int) -> None:
        self._depth[stripe] -= 1
        if self._depth[stripe] == 0:
            self._unlock_file(stripe)
        self._threads[stripe].release()

    def _lock_file(self, stripe: int, *, wait: bool) -> bool:
        if self._path is None:
            return True
        # A lock belongs to an open file: each stripe opens its own, so that threads do not share one.
        file = self._files[stripe] = byte_locks.open_lock_file(self._path)
        if wait:
            byte_locks.lock(file, stripe)
        elif not byte_locks.try_lock(file, stripe):
            self._unlock_file(stripe)
            return False
        return True

    def _unlock_file(self, stripe: int) -> None:
        if self._files[stripe] >= 0:
            os.close(self._files[stripe])
            self._files[stripe] = -1


def _stripe(pod_uid: str) -> int:
    return hashlib.blake2b(pod_uid.encode(), digest_size=1).digest()[0] % _STRIPES
