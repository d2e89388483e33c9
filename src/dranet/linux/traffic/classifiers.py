"""BPF classifiers on what a link sends: they choose the HTB class by the network namespace of the sending socket.

A pod can forge every byte of a packet, and with CAP_NET_RAW the priority of its sockets, which HTB would take for a
class or for "not limited". It cannot forge the cookie of its namespace. First one program removes the priority that
came with the packet; then each share has a program that sets its class. All run before the qdisc, on `clsact`, and
continue with the next filter. Older kernels give classifiers no cookie: then `has_cookies` is false.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from functools import cache

from dranet.linux import codec
from dranet.linux.codec import NLM_F_CREATE, NLM_F_EXCL, Message
from dranet.linux.namespaces import run_in_place
from dranet.linux.traffic import bpf, htb
from dranet.linux.traffic.tc import (
    CLSACT,
    EGRESS,
    KIND,
    OPTIONS,
    RTM_DELQDISC,
    RTM_DELTFILTER,
    RTM_NEWQDISC,
    RTM_NEWTFILTER,
    TCMSG,
)

_SCHED_CLS, _GET_NETNS_COOKIE = 3, 122
_SO_NETNS_COOKIE = 71
_PRIORITY_OFFSET = 32
"""Of `priority` in `struct __sk_buff`."""
_INSTRUCTION = struct.Struct("=BBhi")
_ALL_PROTOCOLS = 0x0300
"""ETH_P_ALL in network byte order."""
_FIRST = 0xD700
"""The preference of the program that removes priorities: after the filters of others."""
_FD, _NAME, _FLAGS, _DIRECT_ACTION = 6, 7, 8, 1


def netns_cookie(namespace_fd: int) -> int:
    """The cookie of a network namespace: never used twice while the machine runs."""

    def read() -> int:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            return int(struct.unpack("=Q", made.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8))[0])

    return run_in_place(namespace_fd, read)


@cache
def has_cookies() -> bool:
    """Whether the kernel lets classifiers read the cookie of a packet's namespace."""
    try:
        os.close(_load(_by_cookie(1, htb.DEFAULT_CLASS)))
    except bpf.BpfError:
        return False
    return True


def create_clsact(index: int) -> Message:
    """The hook for classifiers; EEXIST if the link has it."""
    payload = TCMSG.pack(0, index, 0xFFFF0000, CLSACT, 0) + codec.text(KIND, "clsact")
    return Message(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, payload, f"create clsact on link {index}")


def reset_priority() -> int:
    """A program that removes the priority of every packet; the caller closes it."""
    return _load(_set_priority(0))


def classify(cookie: int, minor: int) -> int:
    """A program that puts packets of a namespace into a class; the caller closes it."""
    return _load(_by_cookie(cookie, minor))


def add(index: int, number: int, program: int) -> Message:
    """Run a program on what the link sends, in the order of the numbers. 0 is for `reset_priority`."""
    options = codec.u32(_FD, program) + codec.text(_NAME, f"dranet-{number:x}") + codec.u32(_FLAGS, _DIRECT_ACTION)
    payload = _head(index, number, handle=1) + codec.text(KIND, "bpf") + codec.nested(OPTIONS, options)
    return Message(RTM_NEWTFILTER, NLM_F_CREATE, payload, f"classify what link {index} sends")


def delete_clsact(index: int) -> Message:
    """Remove the hook with all its classifiers."""
    return Message(RTM_DELQDISC, 0, TCMSG.pack(0, index, 0xFFFF0000, CLSACT, 0), f"delete clsact of link {index}")


def delete(index: int, number: int) -> Message:
    """Remove the program with that number; ENOENT or EINVAL if there is none."""
    return Message(RTM_DELTFILTER, 0, _head(index, number), f"delete classifier {number:x} of link {index}")


def _head(index: int, number: int, handle: int = 0) -> bytes:
    return TCMSG.pack(0, index, handle, EGRESS, (_FIRST + number) << 16 | _ALL_PROTOCOLS)


def _by_cookie(cookie: int, minor: int) -> list[bytes]:
    test = [
        _step(0x85, imm=_GET_NETNS_COOKIE),
        _step(0x18, 2, imm=_signed(cookie & 0xFFFFFFFF)),
        _step(0, imm=_signed(cookie >> 32)),
        _step(0x5D, 0, 2, off=2),  # another namespace: skip the two instructions that set the priority
    ]
    return _set_priority(htb.class_id(minor), *test)


def _set_priority(class_id: int, *test: bytes) -> list[bytes]:
    return [
        _step(0xBF, 6, 1),
        *test,
        _step(0xB4, 1, imm=_signed(class_id)),
        _step(0x63, 6, 1, off=_PRIORITY_OFFSET),
        _step(0xB7, 0, imm=-1),  # TC_ACT_UNSPEC: continue with the next filter
        _step(0x95),
    ]


def _step(code: int, target: int = 0, source: int = 0, *, off: int = 0, imm: int = 0) -> bytes:
    return _INSTRUCTION.pack(code, target | source << 4, off, imm)


def _signed(value: int) -> int:
    return value - (1 << 32) if value & 0x80000000 else value


def _load(steps: list[bytes]) -> int:
    code, license_ = ctypes.create_string_buffer(b"".join(steps)), ctypes.create_string_buffer(b"GPL")
    where = (ctypes.addressof(code), ctypes.addressof(license_))
    attribute = struct.pack("=IIQQIIQII16s", _SCHED_CLS, len(steps), *where, 0, 0, 0, 0, 0, b"dranet_share")
    return bpf.call(bpf.PROG_LOAD, attribute, "load a classifier")[0]
