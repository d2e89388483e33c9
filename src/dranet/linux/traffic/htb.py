"""Bandwidth shares of a link by hierarchical token buckets (HTB): messages that create and delete them.

The root class has the whole link; each share is a class below it with a guaranteed rate, and a ceiling for the use of
idle bandwidth. Other packets use the default class. Filters classify packets by source: hardware address, or IP
address if several interfaces have one hardware address.

Rates are bits per second here and bytes per second in the kernel, which has 64-bit fields next to the old 32-bit ones.
"""

from __future__ import annotations

import ipaddress
import struct

from dranet.linux import codec
from dranet.linux.codec import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Message
from dranet.linux.traffic.tc import (
    HTB_GLOBAL,
    KIND,
    OPTIONS,
    ROOT,
    RTM_DELTFILTER,
    RTM_NEWQDISC,
    RTM_NEWTFILTER,
    TCMSG,
)

_RTM_NEWTCLASS, _RTM_DELTCLASS = 40, 41

HANDLE = 0xD7A << 20
"""The handle of our qdisc on every link, unlikely to be used by others."""
ROOT_CLASS, DEFAULT_CLASS = 1, 2
FIRST_SHARE = 0x10

_RATE = struct.Struct("=BBHhHI")
_CLASS = struct.Struct("=12s12sIIIII")
_KEYS_HEAD = struct.Struct("=BBBBHHhhI")
_KEY = struct.Struct("=IIii")
_INIT, _PARMS, _RATE64, _CEIL64 = 2, 1, 6, 7
_SELECTOR, _CLASSID = 5, 1
_VERSION, _RATE_TO_QUANTUM = 3, 10
_ETH_P_ALL, _ETH_P_IP, _ETH_P_IPV6 = 0x0003, 0x0800, 0x86DD
_TERMINAL = 1
_TICKS_PER_SECOND = 15_625_000
"""The kernel counts bursts in ticks of 64 nanoseconds."""
_BURST_SECONDS = 0.001
_LARGEST_PACKET = 65_536
_PLAIN_ETHERNET = 1


def class_id(minor: int) -> int:
    """The full id of one of our classes."""
    return HANDLE | minor


def create(index: int, *, replace: bool = False) -> Message:
    """Our qdisc at the root of a link. Without `replace`, the kernel refuses it if another one was configured."""
    settings = HTB_GLOBAL.pack(_VERSION, _RATE_TO_QUANTUM, DEFAULT_CLASS, 0, 0)
    options = codec.nested(OPTIONS, codec.attribute(_INIT, settings))
    payload = TCMSG.pack(0, index, HANDLE, ROOT, 0) + codec.text(KIND, "htb") + options
    how = NLM_F_CREATE | (NLM_F_REPLACE if replace else NLM_F_EXCL)
    return Message(RTM_NEWQDISC, how, payload, f"share the bandwidth of link {index}")


def replace_class(index: int, minor: int, rate: int, ceiling: int) -> Message:
    """Create or change a class with these bits per second."""
    below = HANDLE if minor == ROOT_CLASS else class_id(ROOT_CLASS)
    bytes_rate, bytes_ceiling = max(rate // 8, 1), max(ceiling // 8, 1)
    parms = _CLASS.pack(
        _ratespec(bytes_rate), _ratespec(bytes_ceiling), _burst(bytes_rate), _burst(bytes_ceiling), 0, 0, 0
    )
    wide = codec.attribute(_RATE64, struct.pack("=Q", bytes_rate))
    wide += codec.attribute(_CEIL64, struct.pack("=Q", bytes_ceiling))
    options = codec.nested(OPTIONS, codec.attribute(_PARMS, parms) + wide)
    payload = TCMSG.pack(0, index, class_id(minor), below, 0) + codec.text(KIND, "htb") + options
    return Message(_RTM_NEWTCLASS, NLM_F_CREATE, payload, f"set class {minor:x} of link {index} to {rate} bit/s")


def delete_class(index: int, minor: int) -> Message:
    """Delete a class; refused while filters refer to it."""
    payload = TCMSG.pack(0, index, class_id(minor), 0, 0)
    return Message(_RTM_DELTCLASS, 0, payload, f"delete class {minor:x} of link {index}")


def match_mac(index: int, minor: int, mac: str, number: int = 0) -> Message:
    """Classify packets from a hardware address, by a filter with that number or the class's. The address has a negative
    offset, because u32 counts from the network header."""
    raw = codec.mac_bytes(mac)
    first, rest = struct.unpack(">I", raw[:4])[0], struct.unpack(">H", raw[4:])[0] << 16
    keys = [(0xFFFFFFFF, first, -8), (0xFFFF0000, rest, -4)]
    return _filter(index, minor, _ETH_P_ALL, keys, f"packets from {mac}", number or minor)


def match_source(index: int, minor: int, address: str, number: int = 0) -> Message:
    """Classify packets from an IP address, by a filter with that number or the class's."""
    source = ipaddress.ip_address(address)
    at, protocol = (12, _ETH_P_IP) if source.version == 4 else (8, _ETH_P_IPV6)
    words = struct.unpack(f">{len(source.packed) // 4}I", source.packed)
    keys = [(0xFFFFFFFF, word, at + 4 * i) for i, word in enumerate(words)]
    return _filter(index, minor, protocol, keys, f"packets from {address}", number or minor)


def delete_filters(index: int, number: int) -> list[Message]:
    """Delete the filters of a number for all protocols; ignore the errors of those that do not exist."""
    protocols = (_ETH_P_ALL, _ETH_P_IP, _ETH_P_IPV6)
    what = f"delete the filters {number:x} of link {index}"
    return [
        Message(RTM_DELTFILTER, 0, TCMSG.pack(0, index, 0, HANDLE, _info(number, protocol)), what)
        for protocol in protocols
    ]


def _filter(
    index: int, minor: int, protocol: int, keys: list[tuple[int, int, int]], packets: str, number: int
) -> Message:
    head = _KEYS_HEAD.pack(_TERMINAL, 0, len(keys), 0, 0, 0, 0, 0, 0)
    matches = b"".join(_KEY.pack(_big(mask), _big(value), at, 0) for mask, value, at in keys)
    options = codec.u32(_CLASSID, class_id(minor)) + codec.attribute(_SELECTOR, head + matches)
    # Each number is a priority of its own, so that filters can be deleted without their handles.
    payload = TCMSG.pack(0, index, 0, HANDLE, _info(number, protocol)) + codec.text(KIND, "u32")
    payload += codec.nested(OPTIONS, options)
    return Message(RTM_NEWTFILTER, NLM_F_CREATE, payload, f"classify {packets} into class {minor:x} of link {index}")


def _info(number: int, protocol: int) -> int:
    """Priority and protocol in one number. A priority has one protocol, so each protocol gets its own."""
    offset = (_ETH_P_ALL, _ETH_P_IP, _ETH_P_IPV6).index(protocol)
    return (number * 4 + offset) << 16 | int(struct.unpack("=H", struct.pack(">H", protocol))[0])


def _big(value: int) -> int:
    return int(struct.unpack("=I", struct.pack(">I", value))[0])


def _ratespec(rate: int) -> bytes:
    return _RATE.pack(0, _PLAIN_ETHERNET, 0, 0, 0, min(rate, 0xFFFFFFFF))


def _burst(rate: int) -> int:
    """At least one packet, as the time it takes at that rate."""
    size = max(int(rate * _BURST_SECONDS), _LARGEST_PACKET)
    return min(int(size / rate * _TICKS_PER_SECOND), 0xFFFFFFFF)
