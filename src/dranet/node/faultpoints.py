"""Points where tests kill the process, to show that a crash there loses nothing; `claim_states` lists them.

Off unless the environment names a point: `DRANET_FAULT_POINT=attach.moved` kills the process with SIGKILL the first
time it gets there; `attach.moved:3` the third time. `DRANET_SLOW_ATTACH=0.7` makes every device take that many seconds
to attach, as some hardware does (then `attach.one_moved:2` is reached when the second device is in the pod), and
`DRANET_SLOW_DETACH` to detach.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

FUNCTION_POINTS = ("functions.stored", "functions.created", "functions.removed")
"""Only for claims of virtual functions."""

_name, _left = "", 0
_observers: list[Callable[[str], None]] = []


def arm(text: str) -> None:
    """Set the point where the process is killed; none for an empty text."""
    global _name, _left
    _name, _, count = text.partition(":")
    _left = int(count or 1)


@contextmanager
def observed(observer: Callable[[str], None]) -> Iterator[None]:
    """Call the observer at each point that the block reaches, also on other threads."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def reach(point: str) -> None:
    """Kill the process if this point is armed."""
    global _left
    for observer in _observers:
        observer(point)
    if point != _name:
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


_SLOW_ATTACH = float(os.environ.get("DRANET_SLOW_ATTACH", "0"))
_SLOW_DETACH = float(os.environ.get("DRANET_SLOW_DETACH", "0"))


def paced(devices: Sequence[T], *, detaching: bool = False) -> Iterator[Sequence[T]]:
    """All devices at once; with DRANET_SLOW_*, one after the other with a delay before each."""
    seconds = _SLOW_DETACH if detaching else _SLOW_ATTACH
    if not seconds:
        yield devices
        return
    for device in devices:
        time.sleep(seconds)
        yield [device]


arm(os.environ.get("DRANET_FAULT_POINT", ""))
