"""Keeping the process small for months: how the C library's heap behaves, and what is given back after the start.

The C library's defaults serve programs that allocate from many threads at once. This one waits; its few large buffers
come and go, and left on the heap they leave holes behind that only grow.
"""

from __future__ import annotations

import ctypes
import gc

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE = 64 * 1024
"""Buffers of this size get pages of their own, which go back to the system with them."""
_SLACK = 128 * 1024


def be_frugal() -> None:
    """One heap for all threads, large buffers outside it, and its free end given back early."""
    c_library = ctypes.CDLL(None)
    for option, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, _SLACK)):
        c_library.mallopt(option, value)


def settle() -> None:
    """What starting needed is over: give it back, and let the collector never look at what stays for months."""
    gc.collect()
    gc.freeze()
    ctypes.CDLL(None).malloc_trim(0)
