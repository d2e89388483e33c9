"""When did these bytes arrive, and is anybody still waiting for the answer?

A process can be stopped (SIGSTOP, a frozen cgroup) or its loop blocked while a request lies in the socket. The runtime
gives up after its time-out and goes on; carrying the request out seconds later would change a container that runs.
Stream sockets carry no time stamps, so two facts are put together:

- A heartbeat on the loop's clock. If the last beat is long ago when bytes are read, the loop was asleep at the wheel
  and the bytes may be as old as that beat: we take the oldest moment they can have come.
- The kernel knows at once that the peer has closed, even while unread bytes are in front of the end of the stream.
  `hung_up` asks it directly, so the answer does not depend on what the loop has read so far.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]

BEAT = 0.25
# A beat later than this was not delayed by ordinary work on the loop.
STALLED_AFTER = 2 * BEAT


class ArrivalClock:
    """Tells for bytes that are read now how old they can be. Monotonic seconds."""

    def __init__(self, now: Clock = time.monotonic) -> None:
        self.now = now
        self._last_beat = now()
        self._stalled_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to notice when the event loop is late; needs a running loop."""
        self._last_beat = self.now()
        self._timer = asyncio.get_running_loop().call_later(BEAT, self._on_timer)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def earliest(self) -> float:
        """The oldest moment at which bytes read right now can have arrived."""
        if self._stalled_since is not None:
            return self._stalled_since
        now = self.now()
        return self._last_beat if now - self._last_beat > STALLED_AFTER else now

    def beat(self) -> None:
        """One beat. After a late one, bytes stay suspect until the loop has read what was waiting."""
        now = self.now()
        self._stalled_since = self._last_beat if now - self._last_beat > STALLED_AFTER else None
        self._last_beat = now

    def caught_up(self) -> None:
        """Everything that had arrived is read: what comes now has just arrived."""
        self._stalled_since = None

    def _on_timer(self) -> None:
        self.beat()
        loop = asyncio.get_running_loop()
        if self._stalled_since is not None:
            # Some loops run timers before they look at sockets: two rounds later every waiting byte has been read.
            loop.call_soon(loop.call_soon, self.caught_up)
        self._timer = loop.call_later(BEAT, self._on_timer)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """How long a handler's caller will wait. Ask `expired()` before anything that cannot be taken back."""

    received_at: float
    deadline: float | None
    now: Clock
    hung_up: Callable[[], bool]

    def expired(self) -> bool:
        """True once nobody waits for the answer: the time is over, or the caller has closed the connection."""
        return (self.deadline is not None and self.now() >= self.deadline) or self.hung_up()

    def remaining(self) -> float | None:
        """Seconds until the deadline, not below 0; None when the caller set none."""
        return None if self.deadline is None else max(0.0, self.deadline - self.now())


def peer_hung_up(fileno: int) -> bool:
    """Whether the other end of this socket has closed. A closed or unknown descriptor counts as hung up."""
    if fileno < 0:
        return True
    poll = select.poll()
    poll.register(fileno, select.POLLRDHUP)
    events = poll.poll(0)
    return any(flags & (select.POLLRDHUP | select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, flags in events)
