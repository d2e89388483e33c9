"""The first pod waits until all others are there, or says who did not come."""

from __future__ import annotations

import contextlib
import socket
import time

from dranet.pairing.values import Answer, Lane, Member, Order, Seen
from dranet.pairing.wire import Line, Lost


class Guest:
    """A member that came, and the line to it; once lost it stays lost."""

    def __init__(self, member: Member, line: Line) -> None:
        self.member, self._line, self.lost = member, line, ""

    def ask(self, do: str, lanes: list[Lane], seconds: float, streams: int) -> list[Seen]:
        """What it saw on each lane; raises Lost."""
        if self.lost:
            raise Lost(self.lost)
        if not lanes:
            return []
        try:
            self._line.say(Order(do, tuple(lanes), seconds, streams))
            seen = self._line.hear(Answer, _patience(do, len(lanes), seconds)).seen
            if len(seen) != len(lanes):
                raise Lost(f"it answered {len(seen)} of {len(lanes)} questions")
        except Lost as error:
            self.lost = f"{error} (it was to {do})"
            raise Lost(self.lost) from error
        return list(seen)

    def dismiss(self) -> None:
        with contextlib.suppress(Lost):
            self._line.say(Order("done"))
        self._line.close()


def _patience(do: str, lanes: int, seconds: float) -> float:
    """Lanes are reached all at once, and every meeting begins with it: a pod that is stuck is noticed there."""
    return 10 if do == "reach" else 10 + lanes * (seconds + 5)


def gather(listener: socket.socket, expected: int, patience: float) -> list[Guest]:
    """All that come in time, by rank; a pod that was started again takes its own place."""
    guests: dict[int, Guest] = {}
    end = time.monotonic() + patience
    while len(guests) < expected and (left := end - time.monotonic()) > 0:
        listener.settimeout(left)
        with contextlib.suppress(TimeoutError, Lost):
            line = Line(listener.accept()[0])
            member = line.hear(Member, 10)
            guests[member.rank] = Guest(member, line)
    return [guests[rank] for rank in sorted(guests)]
