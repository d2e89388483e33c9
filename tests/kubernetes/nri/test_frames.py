"""The two framings: what goes in comes out, however the bytes are cut."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from dranet.kubernetes.nri.frames import FIRST_PIECE, Frame, FrameReader, Kind, MuxReader, mux_frames, ttrpc_frame

messages = st.lists(st.binary(max_size=60), max_size=6)
cuts = st.lists(st.integers(min_value=1, max_value=30), max_size=40)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


def test_a_trunk_frame_is_connection_then_length_then_bytes() -> None:
    assert mux_frames(2, b"abc") == b"\0\0\0\2\0\0\0\3abc"


def test_a_ttrpc_frame_is_length_stream_kind_flags_then_payload() -> None:
    assert ttrpc_frame(5, Kind.RESPONSE, b"xy") == b"\0\0\0\2\0\0\0\5\2\0xy"


def test_a_large_message_becomes_one_small_trunk_frame_and_one_with_the_rest() -> None:
    data = mux_frames(1, b"x" * 10_000)
    assert struct.unpack(">II", data[:8]) == (1, FIRST_PIECE)
    assert struct.unpack(">II", data[8 + FIRST_PIECE : 16 + FIRST_PIECE]) == (1, 10_000 - FIRST_PIECE)


def test_a_message_that_fits_the_first_piece_is_one_trunk_frame() -> None:
    assert len(mux_frames(1, b"x" * FIRST_PIECE)) == 8 + FIRST_PIECE


@given(messages, cuts)
def test_the_trunk_reader_gives_each_connection_its_bytes_however_they_are_cut(
    sent: list[bytes], sizes: list[int]
) -> None:
    wire = b"".join(mux_frames(1 + number % 2, data) for number, data in enumerate(sent))
    reader = MuxReader()
    received = {1: b"", 2: b""}
    for piece in cut(wire, sizes):
        for connection, data in reader.feed(piece):
            received[connection] += data
    assert received == {1: b"".join(sent[::2]), 2: b"".join(sent[1::2])}


@given(messages, cuts)
def test_the_frame_reader_gives_whole_messages_however_they_are_cut(sent: list[bytes], sizes: list[int]) -> None:
    wire = b"".join(ttrpc_frame(2 * number + 1, Kind.REQUEST, data) for number, data in enumerate(sent))
    reader = FrameReader()
    received = [frame for piece in cut(wire, sizes) for frame in reader.feed(piece)]
    assert received == [Frame(2 * number + 1, Kind.REQUEST, data, len(data)) for number, data in enumerate(sent)]


@given(cuts)
def test_an_oversize_message_is_skipped_and_the_next_one_is_read(sizes: list[int]) -> None:
    wire = ttrpc_frame(1, Kind.REQUEST, b"x" * 50) + ttrpc_frame(3, Kind.REQUEST, b"small")
    reader = FrameReader(limit=10)
    received = [frame for piece in cut(wire, sizes) for frame in reader.feed(piece)]
    assert received == [Frame(1, Kind.REQUEST, None, 50), Frame(3, Kind.REQUEST, b"small", 5)]


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_garbage_never_breaks_a_reader(pieces: list[bytes]) -> None:
    mux, frames = MuxReader(), FrameReader(limit=50)
    for piece in pieces:
        for _, data in mux.feed(piece):
            for frame in frames.feed(data):
                assert frame.payload is None or len(frame.payload) <= 50


def test_an_oversize_message_is_not_kept_in_memory() -> None:
    reader = FrameReader(limit=10)
    list(reader.feed(ttrpc_frame(1, Kind.REQUEST, b"x" * 100_000)[:50_000]))
    assert len(reader._buffer) == 0
