"""Small files of sysfs, kept open: reading one again costs a sixth of opening it again.

The kernel makes the text anew for each read from the beginning. A device that goes answers its open files with errors,
like a link that is down and has no speed: whoever reads takes both for nothing.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from functools import partial

from dranet.kernel.sysfs import Sysfs

_ENOUGH = 4096
Read = Callable[[], bytes | None]
"""The text, None where there is none any more; or OSError. Thousands of these a minute: one call each, no frame of
ours."""


class KeptFiles:
    """Open files up to half of what the process may have; what is beyond is opened for each reading."""

    def __init__(self) -> None:
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        self._open: list[int] = []

    def reader(self, sysfs: Sysfs, *path: str) -> Read | None:
        """How to read this file; None where there is no such file."""
        fd = sysfs.open(*path)
        if fd is None:
            return None
        if len(self._open) >= self._most:
            os.close(fd)
            return lambda: sysfs.read_bytes(*path)
        self._open.append(fd)
        return partial(os.pread, fd, _ENOUGH, 0)

    def close(self) -> None:
        """No reader of these files can be used any more."""
        while self._open:
            os.close(self._open.pop())
