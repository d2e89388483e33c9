"""BPF programs on the links of a node or a pod, put there from outside without a compiler."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from pathlib import Path

from dranet.linux import links
from dranet.linux.codec import NLM_F_CREATE, NLM_F_EXCL, Message, nested, text, u32
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.traffic import bpf, tc

SCHED_CLS = 3
TCX_INGRESS = bpf.ATTACH_TYPES["tcx/ingress"]
ALL_PROTOCOLS, PRIORITY = 3, 1
BPF_FD, BPF_NAME, BPF_FLAGS, DIRECT_ACTION = 6, 7, 8, 1


def add_classifier(process: int, link: str, name: str) -> None:
    """As `tc filter add dev LINK ingress bpf direct-action ...` would, under the name tc would give it."""
    with Namespace.open(f"/proc/{process}/ns/net") as namespace, NetlinkSocket(namespace_fd=namespace.fd) as route:
        index = _index(route, link)
        program = _load("classifier")
        try:
            problems = route.batch([_clsact(index), _filter(index, program, name)])
        finally:
            os.close(program)
    assert not any(problems), problems


def attach_tcx(process: int, link: str, name: str) -> None:
    """As `bpftool net attach tcx_ingress` would."""
    with Namespace.open(f"/proc/{process}/ns/net") as namespace:
        with NetlinkSocket(namespace_fd=namespace.fd) as route:
            index = _index(route, link)
        program = _load(name)
        try:
            attribute = struct.pack("=III", index, program, TCX_INGRESS)
            namespace.run(lambda: bpf.call(bpf.PROG_ATTACH, attribute, f"attach {name} to {link}"))
        finally:
            os.close(program)


def programs_on(process: int, link: str) -> list[str]:
    """The names of all classifiers and TCX programs on a link."""
    with Namespace.open(f"/proc/{process}/ns/net") as namespace, NetlinkSocket(namespace_fd=namespace.fd) as route:
        index = _index(route, link)
        filters = [entry.name for entry in tc.list_bpf_filters(route) if entry.index == index]
        return filters + [found.name for found in namespace.run(lambda: bpf.attachments([index]))]


def supported() -> bool:
    """Whether this kernel lets us load and attach programs at all."""
    try:
        os.close(_load("probe"))
    except bpf.BpfError:
        return False
    release = Path("/proc/sys/kernel/osrelease").read_text().split(".")
    return (int(release[0]), int(release[1])) >= (6, 6)


def _index(route: NetlinkSocket, name: str) -> int:
    return next(link.index for link in links.list_links(route) if link.name == name)


def _load(name: str) -> int:
    code = struct.pack("=BBhi", 0xB7, 0, 0, -1) + struct.pack("=BBhi", 0x95, 0, 0, 0)
    steps, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    head = (SCHED_CLS, 2, ctypes.addressof(steps), ctypes.addressof(licence), 0, 0, 0, 0, 0)
    return bpf.call(bpf.PROG_LOAD, struct.pack("=IIQQIIQII16s", *head, name.encode()), f"load {name}")[0]


def _clsact(index: int) -> Message:
    head = struct.pack("=BxxxiIII", 0, index, 0xFFFF0000, tc.CLSACT, 0)
    return Message(tc.RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, head + text(1, "clsact"), "add clsact")


def _filter(index: int, program: int, name: str) -> Message:
    info = PRIORITY << 16 | socket.htons(ALL_PROTOCOLS)
    head = struct.pack("=BxxxiIII", 0, index, 0, tc.INGRESS, info)
    options = nested(2, u32(BPF_FD, program) + text(BPF_NAME, name) + u32(BPF_FLAGS, DIRECT_ACTION))
    return Message(tc.RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, head + text(1, "bpf") + options, f"add {name}")
