"""Writing kernel files, and waiting for what the kernel does in the background."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_PAUSE_SECONDS = 0.02


def write_existing(path: str, text: str) -> None:
    """Write a file of /proc or /sys; raises OSError.

    No O_CREAT, because a root that is not a real /proc or /sys must not get new files. O_NOFOLLOW, because a symlink
    would lead out of the tree that the caller has checked.
    """
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def becomes_true(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition becomes true within that time. Polls, because the kernel reports no such event."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True
