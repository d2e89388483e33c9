"""TCP from card to card for a moment: how much the other side acknowledged.

The kernel's own count of acknowledged bytes is taken, so nothing needs to be drained at the end, and a slow card takes
no longer than a good one. Several streams a card, each on a thread: one stream does not fill a fast link. It does not
fill it with many either, because the CPU is the limit: compare cards with each other, not with their line.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Sequence

from dranet.pairing.bound import acknowledged, bound, in_words
from dranet.pairing.values import Lane, Order, Seen

_CHUNK = memoryview(bytes(1 << 20))
_CONNECT = 2.0
_RESET = struct.pack("ii", 1, 0)


def send(order: Order, port: int) -> list[Seen]:
    """One lane after the other."""
    return [seen for lane in order.lanes for seen in _send([lane], order, port)]


def send_together(order: Order, port: int) -> list[Seen]:
    """All lanes at once."""
    return _send(order.lanes, order, port)


def _send(lanes: Sequence[Lane], order: Order, port: int) -> list[Seen]:
    with contextlib.ExitStack() as stack:
        opened = [_open(lane, order.streams, port, stack) for lane in lanes]
        streams = [stream for found in opened if isinstance(found, list) for stream in found]
        begin = time.perf_counter()
        threads = [threading.Thread(target=_pour, args=(stream, begin + order.seconds)) for stream in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - begin
        return [Seen(False, found) if isinstance(found, str) else _counted(found, took) for found in opened]


def _open(lane: Lane, streams: int, port: int, stack: contextlib.ExitStack) -> list[socket.socket] | str:
    """Connected sockets, or why there are none."""
    made = []
    try:
        for _ in range(streams):
            stream = stack.enter_context(bound(lane.card, socket.SOCK_STREAM))
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)  # what still waits to be sent is dropped
            stream.settimeout(_CONNECT)
            stream.connect((lane.target.address, port))
            made.append(stream)
    except OSError as error:
        return f"TCP: {in_words(error)}"
    return made


def _pour(stream: socket.socket, end: float) -> None:
    with contextlib.suppress(OSError):
        while (left := end - time.perf_counter()) > 0:
            stream.settimeout(left)
            stream.send(_CHUNK)


def _counted(streams: Sequence[socket.socket], took: float) -> Seen:
    counts = [acknowledged(stream) for stream in streams]
    gbits = sum(acked for acked, _ in counts) * 8 / took / 1e9
    return Seen(True, gbits=round(gbits, 4), retransmitted=sum(again for _, again in counts))
