"""Shares of a link's bandwidth by hierarchical token buckets: the messages that make and remove them.

One root class holds the whole link; each share is a class below it with a rate that is kept for it and a ceiling up to
which it may use what others leave idle. What belongs to no share falls into the default class. Filters put packets into
classes by their source: a hardware address, or an IP address where several interfaces have one hardware address.

Rates are bits per second here and bytes per second in the kernel, which has 64-bit fields beside the old 32-bit ones.
"""

from __future__ import annotations

import ipaddress
import struct

from dranet.kernel import codec
from dranet.kernel.codec import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Message

RTM_NEWQDISC, RTM_DELQDISC = 36, 37
RTM_NEWTCLASS, RTM_DELTCLASS = 40, 41
RTM_NEWTFILTER, RTM_DELTFILTER = 44, 45

HANDLE = 0xD7A << 20
"""Our discipline's number on every link; nobody else uses it by accident."""
ROOT_CLASS, DEFAULT_CLASS = 1, 2
FIRST_SHARE = 0x10

_TC_ROOT = 0xFFFFFFFF
_TCMSG = struct.Struct("=BxxxiIII")
_GLOBAL = struct.Struct("=IIIII")
_RATE = struct.Struct("=BBHhHI")
_CLASS = struct.Struct("=12s12sIIIII")
_KEYS_HEAD = struct.Struct("=BBBBHHhhI")
_KEY = struct.Struct("=IIii")
_KIND, _OPTIONS = 1, 2
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
    """The full number of a class of ours."""
    return HANDLE | minor


def create(index: int, *, replace: bool = False) -> Message:
    """Our discipline at the root of a link. Unless it shall replace, it is refused where somebody has put one."""
    settings = _GLOBAL.pack(_VERSION, _RATE_TO_QUANTUM, DEFAULT_CLASS, 0, 0)
    options = codec.nested(_OPTIONS, codec.attribute(_INIT, settings))
    payload = _TCMSG.pack(0, index, HANDLE, _TC_ROOT, 0) + codec.text(_KIND, "htb") + options
    how = NLM_F_CREATE | (NLM_F_REPLACE if replace else NLM_F_EXCL)
    return Message(RTM_NEWQDISC, how, payload, f"share the bandwidth of link {index}")


def put_class(index: int, minor: int, rate: int, ceiling: int) -> Message:
    """A class with these bits per second; one that is there is changed."""
    below = HANDLE if minor == ROOT_CLASS else class_id(ROOT_CLASS)
    bytes_rate, bytes_ceiling = max(rate // 8, 1), max(ceiling // 8, 1)
    parms = _CLASS.pack(
        _ratespec(bytes_rate), _ratespec(bytes_ceiling), _burst(bytes_rate), _burst(bytes_ceiling), 0, 0, 0
    )
    wide = codec.attribute(_RATE64, struct.pack("=Q", bytes_rate))
    wide += codec.attribute(_CEIL64, struct.pack("=Q", bytes_ceiling))
    options = codec.nested(_OPTIONS, codec.attribute(_PARMS, parms) + wide)
    payload = _TCMSG.pack(0, index, class_id(minor), below, 0) + codec.text(_KIND, "htb") + options
    return Message(RTM_NEWTCLASS, NLM_F_CREATE, payload, f"give {rate} bit/s of link {index} to class {minor:x}")


def delete_class(index: int, minor: int) -> Message:
    """Refused while filters lead to it."""
    payload = _TCMSG.pack(0, index, class_id(minor), 0, 0)
    return Message(RTM_DELTCLASS, 0, payload, f"take class {minor:x} of link {index} back")


def match_mac(index: int, minor: int, mac: str, number: int = 0) -> Message:
    """Packets from a hardware address into a class, by a filter of that number or the class's. The address stands
    before the network header, from which u32 counts."""
    raw = codec.mac_bytes(mac)
    first, rest = struct.unpack(">I", raw[:4])[0], struct.unpack(">H", raw[4:])[0] << 16
    keys = [(0xFFFFFFFF, first, -8), (0xFFFF0000, rest, -4)]
    return _filter(index, minor, _ETH_P_ALL, keys, f"packets from {mac}", number or minor)


def match_source(index: int, minor: int, address: str, number: int = 0) -> Message:
    """Packets from an IP address into a class, by a filter of that number or the class's."""
    source = ipaddress.ip_address(address)
    at, protocol = (12, _ETH_P_IP) if source.version == 4 else (8, _ETH_P_IPV6)
    words = struct.unpack(f">{len(source.packed) // 4}I", source.packed)
    keys = [(0xFFFFFFFF, word, at + 4 * place) for place, word in enumerate(words)]
    return _filter(index, minor, protocol, keys, f"packets from {address}", number or minor)


def forget_filters(index: int, number: int) -> list[Message]:
    """Remove the filters of a number, of every protocol there may be; what is not there is refused and that is fine."""
    protocols = (_ETH_P_ALL, _ETH_P_IP, _ETH_P_IPV6)
    words = f"forget the filters {number:x} of link {index}"
    return [
        Message(RTM_DELTFILTER, 0, _TCMSG.pack(0, index, 0, HANDLE, _info(number, protocol)), words)
        for protocol in protocols
    ]


def _filter(
    index: int, minor: int, protocol: int, keys: list[tuple[int, int, int]], words: str, number: int
) -> Message:
    head = _KEYS_HEAD.pack(_TERMINAL, 0, len(keys), 0, 0, 0, 0, 0, 0)
    matches = b"".join(_KEY.pack(_big(mask), _big(value), at, 0) for mask, value, at in keys)
    options = codec.u32(_CLASSID, class_id(minor)) + codec.attribute(_SELECTOR, head + matches)
    # Each number is a priority of its own, so that filters can be removed without knowing what the kernel calls them.
    payload = _TCMSG.pack(0, index, 0, HANDLE, _info(number, protocol)) + codec.text(_KIND, "u32")
    payload += codec.nested(_OPTIONS, options)
    return Message(RTM_NEWTFILTER, NLM_F_CREATE, payload, f"put {words} into class {minor:x} of link {index}")


def _info(number: int, protocol: int) -> int:
    """Priority and protocol in one number. One priority has one protocol, so each gets its own."""
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
