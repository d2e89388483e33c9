"""IP addresses and networks as CEL objects."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any

from dranet.cel import types as t
from dranet.cel.errors import NO_SUCH_OVERLOAD, Err
from dranet.cel.functions import Library, functions
from dranet.cel.libraries.formatting import go_quote
from dranet.cel.values import Opaque

IP_TYPE, CIDR_TYPE = t.opaque("net.IP"), t.opaque("net.CIDR")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface


@dataclass(frozen=True, slots=True, eq=False)
class Ip(Opaque):
    address: Address
    type = IP_TYPE

    def equal(self, other: Any) -> Any:
        return self.address == other.address if isinstance(other, Ip) else NO_SUCH_OVERLOAD

    def size(self) -> int:
        return self.address.max_prefixlen // 8


@dataclass(frozen=True, slots=True, eq=False)
class Cidr(Opaque):
    network: Network
    type = CIDR_TYPE

    def equal(self, other: Any) -> Any:
        return self.network == other.network if isinstance(other, Cidr) else NO_SUCH_OVERLOAD

    def size(self) -> int:
        return -(-self.network.network.prefixlen // 8)


def _parse(text: str) -> Address | Err:
    shown = go_quote(text)
    prefix = f"IP Address {shown} parse error during conversion from string: ParseAddr({shown}): "
    plain, percent, zone = text.partition("%")
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        return Err(prefix + _address_problem(text))
    if percent:
        if address.version == 4 or not zone:
            return Err(
                prefix
                + ("zones cannot be used with IPv4" if address.version == 4 else "zone must be a non-empty string")
            )
        return Err(f"IP address {shown} with zone value is not allowed")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return Err(f"IPv4-mapped IPv6 address {shown} is not allowed")
    return address


def _address_problem(text: str) -> str:
    """The error of Go's parser for an address."""
    for char in text:
        if char == ".":
            return _v4_problem(text)
        if char == ":":
            return _v6_problem(text)
        if char == "%":
            return "missing IPv6 address"
    return "unable to parse IP"


def _v4_problem(text: str) -> str:
    fields, value, digits, dots = 0, 0, 0, 0
    for index, char in enumerate(text):
        if char.isascii() and char.isdigit():
            if digits == 1 and value == 0:
                return "IPv4 field has octet with leading zero"
            value, digits = value * 10 + int(char), digits + 1
            if value > 255:
                return "IPv4 field has value >255"
        elif char == ".":
            if index == 0 or index == len(text) - 1 or text[index - 1] == ".":
                return f"IPv4 field must have at least one digit (at {go_quote(text[index:])})"
            if dots == 3:
                return "IPv4 address too long"
            fields, dots, value, digits = fields + 1, dots + 1, 0, 0
        else:
            return f"unexpected character (at {go_quote(text[index:])})"
    return "IPv4 address too short"


def _v6_problem(text: str) -> str:
    rest, groups, ellipsis = text, 0, False
    if rest.startswith("::"):
        ellipsis, rest = True, rest[2:]
        if not rest:
            return "unable to parse IP"
    while groups < 16:
        match = re.match(r"[0-9a-fA-F]*", rest)
        digits = match.group() if match else ""
        if not digits:
            return f"each colon-separated field must have at least one digit (at {go_quote(rest)})"
        if len(digits) > 4:
            return f"each group must have 4 or less digits (at {go_quote(rest)})"
        if rest[len(digits) : len(digits) + 1] == ".":
            if not ellipsis and groups != 12:
                return f"embedded IPv4 address must replace the final 2 fields of the address (at {go_quote(rest)})"
            return _v4_problem(rest)
        groups, rest = groups + 2, rest[len(digits) :]
        if not rest:
            break
        if rest[0] != ":":
            return f"unexpected character, want colon (at {go_quote(rest)})"
        if len(rest) == 1:
            return f"colon must be followed by more characters (at {go_quote(rest)})"
        rest = rest[1:]
        if rest[0] == ":":
            if ellipsis:
                return f"multiple :: in address (at {go_quote(rest)})"
            ellipsis, rest = True, rest[1:]
            if not rest:
                break
    if rest:
        return f"trailing garbage after address (at {go_quote(rest)})"
    return "the :: must expand to at least one field of zeros" if ellipsis else "address string too short"


def _ip(text: str) -> Any:
    found = _parse(text)
    return found if isinstance(found, Err) else Ip(found)


def _is_canonical(text: str) -> Any:
    found = _parse(text)
    return found if isinstance(found, Err) else str(found) == text


def _cidr(text: str) -> Any:
    twice = "network address parse error during conversion from string: "
    found = _network(text)
    return Err(twice + found.message) if isinstance(found, Err) else Cidr(found)


