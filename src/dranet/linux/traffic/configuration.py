"""The traffic control below a link's root and ingress qdiscs: nested qdiscs, HTB classes and u32 filters.

The kernel drops all of it when the link moves to another namespace. What is listed here can be written back; for what
cannot (other classifiers and actions, hash tables, shared blocks), `unrestorable` says what it is. Counters are left
out, so that two lists can be compared. BPF classifiers are not listed: only the program that attached them can do it
again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import msgspec

from dranet.linux import codec
from dranet.linux.codec import NLM_F_CREATE, NLM_F_REPLACE, Message, number, string
from dranet.linux.netlink import NetlinkError, NetlinkSocket
from dranet.linux.traffic.tc import (
    CLSACT,
    EGRESS,
    INGRESS,
    KIND,
    OPTIONS,
    ROOT,
    RTM_GETQDISC,
    RTM_GETTFILTER,
    RTM_NEWQDISC,
    RTM_NEWTFILTER,
    TCMSG,
    settable_options,
)

RTM_NEWTCLASS, _RTM_GETTCLASS = 40, 42
_CHAIN, _INGRESS_BLOCK, _EGRESS_BLOCK = 11, 13, 14
_CLASSFUL = frozenset({"hfsc", "drr", "qfq", "cbq", "dsmark", "atm"})
"""Their classes hold settings that are not read here; those of HTB are."""
_U32_HASH, _U32_LINK, _U32_DIVISOR, _U32_ACTIONS, _U32_FLAGS = 2, 3, 4, 7, 11
_U32_KEPT = {1, 5, 8, 10}  # class, selector, incoming link, mark
_U32_NODE, _U32_BUCKET = 0xFFF, 0xFF000
_SETTABLE_FLAGS = 3  # skip_hw, skip_sw; the others report what the hardware does
_ACTION_KIND, _ACTION_OPTIONS, _ACTION_COOKIE = 1, 2, 6
_MIRRED_PARMS = 2
_MIRRED = struct.Struct("=IIiiiiI")  # index, capab, action, refcnt, bindcnt, eaction, ifindex


class Entry(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One qdisc, class or filter, in the kernel's own form."""

    type: int
    parent: int
    handle: int
    kind: str
    info: int = 0
    options: bytes = b""
    chain: int = 0


def read(socket: NetlinkSocket, index: int) -> list[Entry]:
    """What was configured below the root and ingress qdiscs of a link, in an order in which it can be added."""
    found = _Configuration(socket, index)
    nested = [one for one in found.qdiscs if one.parent not in (ROOT, CLSACT) and one.handle]
    return [*found.classes, *nested, *(one for one in found.filters if _is_u32_rule(one))]


def _is_u32_rule(entry: Entry) -> bool:
    """Not one of the tables, which the kernel adds with the first rule."""
    return entry.kind == "u32" and bool(entry.handle & _U32_NODE) and not _unrestorable_filter(entry)


def unrestorable(socket: NetlinkSocket, index: int) -> str:
    """What of a link's traffic control cannot be written back; empty if all of it can."""
    found = _Configuration(socket, index)
    for qdisc in found.qdiscs:
        if qdisc.kind in _CLASSFUL:
            return f"the qdisc {qdisc.kind} with its classes"
    if found.has_blocks:
        return "a shared block of tc filters"
    return next((why for one in found.filters if (why := _unrestorable_filter(one))), "")


class _Configuration:
    """All of a link, as dumped."""

    def __init__(self, socket: NetlinkSocket, index: int) -> None:
        self._socket, self._index = socket, index
        raw = list(self._dump(RTM_GETQDISC, RTM_NEWQDISC, 0))
        self.qdiscs = [entry for entry, _ in raw]
        self.has_blocks = any(_INGRESS_BLOCK in rest or _EGRESS_BLOCK in rest for _, rest in raw)
        has_htb = any(one.kind == "htb" for one in self.qdiscs)
        classes = [one for one, _ in self._dump(_RTM_GETTCLASS, RTM_NEWTCLASS, 0)] if has_htb else []
        self.classes = _parents_first([one for one in classes if one.kind == "htb"])
        self.filters = [one for parent in self._parents() for one in self._filters(parent)]

    def _parents(self) -> Iterator[int]:
        for qdisc in self.qdiscs:
            if qdisc.parent == CLSACT:
                yield from (INGRESS, EGRESS) if qdisc.kind == "clsact" else (INGRESS,)
            elif qdisc.handle:
                yield qdisc.handle
        yield from (one.handle for one in self.classes)

    def _filters(self, parent: int) -> list[Entry]:
        try:
            found = list(self._dump(RTM_GETTFILTER, RTM_NEWTFILTER, parent))
        except NetlinkError:  # a qdisc without filters, or one that was deleted in the meantime
            return []
        # Without a handle it is the head of a list.
        return [_plain(one, rest) for one, rest in found if one.handle]

    def _dump(self, get: int, new: int, parent: int) -> Iterator[tuple[Entry, dict[int, bytes]]]:
        request = Message(
            get, 0, TCMSG.pack(0, self._index, 0, parent, 0), f"list the tc settings of link {self._index}"
        )
        for reply in self._socket.dump(request):
            _, index, handle, above, info = TCMSG.unpack_from(reply.payload)
            raw = codec.attributes(reply.payload, TCMSG.size)
            if reply.type == new and index == self._index and KIND in raw:
                fields = {"parent": above, "handle": handle, "info": info if new == RTM_NEWTFILTER else 0}
                kind, options = string(raw[KIND]), raw.get(OPTIONS, b"")
                options = settable_options(kind, options) if new == RTM_NEWQDISC else options
                yield Entry(type=new, kind=kind, options=options, **fields), raw


