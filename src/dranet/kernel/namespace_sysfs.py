"""The sysfs of another network namespace: the only one that shows RDMA devices that were moved into it.

A new mount shows the namespace of the thread that makes it. It is mounted nowhere: an open file descriptor is enough to
read it, so nothing has to be taken away afterwards, and nobody else sees it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from dranet.kernel.errors import KernelError
from dranet.kernel.namespaces import run_inside
from dranet.kernel.sysfs import Sysfs

_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
"""Numbers of system calls since Linux 5.2, the same on every processor."""
_CLOEXEC, _CMD_CREATE = 1, 6
_SYSFS_MAGIC = 0x62656572
_libc = ctypes.CDLL(None, use_errno=True)


def is_sysfs(root: str) -> bool:
    """Whether the kernel's own files are there: a made tree says nothing of other namespaces."""
    found = ctypes.create_string_buffer(256)
    return _libc.statfs(os.fsencode(root), found) == 0 and ctypes.c_long.from_buffer(found).value == _SYSFS_MAGIC


@contextmanager
def sysfs_of(namespace_fd: int) -> Iterator[Sysfs]:
    """Read-only in effect; raises KernelError where the kernel does not let us mount."""
    fd = run_inside(namespace_fd, _mounted)
    try:
        yield Sysfs(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def _mounted() -> int:
    opened = _call(_FSOPEN, ctypes.c_char_p(b"sysfs"), _CLOEXEC)
    try:
        _call(_FSCONFIG, opened, _CMD_CREATE, None, None, 0)
        return _call(_FSMOUNT, opened, _CLOEXEC, 0)
    finally:
        os.close(opened)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise KernelError(f"cannot mount the sysfs of a pod's network namespace: {os.strerror(ctypes.get_errno())}")
    return result
