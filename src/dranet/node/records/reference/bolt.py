"""bbolt files, read only: the format of the reference driver's database.

A file is a row of pages. Two of them are meta pages, written in turn: the one with the higher transaction whose
checksum is right names the root. From there a B+ tree of branch and leaf pages holds keys and values; a value may be a
bucket of its own, somewhere else in the file or, when small, within the value itself.

The file is read in one go and never locked: a database in use is copy on write, so whatever a valid meta page names was
whole when it was written. Should the owner reuse a page while we read, something below does not add up and the reader
raises; it never guesses. Nothing in a file can make it loop or read past the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dranet.core.errors import DranetError

_PAGE = struct.Struct("<QHHI")
"""Page number, kind, number of elements, number of further pages this one spans."""
_META = struct.Struct("<IIIIQQQQQQ")
"""Magic, version, page size, flags, root page, root sequence, freelist page, pages in use, transaction, checksum."""
_BRANCH = struct.Struct("<IIQ")
_LEAF = struct.Struct("<IIII")
_BUCKET = struct.Struct("<QQ")

_MAGIC, _VERSION = 0xED0CDAED, 2
_IS_BRANCH, _IS_LEAF = 0x01, 0x02
_IS_BUCKET = 0x01
_PAGE_SIZES = tuple(1 << bits for bits in range(10, 17))
_DEEPEST = 32
"""No real tree is this deep; a damaged one may point back to itself."""


class BoltError(DranetError):
    """The file is not a bbolt database, or it is damaged."""


class Bucket(NamedTuple):
    """Keys with values and keys with further buckets, each in key order."""

    values: dict[bytes, bytes]
    buckets: dict[bytes, Bucket]


def read(path: str | Path) -> Bucket:
    """The whole database as its root bucket."""
    return _Reader(Path(path).read_bytes(), str(path)).root()


class _Reader:
    def __init__(self, raw: bytes, name: str) -> None:
        self._raw = raw
        self._name = name
        self._visits = 0

    def root(self) -> Bucket:
        metas = [meta for size in _PAGE_SIZES for at in (0, size) if (meta := self._meta(at, size))]
        if not metas:
            raise self._damaged("it has no valid meta page")
        _, self._page_size, root = max(metas)
        return self._bucket(root, depth=0)

    def _meta(self, at: int, size: int) -> tuple[int, int, int] | None:
        """Transaction, page size and root page, if a valid meta page for this page size lies here."""
        begin = at + _PAGE.size
        if len(self._raw) < begin + _META.size:
            return None
        magic, version, page_size, _, root, _, _, _, transaction, checksum = _META.unpack_from(self._raw, begin)
        if (magic, version, page_size) != (_MAGIC, _VERSION, size):
            return None
        covered = self._raw[begin : begin + _META.size - 8]
        return (transaction, size, root) if checksum == _fnv1a(covered) else None

    def _bucket(self, page: int, depth: int) -> Bucket:
        return self._gather(self._elements(self._page(page), depth), depth)

    def _gather(self, elements: Iterator[tuple[int, bytes, bytes]], depth: int) -> Bucket:
        found = Bucket({}, {})
        for flags, key, value in elements:
            if flags & _IS_BUCKET:
                found.buckets[key] = self._nested(value, depth + 1)
            else:
                found.values[key] = value
        return found

    def _nested(self, value: bytes, depth: int) -> Bucket:
        if len(value) < _BUCKET.size:
            raise self._damaged("a bucket is cut off")
        page, _ = _BUCKET.unpack_from(value)
        if page:
            return self._bucket(page, depth)
        # A small bucket has no page in the file: its content follows the header.
        return self._gather(self._elements(value[_BUCKET.size :], depth), depth)

    def _page(self, number: int) -> bytes:
        begin = number * self._page_size
        if begin + _PAGE.size > len(self._raw):
            raise self._damaged(f"page {number} is past its end")
        found, _, _, overflow = _PAGE.unpack_from(self._raw, begin)
        if found != number:
            raise self._damaged(f"expected page {number}, found page {found}")
        return self._raw[begin : begin + (overflow + 1) * self._page_size]

    def _elements(self, page: bytes, depth: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Flags, key and value of every leaf element below a page, in key order."""
        self._visits += 1
        if depth > _DEEPEST or self._visits > len(self._raw):
            raise self._damaged("its pages form a loop")
        if len(page) < _PAGE.size:
            raise self._damaged("a page is cut off")
        _, kind, count, _ = _PAGE.unpack_from(page)
        for number in range(count):
            if kind & _IS_LEAF:
                yield self._leaf(page, _PAGE.size + number * _LEAF.size)
            elif kind & _IS_BRANCH:
                below = self._child(page, _PAGE.size + number * _BRANCH.size)
                yield from self._elements(self._page(below), depth + 1)
            else:
                raise self._damaged(f"expected a leaf or branch page, found kind {kind:#x}")

    def _leaf(self, page: bytes, at: int) -> tuple[int, bytes, bytes]:
        if at + _LEAF.size > len(page):
            raise self._damaged("a page is cut off")
        flags, offset, key_size, value_size = _LEAF.unpack_from(page, at)
        key, end = at + offset, at + offset + key_size + value_size
        if end > len(page):
            raise self._damaged("an entry reaches past its page")
        return flags, page[key : key + key_size], page[key + key_size : end]

    def _child(self, page: bytes, at: int) -> int:
        if at + _BRANCH.size > len(page):
            raise self._damaged("a page is cut off")
        _, _, below = _BRANCH.unpack_from(page, at)
        return int(below)

    def _damaged(self, what: str) -> BoltError:
        return BoltError(f"{self._name} is not a bbolt database that can be read: {what}")


def _fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value