def _parents_first(classes: list[Entry]) -> list[Entry]:
    above = {one.handle: one.parent for one in classes}

    def depth(handle: int) -> int:
        return 0 if handle not in above else 1 + depth(above[handle])

    return sorted(classes, key=lambda one: (depth(one.handle), one.handle))


def _plain(entry: Entry, raw: dict[int, bytes]) -> Entry:
    """With its chain; a u32 filter without counters, and without the number of its table, which the kernel chooses."""
    chain = number(raw.get(_CHAIN, b""))
    if entry.kind != "u32" or _unrestorable_filter(entry):
        return msgspec.structs.replace(entry, chain=chain)
    handle, options = entry.handle & _U32_NODE, _plain_u32(codec.attributes(entry.options))
    return msgspec.structs.replace(entry, chain=chain, handle=handle, options=options)


def _plain_u32(options: dict[int, bytes]) -> bytes:
    parts = [codec.attribute(kind, value) for kind, value in sorted(options.items()) if kind in _U32_KEPT]
    if flags := number(options.get(_U32_FLAGS, b"")) & _SETTABLE_FLAGS:
        parts.append(codec.u32(_U32_FLAGS, flags))
    actions = [codec.nested(place, _plain_mirred(one)) for place, one in _actions(options)]
    return b"".join([*parts, *([codec.nested(_U32_ACTIONS, *actions)] if actions else [])])


def _actions(options: dict[int, bytes]) -> list[tuple[int, bytes]]:
    return codec.attribute_list(options.get(_U32_ACTIONS, b""))


def _plain_mirred(action: bytes) -> bytes:
    """Without the number of the action, which another may have meanwhile."""
    found = codec.attributes(action)
    _, capability, verdict, _, _, direction, link = _MIRRED.unpack_from(
        codec.attributes(found[_ACTION_OPTIONS])[_MIRRED_PARMS]
    )
    parms = codec.attribute(_MIRRED_PARMS, _MIRRED.pack(0, capability, verdict, 0, 0, direction, link))
    cookie = codec.attribute(_ACTION_COOKIE, found[_ACTION_COOKIE]) if _ACTION_COOKIE in found else b""
    return codec.text(_ACTION_KIND, "mirred") + codec.nested(_ACTION_OPTIONS, parms) + cookie


def _unrestorable_filter(entry: Entry) -> str:
    if entry.kind == "bpf":
        return ""
    if entry.kind != "u32":
        return f"a tc filter of kind {entry.kind}"
    options = codec.attributes(entry.options)
    if not entry.handle & _U32_NODE:  # a hash table; each list of filters has one of size 1
        return "" if number(options.get(_U32_DIVISOR, b"\1")) == 1 else "a hash table of tc filters"
    if _U32_LINK in options or entry.handle & _U32_BUCKET:
        return "a hash table of tc filters"
    kinds = {string(codec.attributes(one).get(_ACTION_KIND, b"")) for _, one in _actions(options)}
    return f"a tc filter with the action {min(kinds - {'mirred'})}" if kinds - {"mirred"} else ""


def add(index: int, entries: Iterable[Entry]) -> list[Message]:
    """Messages that add them to a link."""
    return [_add(index, one) for one in entries]


def _add(index: int, entry: Entry) -> Message:
    payload = TCMSG.pack(0, index, entry.handle, entry.parent, entry.info) + codec.text(KIND, entry.kind)
    payload += codec.u32(_CHAIN, entry.chain) if entry.chain else b""
    payload += codec.nested(OPTIONS, entry.options) if entry.options else b""
    how = NLM_F_CREATE | (NLM_F_REPLACE if entry.type == RTM_NEWQDISC else 0)
    what = {RTM_NEWQDISC: "qdisc", RTM_NEWTCLASS: "class", RTM_NEWTFILTER: "filter"}[entry.type]
    return Message(entry.type, how, payload, f"add the tc {what} {entry.kind} to link {index}")
