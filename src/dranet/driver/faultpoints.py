"""Places where the process can be made to die, so that tests can show that dying there loses nothing.

Off unless the environment names a point: `DRANET_FAULT_POINT=attach.moved` kills the process with SIGKILL the first
time it gets there; `attach.moved:3` the third time. `DRANET_SLOW_MOVE=0.7` makes every card take that many seconds on
its way into a pod, as some hardware does.
"""

from __future__ import annotations

import os
import signal
import time

POINTS: tuple[str, ...] = (
    "prepare.planned",
    "prepare.stored",
    "prepare.readied",
    "attach.begun",
    "attach.stored",
    "attach.moved",
    "attach.done",
    "attach.receipt",
    "detach.begun",
    "detach.receipt",
    "detach.restored",
    "detach.stored",
    "unprepare.begun",
    "unprepare.home",
    "unprepare.deleted",
)
"""And for each part `attach.TAG`, when it has risen in the pod, and `detach.TAG`, when it has left it."""

_name, _left = "", 0


def arm(text: str) -> None:
    """Die at a point: `attach.moved`, or `attach.moved:3` for the third time; nowhere for an empty text."""
    global _name, _left
    _name, _, count = text.partition(":")
    _left = int(count or 1)


def reach(point: str) -> None:
    """Die here if the environment says so."""
    global _left
    if point != _name:
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


_SLOW_MOVE = float(os.environ.get("DRANET_SLOW_MOVE", "0"))


def linger() -> None:
    """Take as long as slow hardware would for one card."""
    if _SLOW_MOVE:
        time.sleep(_SLOW_MOVE)


arm(os.environ.get("DRANET_FAULT_POINT", ""))
