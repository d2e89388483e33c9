"""Offload features, private flags, rings, channels, coalescing, pause frames and speed of links, by generic netlink.

Features have kernel names (`tx-tcp-segmentation`); the ethtool command has older names (`tso`) for one or several of
them. The kernel accepts a change that it cannot apply without an error, so values are read back and compared.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType

import msgspec

from dranet.core.errors import KernelError
from dranet.linux import codec
from dranet.linux.codec import Reply, number, string
from dranet.linux.namespaces import Closeable
from dranet.linux.netlink import GENERIC_HEADER, GenericSocket

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
"""All settings that can be read, by name."""
_SETTINGS_BYTES = 1 << 20
"""The receive buffer for one batch of replies; those about one link have about 30 KiB."""
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
    """One offload: whether it is active, requested, and changeable."""

    active: bool
    wanted: bool
    changeable: bool


Tables = Mapping[str, Mapping[int, bytes]]
"""Raw values by table and attribute number."""


class LinkSettings(msgspec.Struct, frozen=True, gc=False):
    """All settings of one link."""

    features: Mapping[str, Feature]
    wanted_features: tuple[str, ...]
    """The names of changeable features that are requested."""
    private_flags: Mapping[str, bool]
    tables: Tables


class EthtoolError(KernelError):
    """The link does not have a setting, or did not apply it."""


def resolve_feature(name: str, features: Mapping[str, Feature]) -> tuple[str, ...]:
    """The kernel names of a feature name, in order; empty if the link has no such feature.

    An exact kernel name wins. An older name means those of its features that are changeable, or all if none is.
    """
    if name in features:
        return (name,)
    pattern = ALIASES.get(name)
    if pattern is None:
        return ()
    matches = sorted(known for known in features if fnmatchcase(known, pattern))
    return tuple(known for known in matches if features[known].changeable) or tuple(matches)


class Ethtool(Closeable):
    """Settings of the links of one namespace."""

    def __init__(self, namespace_fd: int | None = None) -> None:
        self._socket = GenericSocket("ethtool", 1, namespace_fd)
        self._socket.reserve(_SETTINGS_BYTES)
        self._names: tuple[str, ...] = ()

    def close(self) -> None:
        self._socket.close()

    def read_settings(self, indexes: Sequence[int], what: Sequence[str] = EVERYTHING) -> dict[int, LinkSettings]:
        """Settings of several links in one batch; unsupported ones are omitted."""
        asked = [(index, name) for index in indexes for name in what]
        answers = self._socket.ask(
            [
                (_READS[name], _header(index, compact=name == "features"), f"read the {name} of link {index}")
                for index, name in asked
            ]
        )
        raw: dict[int, dict[str, bytes]] = {index: {} for index in indexes}
        for (index, name), answer in zip(asked, answers, strict=True):
            if isinstance(answer, Reply):
                raw[index][name] = answer.payload
            elif answer.errno != errno.EOPNOTSUPP:
                raise answer
        return {index: self._settings(found) for index, found in raw.items()}

    def _settings(self, raw: Mapping[str, bytes]) -> LinkSettings:
        features, wanted_features = self._parsed_features(raw["features"]) if "features" in raw else ({}, ())
        return LinkSettings(
            features=features,
            wanted_features=wanted_features,
            private_flags=_parsed_flags(raw["flags"]) if "flags" in raw else {},
            tables={table: _parsed_table(raw[table]) for table in _TABLES if table in raw},
        )

    def _parsed_features(self, payload: bytes) -> tuple[Mapping[str, Feature], tuple[str, ...]]:
        """Every feature, and those that are on by choice."""
        # The link's index comes first, and is the only difference between NICs of one model.
        bitsets = payload[GENERIC_HEADER.size + codec.padded_length(payload, GENERIC_HEADER.size) :]
        return _features(self._feature_names(), bitsets)

    def _feature_names(self) -> tuple[str, ...]:
        """In the order of their bits. The same for all links, so they are read once."""
        if not self._names:
            wanted = codec.nested(_STRINGSET, codec.u32(_STRINGSET_ID, _SET_OF_FEATURES))
            payload = codec.nested(_A_HEADER) + codec.nested(_STRINGSETS, wanted)
            (reply,) = self._socket.request(_STRINGS_GET, payload, "read the names of the features")
            found = codec.attributes(reply.payload, GENERIC_HEADER.size)
            for kind in (_STRINGSETS, _STRINGSET):
                found = codec.attributes(found[kind])
            strings = codec.attribute_list(found[_STRINGSET_STRINGS])
            self._names = tuple(string(codec.attributes(one)[_STRING_VALUE]) for _, one in strings)
        return self._names

    def features(self, index: int) -> Mapping[str, Feature]:
        """All offload features, by kernel name."""
        return self.read_settings([index], ["features"])[index].features

    def set_features(self, index: int, wanted: Mapping[str, bool]) -> None:
        """Switch features by kernel name; raises if the link does not apply them."""
        payload = _header(index) + build_bitset(_FEATURES_WANTED, wanted)
        self._socket.request(_FEATURES_SET, payload, f"set the features of link {index}")
        now = self.features(index)
        refused = [name for name, on in sorted(wanted.items()) if name not in now or now[name].active != on]
        if refused:
            asked = ", ".join(f"{name} {'on' if wanted[name] else 'off'}" for name in refused)
            raise EthtoolError(f"link {index} did not apply {asked}; its driver or another feature prevents it")

    def private_flags(self, index: int) -> Mapping[str, bool]:
        """The driver's own flags; empty for drivers without any."""
        return self.read_settings([index], ["flags"])[index].private_flags

    def set_private_flags(self, index: int, wanted: Mapping[str, bool]) -> None:
        """Switch flags of the driver by name; other flags are unchanged."""
        payload = _header(index) + build_bitset(_PRIVFLAGS_FLAGS, wanted)
        self._socket.request(_PRIVFLAGS_SET, payload, f"set the private flags {sorted(wanted)} of link {index}")

    def tables(self, index: int) -> Tables:
        """Rings, channels, coalescing and pauses as raw values; unsupported tables are omitted."""
        return self.read_settings([index])[index].tables

    def set_table(self, index: int, table: str, values: Mapping[int, bytes]) -> None:
        """Write values of one table; others are unchanged."""
        payload = _header(index) + b"".join(codec.attribute(kind, value) for kind, value in sorted(values.items()))
        self._socket.request(_TABLES[table][1], payload, f"set the {table} of link {index}")

    def speeds(self) -> dict[int, int]:
        """The speed in Mbit/s of every link that has one, by index; one dump."""
        found: dict[int, int] = {}
        compact = codec.nested(_A_HEADER, codec.u32(_HEADER_FLAGS, _COMPACT_BITSETS))
        for reply in self._socket.dump(_LINKMODES_GET, compact, "read the speeds of the links"):
            values = codec.attributes(reply.payload, GENERIC_HEADER.size)
            speed = number(values.get(_LINKMODES_SPEED, b""))
            if 0 < speed < _UNKNOWN_SPEED:
                found[number(codec.attributes(values[_A_HEADER])[_HEADER_INDEX])] = speed
        return dict(sorted(found.items()))

    def pause_frames(self) -> dict[int, tuple[int, int]]:
        """Received and sent pause frames by index, for links that count them; one dump."""
        asked = codec.nested(_A_HEADER, codec.u32(_HEADER_FLAGS, _WITH_STATISTICS))
        replies = self._socket.dump(_TABLES["pauses"][0], asked, "read the pause frames of the links")
        return dict(frames for reply in replies if (frames := parse_pause_frames(reply.payload[GENERIC_HEADER.size :])))


