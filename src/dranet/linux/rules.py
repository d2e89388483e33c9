"""Policy routing rules of both families: the record, one dump, and the messages to add and delete.

Selectors without a field (ports, users, tunnels, ...) are kept as bytes in `others`, so that a rule can be written back
unchanged. A priority of None lets the kernel choose; 0 is a real priority, before the local table.
"""

from __future__ import annotations

import struct
from socket import AF_INET, AF_INET6, inet_ntop

import msgspec

from dranet.linux import codec
from dranet.linux.codec import NLM_F_CREATE, NLM_F_EXCL, Message, number, string
from dranet.linux.netlink import NetlinkSocket

RTM_NEWRULE, RTM_DELRULE, RTM_GETRULE = 32, 33, 34
ACTION_TO_TABLE, ACTION_GOTO, ACTION_BLACKHOLE, ACTION_UNREACHABLE, ACTION_PROHIBIT = 1, 2, 6, 7, 8
FLAG_INVERT = 2
TABLE_MAIN = 254

_HEADER = struct.Struct("=BBBBBxxBI")
_DST, _SRC, _IIFNAME, _PRIORITY, _FWMARK, _SUPPRESS_PREFIX, _TABLE, _FWMASK, _OIFNAME = 1, 2, 3, 6, 10, 14, 15, 16, 17
_PAD, _PROTOCOL = 18, 21
_NAMED = {_DST, _SRC, _IIFNAME, _PRIORITY, _FWMARK, _SUPPRESS_PREFIX, _TABLE, _FWMASK, _OIFNAME, _PAD, _PROTOCOL}
_NO_LIMIT = 0xFFFFFFFF


class Rule(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One rule. `source` and `destination` are prefixes, None for any."""

    family: int
    priority: int | None = None
    table: int = TABLE_MAIN
    source: str | None = None
    destination: str | None = None
    incoming: str = ""
    outgoing: str = ""
    mark: int = 0
    mark_mask: int | None = None
    action: int = ACTION_TO_TABLE
    flags: int = 0
    tos: int = 0
    protocol: int = 0
    suppress_prefix_length: int | None = None
    others: tuple[tuple[int, bytes], ...] = ()


def list_rules(socket: NetlinkSocket) -> list[Rule]:
    """All IPv4 and IPv6 rules in the kernel's order of evaluation; one dump."""
    request = Message(RTM_GETRULE, 0, _HEADER.pack(0, 0, 0, 0, 0, 0, 0), "list the rules")
    found = [parse(reply.payload) for reply in socket.dump(request) if reply.type == RTM_NEWRULE]
    return sorted((rule for rule in found if rule is not None), key=lambda rule: rule.family)


def parse(payload: bytes) -> Rule | None:
    """A Rule from the payload of an RTM_NEWRULE or RTM_DELRULE; None for multicast routing."""
    family, dst_len, src_len, tos, table, action, flags = _HEADER.unpack_from(payload)
    if family not in (AF_INET, AF_INET6):
        return None
    found = codec.attributes(payload, _HEADER.size)
    suppressed = number(found[_SUPPRESS_PREFIX]) if _SUPPRESS_PREFIX in found else _NO_LIMIT
    return Rule(
        family=family,
        priority=number(found.get(_PRIORITY, b"")),
        table=number(found[_TABLE]) if _TABLE in found else table,
        source=f"{inet_ntop(family, found[_SRC])}/{src_len}" if _SRC in found else None,
        destination=f"{inet_ntop(family, found[_DST])}/{dst_len}" if _DST in found else None,
        incoming=string(found.get(_IIFNAME, b"")),
        outgoing=string(found.get(_OIFNAME, b"")),
        mark=number(found.get(_FWMARK, b"")),
        mark_mask=number(found[_FWMASK]) if _FWMASK in found else None,
        action=action,
        flags=flags,
        tos=tos,
        protocol=number(found.get(_PROTOCOL, b"")),
        suppress_prefix_length=None if suppressed == _NO_LIMIT else suppressed,
        others=tuple((kind, value) for kind, value in sorted(found.items()) if kind not in _NAMED),
    )


def add(rule: Rule) -> Message:
    """Add; EEXIST if the rule exists."""
    return Message(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, _payload(rule), f"add the rule {describe(rule)}")


def delete(rule: Rule) -> Message:
    """Delete a rule; of equal ones the kernel deletes the first."""
    return Message(RTM_DELRULE, 0, _payload(rule), f"delete the rule {describe(rule)}")


def describe(rule: Rule) -> str:
    """A short description, for errors and logs."""
    where = "" if rule.priority is None else f"{rule.priority}: "
    to = f" to {rule.destination}" if rule.destination else ""
    return f"{where}from {rule.source or 'all'}{to} lookup {rule.table}"


def _payload(rule: Rule) -> bytes:
    family = rule.family
    source, src_len = codec.pack_prefix(family, rule.source)
    destination, dst_len = codec.pack_prefix(family, rule.destination)
    table = rule.table if rule.table < 256 else 0
    head = _HEADER.pack(family, dst_len, src_len, rule.tos, table, rule.action, rule.flags & FLAG_INVERT)
    numbers = {
        _PRIORITY: rule.priority,
        _TABLE: rule.table,
        _FWMARK: rule.mark or None,
        _FWMASK: rule.mark_mask,
        _SUPPRESS_PREFIX: rule.suppress_prefix_length,
    }
    parts = [head] + [codec.u32(kind, value) for kind, value in numbers.items() if value is not None]
    parts += [codec.attribute(kind, value) for kind, value in ((_SRC, source), (_DST, destination)) if value]
    parts += [codec.text(kind, name) for kind, name in ((_IIFNAME, rule.incoming), (_OIFNAME, rule.outgoing)) if name]
    if rule.protocol:
        parts.append(codec.u8(_PROTOCOL, rule.protocol))
    return b"".join(parts + [codec.attribute(kind, value) for kind, value in rule.others])
