"""Netlink attributes: packing and unpacking agree, and any bytes can be read."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from dranet.linux import codec

ATTRIBUTES = st.dictionaries(st.integers(1, 200), st.binary(max_size=40), max_size=30)


@given(ATTRIBUTES)
def test_what_is_packed_is_unpacked(values: dict[int, bytes]) -> None:
    data = b"".join(codec.attribute(kind, value) for kind, value in values.items())
    assert codec.attributes(data) == values


@given(ATTRIBUTES, st.binary(min_size=16, max_size=16))
def test_offsets_find_the_same_values_as_the_plain_walk(values: dict[int, bytes], head: bytes) -> None:
    data = head + b"".join(codec.attribute(kind, value) for kind, value in values.items())
    for _ in range(2):  # the second time the layout is known
        where = codec.offsets(data, 16)
        assert {kind: codec.value_at(data, at) for kind, at in where.items()} == values


def test_messages_of_equal_length_and_different_layout_are_not_confused() -> None:
    one = codec.text(1, "abc") + codec.u32(2, 7)
    two = codec.u32(2, 7) + codec.text(1, "abc")
    three = codec.text(3, "abc") + codec.u32(2, 7)
    for _ in range(2):
        assert codec.offsets(one, 0) == {1: 4, 2: 12}
        assert codec.offsets(two, 0) == {2: 4, 1: 12}
        assert codec.offsets(three, 0) == {3: 4, 2: 12}


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read(data: bytes) -> None:
    assert set(codec.offsets(data, 0)) == set(codec.attributes(data))
    assert len(codec.attribute_list(data)) >= len(codec.attributes(data))


def test_every_attribute_ends_on_a_multiple_of_four() -> None:
    assert [len(codec.attribute(1, b"x" * n)) for n in range(6)] == [4, 8, 8, 8, 8, 12]


def test_nested_attributes_are_marked_and_read_without_the_mark() -> None:
    data = codec.nested(5, codec.u16(1, 513))
    assert struct.unpack_from("=HH", data) == (12, 0x8005)
    inner = codec.attributes(codec.attributes(data)[5])
    assert codec.number(inner[1]) == 513


def test_repeated_attributes_are_all_in_the_list() -> None:
    data = codec.text(53, "one") + codec.text(53, "two")
    assert codec.attribute_list(data) == [(53, b"one\0"), (53, b"two\0")]


def test_names_that_are_not_utf8_survive_reading_and_writing() -> None:
    raw = b"eth\xff\xfe\0"
    assert codec.text(3, codec.string(raw))[4:10] == raw


def test_hardware_addresses_are_read_in_every_notation() -> None:
    wanted = bytes.fromhex("0011223344aa")
    assert {codec.mac_bytes(text) for text in ("00:11:22:33:44:AA", "00-11-22-33-44-aa", "0011.2233.44aa")} == {wanted}
    assert codec.mac_text(wanted) == "00:11:22:33:44:aa"


def test_signed_numbers_keep_their_sign() -> None:
    assert codec.signed(codec.i32(1, -1)[4:]) == -1
    assert codec.number(codec.u64(1, 1 << 63)[4:]) == 1 << 63
