"""Locks between processes that are bytes of a file: nothing to clean up, and the kernel lets go when a process dies.

They belong to the open file (OFD locks), not to the process as POSIX locks do: those are lost as soon as any part of
the process closes any descriptor of the file, and do not hold between threads.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

# struct flock on 64-bit Linux: type, whence, start, length, pid (0 for locks owned by the open file).
_FLOCK = struct.Struct("hhqqi4x")


def open_lock_file(path: str | os.PathLike[str]) -> int:
    """A descriptor for the functions below; the file is made where it is missing. Whoever opens it closes it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(file: int, offset: int) -> bool:
    """Take the byte, or say that somebody else has it."""
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _request(fcntl.F_WRLCK, offset))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def lock(file: int, offset: int) -> None:
    """Take the byte; waits as long as it takes, so never on the event loop."""
    fcntl.fcntl(file, fcntl.F_OFD_SETLKW, _request(fcntl.F_WRLCK, offset))


def unlock(file: int, offset: int) -> None:
    """Let the byte go; closing the file does so for all."""
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, _request(fcntl.F_UNLCK, offset))


def _request(kind: int, offset: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0)
