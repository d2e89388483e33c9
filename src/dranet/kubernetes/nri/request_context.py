"""When a request arrived, and whether its caller still waits.

A process can be stopped (SIGSTOP, a frozen cgroup) or its event loop blocked while a request is in the socket buffer.
The runtime continues after its timeout; carrying the request out later would change a running container. Stream sockets
have no time stamps, so two facts are combined:

- A heartbeat on the loop. If the last beat is long ago when bytes are read, the loop was blocked and the bytes may be
  as old as that beat: the oldest possible time counts.
- The kernel knows at once that the peer has closed, even with unread bytes in the buffer. `peer_hung_up` asks it.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]

BEAT_SECONDS = 0.25
# Ordinary work on the loop does not delay a beat by this much.
STALLED_AFTER = 2 * BEAT_SECONDS


class ArrivalClock:
    """The oldest possible arrival time of bytes that are read now, in monotonic seconds."""

    def __init__(self, now: Clock = time.monotonic) -> None:
        self.now = now
        self._last_beat = now()
        self._stalled_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the heartbeat; needs a running loop."""
        self._last_beat = self.now()
        self._timer = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._on_timer)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def earliest(self) -> float:
        """The oldest time at which bytes that are read now can have arrived."""
        if self._stalled_since is not None:
            return self._stalled_since
        now = self.now()
        return self._last_beat if now - self._last_beat > STALLED_AFTER else now

    def beat(self) -> None:
        """One beat. After a late one, bytes count as old until the loop has read the socket buffer."""
        now = self.now()
        self._stalled_since = self._last_beat if now - self._last_beat > STALLED_AFTER else None
        self._last_beat = now

    def caught_up(self) -> None:
        """The socket buffer is read: later bytes have just arrived."""
        self._stalled_since = None

    def _on_timer(self) -> None:
        self.beat()
        loop = asyncio.get_running_loop()
        if self._stalled_since is not None:
            # Some loops run timers before sockets: two iterations later the socket buffer has been read.
            loop.call_soon(loop.call_soon, self.caught_up)
        self._timer = loop.call_later(BEAT_SECONDS, self._on_timer)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The deadline of a request. Check `expired()` before anything that cannot be undone."""

    received_at: float
    deadline: float | None
    now: Clock
    hung_up: Callable[[], bool]

    def expired(self) -> bool:
        """True after the deadline, or if the caller has closed the connection."""
        return (self.deadline is not None and self.now() >= self.deadline) or self.hung_up()

    def remaining(self) -> float | None:
        """Seconds until the deadline, at least 0; None if there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - self.now())


def peer_hung_up(fileno: int) -> bool:
    """Whether the other end of this socket has closed. A closed or unknown descriptor counts as hung up."""
    if fileno < 0:
        return True
    poll = select.poll()
    poll.register(fileno, select.POLLRDHUP)
    events = poll.poll(0)
    return any(flags & (select.POLLRDHUP | select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, flags in events)
