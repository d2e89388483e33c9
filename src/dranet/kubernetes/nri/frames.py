"""Parsers for both framings; they do no I/O.

A mux frame is a piece of a logical connection's byte stream and is passed on as its bytes arrive. A ttrpc frame is a
message and is passed on complete; one above the size limit is skipped without being kept in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

MAX_MESSAGE = 4 << 20

_MUX = struct.Struct(">II")
_TTRPC = struct.Struct(">IIBB")

# containerd reads a logical connection through a buffer of 4096 bytes and fails (ENOMEM) when a mux frame is larger
# than the free space at that moment; it also drops the connection when more than 256 frames wait. A first frame of
# at most the buffer's size and then one with all the rest always fits.
FIRST_PIECE = 4096


class Kind(IntEnum):
    """The type of a ttrpc frame. NRI does not use DATA."""

    REQUEST = 1
    RESPONSE = 2
    DATA = 3


class Frame(NamedTuple):
    """One ttrpc frame. The payload is None when it was above the limit and has been skipped."""

    stream: int
    kind: int
    payload: bytes | None
    length: int


def mux_frames(connection: int, data: bytes) -> bytes:
    """The bytes that carry `data` on a logical connection."""
    first, rest = data[:FIRST_PIECE], data[FIRST_PIECE:]
    head = _MUX.pack(connection, len(first)) + first
    return head + _MUX.pack(connection, len(rest)) + rest if rest else head


def ttrpc_frame(stream: int, kind: Kind, payload: bytes) -> bytes:
    """Header and payload of one message on a stream."""
    return _TTRPC.pack(len(payload), stream, kind, 0) + payload


class MuxReader:
    """Splits the bytes of a socket into (connection id, bytes)."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._connection = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The pieces in the received bytes, each with its connection; headers may be split."""
        position = 0
        while position < len(data):
            if self._left == 0:
                position = self._read_header(data, position)
                continue
            piece = data[position : position + self._left]
            self._left -= len(piece)
            position += len(piece)
            yield self._connection, piece

    def _read_header(self, data: bytes, position: int) -> int:
        wanted = _MUX.size - len(self._header)
        self._header += data[position : position + wanted]
        if len(self._header) == _MUX.size:
            self._connection, self._left = _MUX.unpack(self._header)
            self._header.clear()
        return position + wanted


class FrameReader:
    """Splits a logical connection's bytes into ttrpc frames."""

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._skip = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The complete messages so far. One above the limit is skipped."""
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        self._buffer += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        if len(self._buffer) < _TTRPC.size:
            return None
        length, stream, kind, _flags = _TTRPC.unpack_from(self._buffer)
        end = _TTRPC.size + length
        if length > self._limit:
            self._skip = max(0, end - len(self._buffer))
            del self._buffer[:end]
            return Frame(stream, kind, None, length)
        if len(self._buffer) < end:
            return None
        payload = bytes(memoryview(self._buffer)[_TTRPC.size : end])
        del self._buffer[:end]
        return Frame(stream, kind, payload, length)
