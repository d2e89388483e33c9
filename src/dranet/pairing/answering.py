"""What a pod offers while the check runs: on each card, short answers to datagrams and a sink for TCP.

A datagram is answered with its number and the size that arrived, never with its content: an answer is no larger than
the question, so a path that is narrow in one direction shows in that direction only.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterable

from dranet.pairing.bound import bound, in_words
from dranet.pairing.values import Card

QUESTION = struct.Struct("!4sIQ")
"""A mark, the number of the question, and the run it belongs to."""
MARK = b"dnet"
_LARGEST = 1 << 16


class Answering:
    """Open on every card from the beginning to the end; cards that cannot be opened are said in `troubles`."""

    def __init__(self, cards: Iterable[Card], port: int) -> None:
        self._sockets: list[socket.socket] = []
        self.troubles: dict[str, str] = {}
        for card in cards:
            try:
                self._open(card, port)
            except OSError as error:
                self.troubles[card.name] = in_words(error)

    def close(self) -> None:
        for made in self._sockets:
            with contextlib.suppress(OSError):
                made.shutdown(socket.SHUT_RDWR)  # a thread that waits in it wakes up; close alone would leave it there
            made.close()

    def _open(self, card: Card, port: int) -> None:
        echo = bound(card, socket.SOCK_DGRAM, port)
        self._sockets.append(echo)
        _start(_answer, echo)
        sink = bound(card, socket.SOCK_STREAM, port)
        self._sockets.append(sink)
        sink.listen(64)
        _start(_accept, sink)


def _start(work: object, made: socket.socket) -> None:
    threading.Thread(target=work, args=(made,), daemon=True).start()  # type: ignore[arg-type]


def _answer(echo: socket.socket) -> None:
    while echo.fileno() >= 0:
        with contextlib.suppress(OSError):  # a link that was down for a moment must not end it, nor one who went away
            asked, sender = echo.recvfrom(_LARGEST)
            if len(asked) >= QUESTION.size and asked.startswith(MARK):
                echo.sendto(asked[: QUESTION.size], sender)


def _accept(sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            _start(_swallow, sink.accept()[0])


def _swallow(stream: socket.socket) -> None:
    """Let the kernel throw the bytes away: nobody reads them, and copying would cost what we measure."""
    buffer = bytearray(1 << 20)
    with contextlib.suppress(OSError), stream:
        while stream.recv_into(buffer, len(buffer), socket.MSG_TRUNC):
            pass
