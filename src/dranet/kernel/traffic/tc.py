"""Queueing disciplines of links, and BPF classifiers on their ingress and egress: what is there, put back, removed.

The kernel lists filters link by link only, so we first ask for all queueing disciplines at once and then look at the
links that have `clsact` or `ingress`: a node without such filters costs one request however many links it has.
"""

from __future__ import annotations

import struct

import msgspec

from dranet.kernel import codec
from dranet.kernel.codec import Message, number, string
from dranet.kernel.netlink import NetlinkError, NetlinkSocket

RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTFILTER, RTM_DELTFILTER, RTM_GETTFILTER = 44, 45, 46
ROOT, CLSACT = 0xFFFFFFFF, 0xFFFFFFF1
INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3

_TCMSG = struct.Struct("=BxxxiIII")
_KIND, _OPTIONS, _CHAIN = 1, 2, 11
_BPF_NAME, _BPF_FLAGS, _BPF_ID = 7, 8, 11
_DIRECT_ACTION = 1


class Discipline(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A queueing discipline as the kernel tells it; `options` are the kind's own, which it also takes that way."""

    index: int
    parent: int
    handle: int
    kind: str
    options: bytes = b""

    @property
    def is_made(self) -> bool:
        """Whether somebody put it there: what the kernel gives by itself has no handle."""
        return self.handle != 0


class BpfFilter(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One BPF classifier; `name` is what tc shows (`object.o:[section]`), `info` the kernel's priority and protocol."""

    index: int
    egress: bool
    handle: int
    info: int
    chain: int | None
    name: str
    program_id: int | None
    direct_action: bool


def list_disciplines(socket: NetlinkSocket) -> list[Discipline]:
    """The disciplines right on links, not those inside of others; one dump."""
    request = Message(RTM_GETQDISC, 0, _TCMSG.pack(0, 0, 0, 0, 0), "list the queueing disciplines")
    found = []
    for reply in socket.dump(request):
        _, index, handle, parent, _ = _TCMSG.unpack_from(reply.payload)
        if parent in (ROOT, CLSACT):
            raw = codec.attributes(reply.payload, _TCMSG.size)
            made = Discipline(
                index=index, parent=parent, handle=handle, kind=string(raw[_KIND]), options=raw.get(_OPTIONS, b"")
            )
            found.append(made)
    return found


def put(discipline: Discipline) -> Message:
    """Make it the one in its place."""
    head = _TCMSG.pack(0, discipline.index, discipline.handle, discipline.parent, 0)
    payload = head + codec.text(_KIND, discipline.kind)
    if discipline.options:
        payload += codec.attribute(_OPTIONS, discipline.options)
    what = f"put the queueing discipline {discipline.kind} on link {discipline.index}"
    return Message(RTM_NEWQDISC, codec.NLM_F_CREATE | codec.NLM_F_REPLACE, payload, what)


def remove(discipline: Discipline) -> Message:
    """Take it away with all its filters; at the root the kernel puts its own in its place."""
    head = _TCMSG.pack(0, discipline.index, discipline.handle, discipline.parent, 0)
    what = f"remove the queueing discipline {discipline.kind} from link {discipline.index}"
    return Message(RTM_DELQDISC, 0, head, what)


def list_bpf_filters(socket: NetlinkSocket) -> list[BpfFilter]:
    """Every BPF classifier on every link, by link, ingress first, in order of priority."""
    found: list[BpfFilter] = []
    for index, kind in classful_links(socket):
        for parent in (INGRESS, EGRESS) if kind == "clsact" else (INGRESS,):
            found += _filters(socket, index, parent)
    return found


def classful_links(socket: NetlinkSocket) -> list[tuple[int, str]]:
    """Links with a `clsact` or `ingress` discipline, by index; one dump."""
    request = Message(RTM_GETQDISC, 0, _TCMSG.pack(0, 0, 0, 0, 0), "list the queueing disciplines")
    found: list[tuple[int, str]] = []
    for reply in socket.dump(request):
        _, index, _, parent, _ = _TCMSG.unpack_from(reply.payload)
        if parent == CLSACT:
            found.append((index, string(codec.attributes(reply.payload, _TCMSG.size)[_KIND])))
    return sorted(found)


def _filters(socket: NetlinkSocket, index: int, parent: int) -> list[BpfFilter]:
    request = Message(RTM_GETTFILTER, 0, _TCMSG.pack(0, index, 0, parent, 0), f"list the filters of link {index}")
    try:
        replies = socket.dump(request)
    except NetlinkError:  # the link or its discipline vanished since we saw it
        return []
    found = [parse(reply.payload, parent) for reply in replies if reply.type == RTM_NEWTFILTER]
    return [entry for entry in found if entry is not None]


def parse(payload: bytes, parent: int) -> BpfFilter | None:
    """A BpfFilter from the payload of an RTM_NEWTFILTER; None for other kinds and for the head of a list."""
    _, index, handle, _, info = _TCMSG.unpack_from(payload)
    found = codec.attributes(payload, _TCMSG.size)
    if string(found.get(_KIND, b"")) != "bpf" or _OPTIONS not in found or not handle:
        return None
    options = codec.attributes(found[_OPTIONS])
    return BpfFilter(
        index=index,
        egress=parent == EGRESS,
        handle=handle,
        info=info,
        chain=number(found[_CHAIN]) if _CHAIN in found else None,
        name=string(options.get(_BPF_NAME, b"")),
        program_id=number(options[_BPF_ID]) if _BPF_ID in options else None,
        direct_action=bool(number(options.get(_BPF_FLAGS, b"")) & _DIRECT_ACTION),
    )


def delete(entry: BpfFilter) -> Message:
    """Remove one classifier; the discipline stays."""
    head = _TCMSG.pack(0, entry.index, entry.handle, EGRESS if entry.egress else INGRESS, entry.info)
    chain = codec.u32(_CHAIN, entry.chain) if entry.chain is not None else b""
    payload = head + codec.text(_KIND, "bpf") + chain
    return Message(RTM_DELTFILTER, 0, payload, f"delete the BPF filter {entry.name} of link {entry.index}")
