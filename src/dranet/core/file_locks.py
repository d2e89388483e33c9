"""Locks between processes on single bytes of a file. The kernel releases them when a process dies.

These are open file description (OFD) locks. POSIX locks would not do: a process loses them as soon as it closes any
descriptor of the file, and they do not exclude its own threads.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

# struct flock on 64-bit Linux: type, whence, start, length, pid (must be 0 for OFD locks).
_FLOCK = struct.Struct("hhqqi4x")


def open_lock_file(path: str | os.PathLike[str]) -> int:
    """A descriptor for the functions below; creates the file if needed. The caller closes it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(file: int, offset: int) -> bool:
    """Lock the byte; False if another open file has it."""
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _request(fcntl.F_WRLCK, offset))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def lock(file: int, offset: int) -> None:
    """Lock the byte. Blocks without a limit, so do not call it on the event loop."""
    fcntl.fcntl(file, fcntl.F_OFD_SETLKW, _request(fcntl.F_WRLCK, offset))


def unlock(file: int, offset: int) -> None:
    """Unlock the byte. Closing the file unlocks all."""
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, _request(fcntl.F_UNLCK, offset))


def _request(kind: int, offset: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0)
