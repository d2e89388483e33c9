"""Offload features, private flags, rings, channels, coalescing, pauses and speed of links, over generic netlink.

Features have kernel names (`tx-tcp-segmentation`); people know the older ones of the ethtool command (`tso`), which
stand for one or several. The kernel accepts a wish it cannot fulfil without an error, so what was set is read back
and compared.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType

import msgspec

from dranet.kernel import codec
from dranet.kernel.codec import Reply, number, string
from dranet.kernel.errors import KernelError
from dranet.kernel.generic import HEADER, GenericSocket
from dranet.kernel.netlink import NetlinkError

_STRINGS_GET, _LINKMODES_GET, _FEATURES_GET, _FEATURES_SET, _PRIVFLAGS_GET, _PRIVFLAGS_SET = 1, 4, 11, 12, 13, 14
_TABLES: Mapping[str, tuple[int, int]] = {
    "rings": (15, 16),
    "channels": (17, 18),
    "coalescing": (19, 20),
    "pauses": (21, 22),
}
"""Tables of plain values: the commands that read and write each."""
_READS = {"features": _FEATURES_GET, "flags": _PRIVFLAGS_GET} | {name: get for name, (get, _) in _TABLES.items()}
EVERYTHING = tuple(_READS)
"""What can be looked at, by name."""
_LOOKS_BYTES = 1 << 20
"""What all answers of one conversation take at most, with room to spare: those about a link some 30 KiB."""
_A_HEADER = 1
_HEADER_INDEX, _HEADER_FLAGS = 1, 3
_LINKMODES_SPEED = 5
_FEATURES_HW, _FEATURES_WANTED, _FEATURES_ACTIVE, _FEATURES_NOCHANGE = 2, 3, 4, 5
_PRIVFLAGS_FLAGS = 2
_BITSET_BITS, _BITSET_VALUE, _BITSET_MASK, _BITS_BIT, _BIT_NAME, _BIT_VALUE = 3, 4, 5, 1, 2, 3
_COMPACT_BITSETS = 1
_STRINGSETS, _STRINGSET, _STRINGSET_ID, _SET_OF_FEATURES = 2, 1, 1, 4
_STRINGSET_STRINGS, _STRINGS_STRING, _STRING_VALUE = 3, 1, 2
_UNKNOWN_SPEED = 0xFFFFFFFF
_WITH_STATISTICS = 4
_PAUSE_STATISTICS, _PAUSE_SENT, _PAUSE_RECEIVED = 5, 2, 3

# Older names of the ethtool command, short and long, and the kernel features they stand for.
ALIASES: Mapping[str, str] = {
    "gro": "rx-gro",
    "generic-receive-offload": "rx-gro",
    "gso": "tx-generic-segmentation",
    "generic-segmentation-offload": "tx-generic-segmentation",
    "lro": "rx-lro",
    "large-receive-offload": "rx-lro",
    "ntuple": "rx-ntuple-filter",
    "ntuple-filters": "rx-ntuple-filter",
    "rx": "rx-checksum",
    "rx-checksumming": "rx-checksum",
    "rxhash": "rx-hashing",
    "receive-hashing": "rx-hashing",
    "rxvlan": "rx-vlan-hw-parse",
    "rx-vlan-offload": "rx-vlan-hw-parse",
    "sg": "tx-scatter-gather*",
    "scatter-gather": "tx-scatter-gather*",
    "tso": "tx-tcp*-segmentation",
    "tcp-segmentation-offload": "tx-tcp*-segmentation",
    "tx": "tx-checksum-*",
    "tx-checksumming": "tx-checksum-*",
    "txvlan": "tx-vlan-hw-insert",
    "tx-vlan-offload": "tx-vlan-hw-insert",
    "ufo": "tx-udp-fragmentation",
    "udp-fragmentation-offload": "tx-udp-fragmentation",
}


class Feature(msgspec.Struct, frozen=True, gc=False):
    """One offload: on or off now, on or off if the link were free to choose, and whether it can be changed."""

    active: bool
    wanted: bool
    changeable: bool


Tables = Mapping[str, Mapping[int, bytes]]
"""Values by table and by the kernel's own number, as they come."""


class Look(msgspec.Struct, frozen=True, gc=False):
    """All settings of one link."""

    features: Mapping[str, Feature]
    chosen: tuple[str, ...]
    """The features that are on by choice: those that can be changed and are wanted, by name."""
    private_flags: Mapping[str, bool]
    tables: Tables


class EthtoolError(KernelError):
    """A setting that the link does not have or did not take."""


def resolve_feature(name: str, features: Mapping[str, Feature]) -> tuple[str, ...]:
    """The kernel names behind a feature name, in order; empty when the link has no such feature.

    An exact kernel name wins. An older name stands for those of its features that can be changed here, or for all of
    them when none can.
    """
    if name in features:
        return (name,)
    pattern = ALIASES.get(name)
    if pattern is None:
        return ()
    matches = sorted(known for known in features if fnmatchcase(known, pattern))
    return tuple(known for known in matches if features[known].changeable) or tuple(matches)


