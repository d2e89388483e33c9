"""Encoding and decoding of netlink messages and attributes. Pure functions.

All families (route, generic, RDMA, socket filters) use the same nested type-length-value format in native byte order.
`attributes` returns only the last value of a repeated attribute; `attribute_list` returns all.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from itertools import pairwise
from socket import inet_pton
from typing import NamedTuple

import msgspec

NLM_F_REQUEST = 0x001
NLM_F_ACK = 0x004
NLM_F_DUMP_INTR = 0x010
NLM_F_DUMP = 0x300
NLM_F_REPLACE = 0x100
NLM_F_EXCL = 0x200
NLM_F_CREATE = 0x400
NLM_F_APPEND = 0x800

_NESTED = 0x8000
_KIND_MASK = 0x3FFF
_ATTRIBUTE = struct.Struct("=HH")
_U16, _U32, _U64, _I32 = (struct.Struct(code) for code in ("=H", "=I", "=Q", "=i"))
_U32_ATTRIBUTE = struct.Struct("=HHI")
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")
_unpack_attribute = _ATTRIBUTE.unpack_from


class Message(NamedTuple):
    """One request to the kernel. `what` describes it in the error if the kernel refuses."""

    type: int
    flags: int
    payload: bytes
    what: str = ""


class Reply(msgspec.Struct, frozen=True, gc=False):
    """One reply or event from the kernel, without its netlink header."""

    type: int
    payload: bytes


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    return _ATTRIBUTE.pack(len(value) + 4, kind) + value + _PADDING[len(value) & 3]


def u8(kind: int, value: int) -> bytes:
    """An attribute of one byte."""
    return attribute(kind, bytes((value,)))


def u16(kind: int, value: int) -> bytes:
    """An attribute of two bytes in native order."""
    return attribute(kind, _U16.pack(value))


def u32(kind: int, value: int) -> bytes:
    """An attribute of four bytes in native order."""
    return _U32_ATTRIBUTE.pack(8, kind, value)


def i32(kind: int, value: int) -> bytes:
    """A signed attribute: file descriptors and namespace ids, where -1 means none."""
    return attribute(kind, _I32.pack(value))


def u64(kind: int, value: int) -> bytes:
    """An attribute of eight bytes in native order."""
    return attribute(kind, _U64.pack(value))


def text(kind: int, value: str) -> bytes:
    """A NUL-terminated string; bytes that are not UTF-8 are preserved."""
    return attribute(kind, value.encode(errors="surrogateescape") + b"\0")


def nested(kind: int, *parts: bytes) -> bytes:
    """An attribute of attributes; strict checking requires the flag."""
    return attribute(kind | _NESTED, b"".join(parts))


def attributes(data: bytes, offset: int = 0) -> dict[int, bytes]:
    """All attributes from `offset` on, by type. Stops at malformed trailing bytes."""
    found: dict[int, bytes] = {}
    end = len(data)
    while offset + 4 <= end:
        length, kind = _unpack_attribute(data, offset)
        if length < 4:
            break
        found[kind & _KIND_MASK] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def offsets(data: bytes, offset: int) -> dict[int, int]:
    """The offset of each attribute's value, for records with many attributes of which few are needed.

    Messages of a dump have few layouts. Comparing all attribute headers with a known layout at once is several times
    faster than walking them. The result is shared: do not modify it.
    """
    key = (len(data), offset)
    known = _layouts.get(key, ())
    for layout in known:
        if layout.headers(data) == layout.expected:
            return layout.where
    where, edges = _walk(data, offset)
    if edges[-1] == len(data) and len(known) < _MOST_LAYOUTS and len(_layouts) < _MOST_LENGTHS:
        _layouts[key] = (*known, _learn(data, edges, where))
    return where


class _Layout(NamedTuple):
    headers: Callable[[bytes], tuple[int, ...]]
    expected: tuple[int, ...]
    where: dict[int, int]


_layouts: dict[tuple[int, int], tuple[_Layout, ...]] = {}
_MOST_LENGTHS, _MOST_LAYOUTS = 64, 4


def _walk(data: bytes, offset: int) -> tuple[dict[int, int], list[int]]:
    """The offsets, and the boundaries of all attributes; the last one is the end of the data unless it is malformed."""
    where: dict[int, int] = {}
    edges = [offset]
    end = len(data)
    while offset + 4 <= end:
        length, kind = _unpack_attribute(data, offset)
        if length < 4:
            break
        where[kind & _KIND_MASK] = offset + 4
        offset += (length + 3) & ~3
        edges.append(offset)
    return where, edges


def _learn(data: bytes, edges: list[int], where: dict[int, int]) -> _Layout:
    """A function that reads all attribute headers (length and type), and its result for this layout."""
    gaps = [end - start - 4 for start, end in pairwise(edges)]
    headers = struct.Struct(f"={edges[0]}x" + "".join(f"I{gap}x" for gap in gaps)).unpack
    return _Layout(headers, headers(data), where)


def value_at(data: bytes, offset: int) -> bytes:
    """The value of the attribute that starts at an offset of `offsets`."""
    return data[offset : offset - 4 + _unpack_attribute(data, offset - 4)[0]]


def padded_length(data: bytes, offset: int = 0) -> int:
    """The length of the attribute at an offset, with padding."""
    length: int = _unpack_attribute(data, offset)[0]
    return (length + 3) & ~3


def attribute_list(data: bytes, offset: int = 0) -> list[tuple[int, bytes]]:
    """Like `attributes`, in the kernel's order and with repetitions."""
    found: list[tuple[int, bytes]] = []
    end = len(data)
    while offset + 4 <= end:
        length, kind = _unpack_attribute(data, offset)
        if length < 4:
            break
        found.append((kind & _KIND_MASK, data[offset + 4 : offset + length]))
        offset += (length + 3) & ~3
    return found


def number(value: bytes) -> int:
    """An unsigned number of any width in the machine's byte order."""
    return int.from_bytes(value, sys.byteorder)


def signed(value: bytes) -> int:
    """Four bytes as a signed number."""
    return int.from_bytes(value, sys.byteorder, signed=True)


def string(value: bytes) -> str:
    """A NUL-terminated string as the kernel sends it (interface names may hold any byte but `/` and NUL)."""
    return value.split(b"\0", 1)[0].decode(errors="surrogateescape")


def pack_prefix(family: int, prefix: str | None) -> tuple[bytes, int]:
    """Address and length of `address/length`, or of a single address; empty for None."""
    if prefix is None:
        return b"", 0
    address, _, length = prefix.partition("/")
    packed = inet_pton(family, address)
    return packed, int(length) if length else len(packed) * 8


def mac_text(value: bytes) -> str:
    """A hardware address in lower case with colons."""
    return value.hex(":")


def mac_bytes(value: str) -> bytes:
    """A hardware address of any length, written with colons, dashes or dots."""
    return bytes.fromhex(value.replace(":", "").replace("-", "").replace(".", ""))
