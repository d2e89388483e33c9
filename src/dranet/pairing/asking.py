"""Datagrams from one card to another: does it answer, how soon, how many are lost, and how large may they be.

Sizes are those of the whole IP packet. The largest that comes through is searched with many sizes in flight at once:
a lost one costs a wait, and a search by halves would wait for every step.
"""

from __future__ import annotations

import errno
import itertools
import random
import select
import socket
import statistics
import time
from collections.abc import Sequence

from dranet.pairing.answering import MARK, QUESTION
from dranet.pairing.bound import bound, headers, in_words, never_fragment
from dranet.pairing.values import Lane, Seen

SMALL = 92
COUNT = 50
_GAP = 0.002
_PATIENCE = 1.0
"""For the first answer: the neighbour must be found too."""
_SOON = 0.3
_AT_ONCE = 12


class Echo:
    """Questions of one card to another."""

    def __init__(self, lane: Lane, port: int) -> None:
        self._socket = bound(lane.card, socket.SOCK_DGRAM)
        self._headers = headers(lane.card.address)
        self._run, self._numbers = random.getrandbits(64), itertools.count()
        self.trouble = "no answer (time-out)"
        try:
            never_fragment(self._socket)
            self._socket.setblocking(False)
            self._socket.connect((lane.target.address, port))
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Echo:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, sizes: Sequence[int], patience: float, gap: float = 0.0) -> list[float | None]:
        """Seconds till each was answered; None for those that were not."""
        first = next(self._numbers)
        sent: dict[int, float] = {}
        found: dict[int, float] = {}
        for number, size in enumerate(sizes, first):
            sent[number] = time.perf_counter()
            self._send(number, size)
            self._receive(sent, found, gap)
        self._numbers = itertools.count(first + len(sizes))
        end = time.perf_counter() + patience
        while len(found) < len(sizes) and (left := end - time.perf_counter()) > 0:
            self._receive(sent, found, left)
        return [found.get(number) for number in sent]

    def _send(self, number: int, size: int) -> None:
        text = QUESTION.pack(MARK, number, self._run)
        try:
            self._socket.send(text + bytes(max(0, size - self._headers - len(text))))
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                self.trouble = in_words(error)

    def _receive(self, sent: dict[int, float], found: dict[int, float], wait: float) -> None:
        """What arrives within this time; returns at the first arrival."""
        if not select.select([self._socket], [], [], wait)[0]:
            return
        try:
            mark, number, run = QUESTION.unpack(self._socket.recv(QUESTION.size))
        except OSError as error:
            self.trouble = in_words(error)
            return
        if (mark, run) == (MARK, self._run) and number in sent:
            found.setdefault(number, time.perf_counter() - sent[number])


def reach(lane: Lane, port: int) -> Seen:
    """Whether it answers at all; one of three is enough."""
    try:
        with Echo(lane, port) as echo:
            answered = any(rtt is not None for rtt in echo.ask([SMALL] * 3, _PATIENCE, 0.01))
            return Seen(answered, "" if answered else echo.trouble)
    except OSError as error:
        return Seen(False, in_words(error))


def look(lane: Lane, port: int) -> Seen:
    """Path MTU, latency and loss of a lane that answers."""
    try:
        with Echo(lane, port) as echo:
            path_mtu = largest(echo, lane.card.mtu)
            rtts = echo.ask([SMALL] * COUNT, _SOON, _GAP)
    except OSError as error:
        return Seen(False, in_words(error))
    came = [rtt for rtt in rtts if rtt is not None]
    median = statistics.median(came) * 1e6 if came else None
    return Seen(True, "", path_mtu, COUNT, COUNT - len(came), None if median is None else round(median, 1))


def largest(echo: Echo, mtu: int) -> int:
    """The largest packet that arrives, to the byte; small ones are known to."""
    if _passes(echo, [mtu]):
        return mtu
    low, high = SMALL, mtu
    while high - low > 1:
        sizes = sorted({low + (high - low) * step // _AT_ONCE for step in range(1, _AT_ONCE)} - {low})
        passing = _passes(echo, sizes)
        low = max(passing, default=low)
        high = min((size for size in sizes if size > low), default=high)
    return low


def _passes(echo: Echo, sizes: Sequence[int]) -> list[int]:
    """Those of which one of two arrived."""
    twice = [*sizes, *sizes]
    return sorted({size for size, rtt in zip(twice, echo.ask(twice, _SOON), strict=True) if rtt is not None})