class Ethtool:
    """Settings of the links of one namespace."""

    def __init__(self, namespace_fd: int | None = None) -> None:
        self._socket = GenericSocket("ethtool", 1, namespace_fd)
        self._socket.reserve(_LOOKS_BYTES)
        self._names: tuple[str, ...] = ()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Ethtool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def looks(self, indexes: Sequence[int], what: Sequence[str] = EVERYTHING) -> dict[int, Look]:
        """Settings of several links in one conversation; what a driver has not is left out."""
        asked = [(index, name) for index in indexes for name in what]
        answers = self._socket.ask(
            [
                (_READS[name], _header(index, compact=name == "features"), f"read {name} of {index}")
                for index, name in asked
            ]
        )
        raw: dict[int, dict[str, bytes]] = {index: {} for index in indexes}
        for (index, name), answer in zip(asked, answers, strict=True):
            if isinstance(answer, Reply):
                raw[index][name] = answer.payload
            elif answer.errno != errno.EOPNOTSUPP:
                raise answer
        return {index: self._look(found) for index, found in raw.items()}

    def _look(self, raw: Mapping[str, bytes]) -> Look:
        features, chosen = self._parsed_features(raw["features"]) if "features" in raw else ({}, ())
        return Look(
            features=features,
            chosen=chosen,
            private_flags=_parsed_flags(raw["flags"]) if "flags" in raw else {},
            tables={table: _parsed_table(raw[table]) for table in _TABLES if table in raw},
        )

    def _parsed_features(self, payload: bytes) -> tuple[Mapping[str, Feature], tuple[str, ...]]:
        """Every feature, and those that are on by choice."""
        # Which link it is stands first, and is the only thing in which cards of one kind differ.
        bitsets = payload[HEADER.size + codec.padded_length(payload, HEADER.size) :]
        return _features(self._feature_names(), bitsets)

    def _feature_names(self) -> tuple[str, ...]:
        """In the order of their bits. They are the kernel's, the same for all links: asked for once."""
        if not self._names:
            wanted = codec.nested(_STRINGSET, codec.u32(_STRINGSET_ID, _SET_OF_FEATURES))
            payload = codec.nested(_A_HEADER) + codec.nested(_STRINGSETS, wanted)
            (reply,) = self._socket.request(_STRINGS_GET, payload, "read the names of the features")
            found = codec.attributes(reply.payload, HEADER.size)
            for kind in (_STRINGSETS, _STRINGSET):
                found = codec.attributes(found[kind])
            strings = codec.attribute_list(found[_STRINGSET_STRINGS])
            self._names = tuple(string(codec.attributes(one)[_STRING_VALUE]) for _, one in strings)
        return self._names

    def features(self, index: int) -> Mapping[str, Feature]:
        """Every offload feature the kernel knows, by kernel name."""
        header = _header(index, compact=True)
        (reply,) = self._socket.request(_FEATURES_GET, header, f"read the features of link {index}")
        return self._parsed_features(reply.payload)[0]

    def set_features(self, index: int, wanted: Mapping[str, bool]) -> None:
        """Switch features by kernel name; raises when the link does not end up as asked."""
        payload = _header(index) + build_bitset(_FEATURES_WANTED, wanted)
        self._socket.request(_FEATURES_SET, payload, f"set the features of link {index}")
        now = self.features(index)
        refused = [name for name, on in sorted(wanted.items()) if name not in now or now[name].active != on]
        if refused:
            asked = ", ".join(f"{name} {'on' if wanted[name] else 'off'}" for name in refused)
            raise EthtoolError(f"link {index} did not take {asked}; its driver or another feature forbids it")

    def private_flags(self, index: int) -> dict[str, bool]:
        """The driver's own flags; empty for drivers without any."""
        try:
            replies = self._socket.request(_PRIVFLAGS_GET, _header(index), f"read the private flags of link {index}")
        except NetlinkError as error:
            if error.errno == errno.EOPNOTSUPP:
                return {}
            raise
        return _parsed_flags(replies[0].payload)

    def set_private_flags(self, index: int, wanted: Mapping[str, bool]) -> None:
        """Switch flags of the driver by name; flags that are not named stay as they are."""
        payload = _header(index) + build_bitset(_PRIVFLAGS_FLAGS, wanted)
        self._socket.request(_PRIVFLAGS_SET, payload, f"set the private flags {sorted(wanted)} of link {index}")

    def tables(self, index: int) -> Tables:
        """Rings, channels, coalescing and pauses as they are; a driver that has no such table leaves it out."""
        return self.looks([index])[index].tables

    def set_table(self, index: int, table: str, values: Mapping[int, bytes]) -> None:
        """Write values of one table; the rest of it stays."""
        payload = _header(index) + b"".join(codec.attribute(kind, value) for kind, value in sorted(values.items()))
        self._socket.request(_TABLES[table][1], payload, f"set the {table} of link {index}")

    def speeds(self) -> dict[int, int]:
        """The speed of every link that has one, in megabits a second, by index; one dump."""
        found: dict[int, int] = {}
        compact = codec.nested(_A_HEADER, codec.u32(_HEADER_FLAGS, _COMPACT_BITSETS))
        for reply in self._socket.dump(_LINKMODES_GET, compact, "read the speeds of the links"):
            values = codec.attributes(reply.payload, HEADER.size)
            speed = number(values.get(_LINKMODES_SPEED, b""))
            if 0 < speed < _UNKNOWN_SPEED:
                found[number(codec.attributes(values[_A_HEADER])[_HEADER_INDEX])] = speed
        return dict(sorted(found.items()))

    def pause_frames(self) -> dict[int, tuple[int, int]]:
        """Received and sent frames that make the other side wait, by index, of the links that count them; one dump."""
        asked = codec.nested(_A_HEADER, codec.u32(_HEADER_FLAGS, _WITH_STATISTICS))
        replies = self._socket.dump(_TABLES["pauses"][0], asked, "read the pause frames of the links")
        return dict(frames for reply in replies if (frames := parse_pause_frames(reply.payload[HEADER.size :])))


