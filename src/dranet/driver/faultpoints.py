"""Places where the process can be made to die, so that tests can show that dying there loses nothing.

Off unless the environment names a point: `DRANET_FAULT_POINT=attach.moved` kills the process with SIGKILL the first
time it gets there; `attach.moved:3` the third time. `DRANET_SLOW_MOVE=0.7` makes every card take that many seconds on
its way into a pod, as some hardware does (then `attach.entered:2` is when the second card is in), and
`DRANET_SLOW_HOME` on its way out.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

POINTS: tuple[str, ...] = (
    "prepare.planned",
    "prepare.stored",
    "prepare.noted",
    "prepare.readied",
    "attach.begun",
    "attach.stored",
    "attach.entered",
    "attach.moved",
    "attach.done",
    "attach.receipt",
    "detach.begun",
    "detach.receipt",
    "detach.restored",
    "detach.stored",
    "unprepare.begun",
    "unprepare.home",
    "unprepare.struck",
    "unprepare.answered",
    "unprepare.deleted",
)
"""And for each part `attach.TAG`, when it has risen in the pod, and `detach.TAG`, when it has left it."""
FUNCTION_POINTS = ("functions.stored", "functions.made", "functions.removed")
"""Only where virtual functions are made for a claim."""

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


_SLOW_IN = float(os.environ.get("DRANET_SLOW_MOVE", "0"))
_SLOW_HOME = float(os.environ.get("DRANET_SLOW_HOME", "0"))


def paced(cards: Sequence[T], *, homewards: bool = False) -> Iterator[Sequence[T]]:
    """All cards at once; where they are to be slow, one after the other, each taking its time."""
    seconds = _SLOW_HOME if homewards else _SLOW_IN
    if not seconds:
        yield cards
        return
    for card in cards:
        time.sleep(seconds)
        yield [card]


arm(os.environ.get("DRANET_FAULT_POINT", ""))
