"""Qdiscs of links, and BPF classifiers on their ingress and egress: list, restore and delete them.

The kernel lists filters only link by link, so we list all qdiscs first and then the filters of links with `clsact` or
`ingress`: a node without such filters needs one request for any number of links.
"""

from __future__ import annotations

import struct

import msgspec

from dranet.linux import codec
from dranet.linux.codec import Message, number, string
from dranet.linux.netlink import NetlinkError, NetlinkSocket

RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTFILTER, RTM_DELTFILTER, RTM_GETTFILTER = 44, 45, 46
ROOT, CLSACT = 0xFFFFFFFF, 0xFFFFFFF1
INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3

TCMSG = struct.Struct("=BxxxiIII")
KIND, OPTIONS, _CHAIN = 1, 2, 11
_BPF_NAME, _BPF_FLAGS, _BPF_ID = 7, 8, 11
_DIRECT_ACTION = 1
_HTB_INIT = 2
HTB_GLOBAL = struct.Struct("=IIIII")  # version, rate to quantum, default class, debug, unclassified packets


class Qdisc(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A qdisc; `options` are those of its kind, raw, and can be written back."""

    index: int
    parent: int
    handle: int
    kind: str
    options: bytes = b""

    @property
    def is_configured(self) -> bool:
        """Whether it was configured: the kernel's default qdisc has no handle."""
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


def list_qdiscs(socket: NetlinkSocket) -> list[Qdisc]:
    """The qdiscs directly on links, without nested ones; one dump."""
    request = Message(RTM_GETQDISC, 0, TCMSG.pack(0, 0, 0, 0, 0), "list the qdiscs")
    found = []
    for reply in socket.dump(request):
        _, index, handle, parent, _ = TCMSG.unpack_from(reply.payload)
        if parent in (ROOT, CLSACT):
            raw = codec.attributes(reply.payload, TCMSG.size)
            kind, options = string(raw[KIND]), raw.get(OPTIONS, b"")
            settable = settable_options(kind, options)
            found.append(Qdisc(index=index, parent=parent, handle=handle, kind=kind, options=settable))
    return found


def settable_options(kind: str, options: bytes) -> bytes:
    """The options of a qdisc as they are written. HTB also reports a minor version and a counter."""
    if kind != "htb":
        return options
    return b"".join(
        codec.attribute(at, _settable_htb(value) if at == _HTB_INIT else value)
        for at, value in codec.attribute_list(options)
    )


def _settable_htb(value: bytes) -> bytes:
    version, to_quantum, default, _, _ = HTB_GLOBAL.unpack(value)
    return HTB_GLOBAL.pack(version >> 16 or version, to_quantum, default, 0, 0)


def replace_qdisc(qdisc: Qdisc) -> Message:
    """Create the qdisc, or replace the one at its parent."""
    payload = TCMSG.pack(0, qdisc.index, qdisc.handle, qdisc.parent, 0) + codec.text(KIND, qdisc.kind)
    if qdisc.options:
        payload += codec.attribute(OPTIONS, qdisc.options)
    what = f"set the qdisc {qdisc.kind} on link {qdisc.index}"
    return Message(RTM_NEWQDISC, codec.NLM_F_CREATE | codec.NLM_F_REPLACE, payload, what)


def delete_qdisc(qdisc: Qdisc) -> Message:
    """Delete the qdisc with its filters; at the root the kernel installs its default."""
    head = TCMSG.pack(0, qdisc.index, qdisc.handle, qdisc.parent, 0)
    what = f"delete the qdisc {qdisc.kind} from link {qdisc.index}"
    return Message(RTM_DELQDISC, 0, head, what)


def list_bpf_filters(socket: NetlinkSocket) -> list[BpfFilter]:
    """All BPF classifiers by link, ingress first, in order of priority."""
    found: list[BpfFilter] = []
    for index, kind in list_clsact_links(socket):
        for parent in (INGRESS, EGRESS) if kind == "clsact" else (INGRESS,):
            found += _filters(socket, index, parent)
    return found


def list_clsact_links(socket: NetlinkSocket) -> list[tuple[int, str]]:
    """Links with a `clsact` or `ingress` qdisc, by index; one dump."""
    return sorted((qdisc.index, qdisc.kind) for qdisc in list_qdiscs(socket) if qdisc.parent == CLSACT)


def _filters(socket: NetlinkSocket, index: int, parent: int) -> list[BpfFilter]:
    request = Message(RTM_GETTFILTER, 0, TCMSG.pack(0, index, 0, parent, 0), f"list the filters of link {index}")
    try:
        replies = socket.dump(request)
    except NetlinkError:  # the link or its qdisc was deleted in the meantime
        return []
    found = [parse(reply.payload, parent) for reply in replies if reply.type == RTM_NEWTFILTER]
    return [entry for entry in found if entry is not None]


def parse(payload: bytes, parent: int) -> BpfFilter | None:
    """A BpfFilter from the payload of an RTM_NEWTFILTER; None for other kinds and for the head of a list."""
    _, index, handle, _, info = TCMSG.unpack_from(payload)
    found = codec.attributes(payload, TCMSG.size)
    if string(found.get(KIND, b"")) != "bpf" or OPTIONS not in found or not handle:
        return None
    options = codec.attributes(found[OPTIONS])
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


def delete_bpf_filter(entry: BpfFilter) -> Message:
    """Delete one classifier; the qdisc stays."""
    head = TCMSG.pack(0, entry.index, entry.handle, EGRESS if entry.egress else INGRESS, entry.info)
    chain = codec.u32(_CHAIN, entry.chain) if entry.chain is not None else b""
    payload = head + codec.text(KIND, "bpf") + chain
    return Message(RTM_DELTFILTER, 0, payload, f"delete the BPF filter {entry.name} of link {entry.index}")