def parse_pause_frames(payload: bytes) -> tuple[int, tuple[int, int]] | None:
    """Index and received and sent frames of one link; None where its driver does not count them."""
    values = codec.attributes(payload)
    counted = codec.attributes(values.get(_PAUSE_STATISTICS, b""))
    if _PAUSE_RECEIVED not in counted or _PAUSE_SENT not in counted:
        return None
    index = number(codec.attributes(values[_A_HEADER])[_HEADER_INDEX])
    return index, (number(counted[_PAUSE_RECEIVED]), number(counted[_PAUSE_SENT]))


@lru_cache(maxsize=16)
def _features(names: tuple[str, ...], bitsets: bytes) -> tuple[Mapping[str, Feature], tuple[str, ...]]:
    """Cards of one kind answer the same bytes, some sixty bits four times over: they are read once."""
    found = {kind: codec.attributes(value) for kind, value in codec.attributes(bitsets).items()}
    kinds = (_FEATURES_HW, _FEATURES_WANTED, _FEATURES_ACTIVE, _FEATURES_NOCHANGE)
    hardware, wanted, active, fixed = (number(found[kind][_BITSET_VALUE]) if kind in found else 0 for kind in kinds)
    known = number(found[_FEATURES_HW][_BITSET_MASK])
    features = {
        name: Feature(bool(active >> bit & 1), bool(wanted >> bit & 1), bool((hardware & ~fixed) >> bit & 1))
        for name, bit in sorted((name, bit) for bit, name in enumerate(names) if known >> bit & 1)
    }
    chosen = tuple(name for name, feature in features.items() if feature.changeable and feature.wanted)
    return MappingProxyType(features), chosen


def _parsed_flags(payload: bytes) -> dict[str, bool]:
    found = codec.attributes(payload, HEADER.size)
    return dict(sorted(parse_bitset(found.get(_PRIVFLAGS_FLAGS, b"")).items()))


def _parsed_table(payload: bytes) -> dict[int, bytes]:
    values = codec.attributes(payload, HEADER.size)
    return {kind: value for kind, value in sorted(values.items()) if kind != _A_HEADER}


def _header(index: int, *, compact: bool = False) -> bytes:
    """Compact bitsets are numbers; the others name every bit, four times over for features."""
    flags = codec.u32(_HEADER_FLAGS, _COMPACT_BITSETS) if compact else b""
    return codec.nested(_A_HEADER, codec.u32(_HEADER_INDEX, index), flags)


def build_bitset(kind: int, values: Mapping[str, bool]) -> bytes:
    """A bitset that names the bits to change and says nothing of the others."""
    bits = [
        codec.nested(_BITS_BIT, codec.text(_BIT_NAME, name), codec.attribute(_BIT_VALUE, b"") if on else b"")
        for name, on in sorted(values.items())
    ]
    return codec.nested(kind, codec.nested(_BITSET_BITS, *bits))


def parse_bitset(value: bytes) -> dict[str, bool]:
    """The named bits of a bitset, and whether each is set."""
    bits = codec.attributes(value).get(_BITSET_BITS, b"")
    entries = [codec.attributes(bit) for kind, bit in codec.attribute_list(bits) if kind == _BITS_BIT]
    return {string(entry[_BIT_NAME]): _BIT_VALUE in entry for entry in entries}
