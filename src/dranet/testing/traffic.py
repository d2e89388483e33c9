"""Traffic through claimed NICs: a ping and a short TCP transfer between the namespaces of two pods.

A socket belongs to the namespace in which it was created, so sockets are created inside the pods and used from here.
The rates are those of this machine's kernel, not of a NIC: the point is that packets arrive through the claimed NIC.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dranet.linux.namespaces import Namespace

_ECHO, _ECHO_REPLY = 8, 0
_HEADER = struct.Struct("!BBHHH")
_CHUNK = bytes(1 << 20)
_RUN_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class End:
    """One NIC of one pod."""

    namespace: Namespace
    address: str


@dataclass(frozen=True, slots=True)
class Lane:
    """Two NICs on one rail."""

    near: End
    far: End


def ping(lane: Lane, *, seconds: float = 1.0, attempts: int = 3) -> float | None:
    """Round-trip time of the first echo reply in seconds; None without a reply."""
    with lane.near.namespace.run(_raw_socket) as echo:
        echo.bind((lane.near.address, 0))
        mark = os.getpid() & 0xFFFF
        for sequence in range(attempts):
            start = time.perf_counter()
            echo.sendto(_request(mark, sequence), (lane.far.address, 0))
            if _answered(echo, lane.far.address, mark, sequence, start + seconds):
                return time.perf_counter() - start
    return None


def throughput(lanes: Sequence[Lane], seconds: float = _RUN_SECONDS) -> list[float]:
    """Gbit/s on each lane, all running at the same time."""
    with contextlib.ExitStack() as stack:
        runs = [_Run(*stack.enter_context(_connected(lane)), seconds) for lane in lanes]
        for run in runs:
            run.start()
        return [run.result() for run in runs]


class _Run:
    """One sender and one receiver."""

    def __init__(self, sender: socket.socket, receiver: socket.socket, seconds: float) -> None:
        self._sender, self._receiver, self._seconds = sender, receiver, seconds
        self._bytes, self._took = 0, 0.0
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._receive)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def result(self) -> float:
        for thread in self._threads:
            thread.join()
        return self._bytes * 8 / self._took / 1e9 if self._took else 0.0

    def _send(self) -> None:
        end = time.perf_counter() + self._seconds
        with contextlib.suppress(OSError):
            while time.perf_counter() < end:
                self._sender.sendall(_CHUNK)
            self._sender.shutdown(socket.SHUT_WR)

    def _receive(self) -> None:
        start, buffer = time.perf_counter(), bytearray(len(_CHUNK))
        with contextlib.suppress(OSError):
            while count := self._receiver.recv_into(buffer):
                self._bytes += count
        self._took = time.perf_counter() - start


@contextlib.contextmanager
def _connected(lane: Lane) -> Iterator[tuple[socket.socket, socket.socket]]:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(lane.far.namespace.run(socket.socket))
        listener.bind((lane.far.address, 0))
        listener.listen(1)
        sender = stack.enter_context(lane.near.namespace.run(socket.socket))
        for end in (listener, sender):
            end.settimeout(5.0)
        sender.bind((lane.near.address, 0))
        sender.connect(listener.getsockname())
        receiver = stack.enter_context(listener.accept()[0])
        receiver.settimeout(5.0)
        yield sender, receiver


def _raw_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


def _request(mark: int, sequence: int) -> bytes:
    bare = _HEADER.pack(_ECHO, 0, 0, mark, sequence)
    return _HEADER.pack(_ECHO, 0, _checksum(bare), mark, sequence)


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def _answered(echo: socket.socket, sender: str, mark: int, sequence: int, deadline: float) -> bool:
    """Whether the reply to this request arrives in time; a raw socket receives all replies."""
    while (left := deadline - time.perf_counter()) > 0:
        echo.settimeout(left)
        try:
            packet, (address, _) = echo.recvfrom(2048)
        except TimeoutError:
            return False
        kind, _, _, got_mark, got_sequence = _HEADER.unpack_from(packet, (packet[0] & 15) * 4)
        if (kind, address, got_mark, got_sequence) == (_ECHO_REPLY, sender, mark, sequence):
            return True
    return False