def parse_pause_frames(payload: bytes) -> tuple[int, tuple[int, int]] | None:
    """Index and received and sent frames of one link; None if its driver does not count them."""
    values = codec.attributes(payload)
    counted = codec.attributes(values.get(_PAUSE_STATISTICS, b""))
    if _PAUSE_RECEIVED not in counted or _PAUSE_SENT not in counted:
        return None
    index = number(codec.attributes(values[_A_HEADER])[_HEADER_INDEX])
    return index, (number(counted[_PAUSE_RECEIVED]), number(counted[_PAUSE_SENT]))


@lru_cache(maxsize=16)
def _features(names: tuple[str, ...], bitsets: bytes) -> tuple[Mapping[str, Feature], tuple[str, ...]]:
    """Cached, because NICs of one model return the same bytes: four times some sixty bits."""
    found = {kind: codec.attributes(value) for kind, value in codec.attributes(bitsets).items()}
    kinds = (_FEATURES_HW, _FEATURES_WANTED, _FEATURES_ACTIVE, _FEATURES_NOCHANGE)
    hardware, wanted, active, fixed = (number(found[kind][_BITSET_VALUE]) if kind in found else 0 for kind in kinds)
    known = number(found[_FEATURES_HW][_BITSET_MASK])
    features = {
        name: Feature(bool(active >> bit & 1), bool(wanted >> bit & 1), bool((hardware & ~fixed) >> bit & 1))
        for name, bit in sorted((name, bit) for bit, name in enumerate(names) if known >> bit & 1)
    }
    wanted_features = tuple(name for name, feature in features.items() if feature.changeable and feature.wanted)
    return MappingProxyType(features), wanted_features


def _parsed_flags(payload: bytes) -> dict[str, bool]:
    found = codec.attributes(payload, GENERIC_HEADER.size)
    return dict(sorted(parse_bitset(found.get(_PRIVFLAGS_FLAGS, b"")).items()))


def _parsed_table(payload: bytes) -> dict[int, bytes]:
    values = codec.attributes(payload, GENERIC_HEADER.size)
    return {kind: value for kind, value in sorted(values.items()) if kind != _A_HEADER}


def _header(index: int, *, compact: bool = False) -> bytes:
    """Compact bitsets are numbers; the others name every bit, four times over for features."""
    flags = codec.u32(_HEADER_FLAGS, _COMPACT_BITSETS) if compact else b""
    return codec.nested(_A_HEADER, codec.u32(_HEADER_INDEX, index), flags)


def build_bitset(kind: int, values: Mapping[str, bool]) -> bytes:
    """A bitset with the names of the bits to change."""
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