def _network(text: str) -> Network | Err:
    shown = go_quote(text)
    start = f"network address parse error during conversion from string: netip.ParsePrefix({shown}): "
    address_text, slash, bits = text.rpartition("/")
    if not slash:
        return Err(start + "no '/'")
    if "%" in address_text:
        return Err(start + "IPv6 zones cannot be present in a prefix")
    try:
        address = ipaddress.ip_address(address_text)
    except ValueError:
        return Err(f"{start}ParseAddr({go_quote(address_text)}): {_address_problem(address_text)}")
    if (len(bits) > 1 and not re.fullmatch(r"[1-9][0-9]*", bits)) or not re.fullmatch(r"[0-9]+", bits):
        return Err(f"{start}bad bits after slash: {go_quote(bits)}")
    if int(bits) > address.max_prefixlen:
        return Err(start + "prefix length out of range")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return Err(f"IPv4-mapped IPv6 address {shown} is not allowed")
    return ipaddress.ip_interface(f"{address}/{bits}")


def _contains_ip(cidr: Cidr, other: Any) -> Any:
    ip = _ip(other) if other.__class__ is str else other
    if ip.__class__ is Err:
        return NO_SUCH_OVERLOAD
    return ip.address.version == cidr.network.version and ip.address in cidr.network.network


def _contains_cidr(cidr: Cidr, other: Any) -> Any:
    inner = _cidr(other) if other.__class__ is str else other
    if inner.__class__ is Err:
        return inner
    mine, theirs = cidr.network.network, inner.network.network
    return mine.version == theirs.version and mine.overlaps(theirs) and mine.prefixlen <= theirs.prefixlen


def _masked(cidr: Cidr) -> Cidr:
    return Cidr(ipaddress.ip_interface(cidr.network.network))


def _global_unicast(ip: Ip) -> bool:
    address = ip.address
    broadcast = address == ipaddress.IPv4Address("255.255.255.255")
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not (broadcast or special)


def _link_local_multicast(ip: Ip) -> bool:
    if ip.address.version == 4:
        return ip.address in ipaddress.ip_network("224.0.0.0/24")
    return int(ip.address) >> 112 & 0xFF0F == 0xFF02


IPS = Library(
    "kubernetes.net.ip",
    functions=functions(
        ("ip", "string_to_ip", "(string) -> net.IP", _ip),
        ("family", "ip_family", "net.IP.() -> int", lambda ip: ip.address.version),
        ("ip.isCanonical", "ip_is_canonical", "(string) -> bool", _is_canonical),
        ("isUnspecified", "ip_is_unspecified", "net.IP.() -> bool", lambda ip: ip.address.is_unspecified),
        ("isLoopback", "ip_is_loopback", "net.IP.() -> bool", lambda ip: ip.address.is_loopback),
        ("isLinkLocalMulticast", "ip_is_link_local_multicast", "net.IP.() -> bool", _link_local_multicast),
        ("isLinkLocalUnicast", "ip_is_link_local_unicast", "net.IP.() -> bool", lambda ip: ip.address.is_link_local),
        ("isGlobalUnicast", "ip_is_global_unicast", "net.IP.() -> bool", _global_unicast),
        ("isIP", "is_ip", "(string) -> bool", lambda text: not isinstance(_parse(text), Err)),
        ("string", "ip_to_string", "(net.IP) -> string", lambda ip: str(ip.address)),
    ),
    types=(IP_TYPE,),
)
CIDRS = Library(
    "kubernetes.net.cidr",
    functions=functions(
        ("cidr", "string_to_cidr", "(string) -> net.CIDR", _cidr),
        ("containsIP", "cidr_contains_ip_string", "net.CIDR.(string) -> bool", _contains_ip),
        ("containsIP", "cidr_contains_ip_ip", "net.CIDR.(net.IP) -> bool", _contains_ip),
        ("containsCIDR", "cidr_contains_cidr_string", "net.CIDR.(string) -> bool", _contains_cidr),
        ("containsCIDR", "cidr_contains_cidr", "net.CIDR.(net.CIDR) -> bool", _contains_cidr),
        ("ip", "cidr_ip", "net.CIDR.() -> net.IP", lambda cidr: Ip(cidr.network.ip)),
        ("prefixLength", "cidr_prefix_length", "net.CIDR.() -> int", lambda cidr: cidr.network.network.prefixlen),
        ("masked", "cidr_masked", "net.CIDR.() -> net.CIDR", _masked),
        ("isCIDR", "is_cidr", "(string) -> bool", lambda text: not isinstance(_network(text), Err)),
        ("string", "cidr_to_string", "(net.CIDR) -> string", lambda cidr: str(cidr.network)),
    ),
    types=(CIDR_TYPE,),
)
