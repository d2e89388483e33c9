"""The one door to the kernel: every netlink request of this program leaves through a `NetlinkSocket`.

The kernel works on a request inside `send`, so an answer is waiting by the time we read; there is nothing to time out.
A socket may be shared by threads (one request at a time). Surprises worth knowing:
* a dump may tell that the world changed under it (NLM_F_DUMP_INTR): we take it again, up to five times;
* errors carry the kernel's own sentence (extended ACK), which is kept in `NetlinkError`;
* acknowledgements of a batch queue up in the receive buffer, so long batches go out in portions.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from functools import partial

from dranet.kernel import namespaces
from dranet.kernel.codec import (
    NLM_F_ACK,
    NLM_F_DUMP,
    NLM_F_DUMP_INTR,
    NLM_F_REQUEST,
    Message,
    Reply,
    attributes,
    string,
)
from dranet.kernel.errors import KernelError

NETLINK_ROUTE = 0
NETLINK_KOBJECT_UEVENT = 15
NETLINK_GENERIC = 16
NETLINK_RDMA = 20

_SOL_NETLINK = 270
_SO_RCVBUFFORCE = 33
_ADD_MEMBERSHIP, _CAP_ACK, _EXT_ACK, _STRICT = 1, 10, 11, 12
_NLMSG_ERROR, _NLMSG_DONE, _NLMSG_OVERRUN = 2, 3, 4
_NLM_F_CAPPED, _NLM_F_ACK_TLVS = 0x100, 0x200
_EXTACK_TEXT = 1
_RECEIVE_SIZE = 1 << 18
_MSG_TRUNC, _MSG_DONTWAIT = int(socket.MSG_TRUNC), int(socket.MSG_DONTWAIT)
_BATCH_MESSAGES = 64
"""The kernel answers while it works, before we read. Where answers overflow the receive buffer (208 KiB by default)
some are lost, and the next read says only that, not which. 64 acknowledgements fit many times over."""
_DUMP_ATTEMPTS = 5

_HEADER = struct.Struct("=IHHII")
_CODE = struct.Struct("=i")
_unpack_header = _HEADER.unpack_from


class NetlinkError(KernelError):
    """The kernel refused a request: what was asked, the error number and the kernel's own words."""

    def __init__(self, code: int, kernel_text: str = "", what: str = "") -> None:
        super().__init__(code, kernel_text, what)
        self.errno = code
        self.kernel_text = kernel_text
        self.what = what

    def __str__(self) -> str:
        """Made when it is read: most refusals are expected, such as of a setting that a card has not."""
        reason = f"{os.strerror(self.errno)} ({errno.errorcode.get(self.errno, str(self.errno))})"
        asked = f"cannot {self.what}: " if self.what else ""
        return asked + reason + (f": {self.kernel_text}" if self.kernel_text else "")


class DumpInterrupted(NetlinkError):
    """The kernel's tables changed during every attempt to read them; asking again later is right."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.EINTR, f"the kernel's tables kept changing during {_DUMP_ATTEMPTS} attempts", what)


def _open(family: int) -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
    # Acknowledgements without a copy of the request (it would fill the buffer), but with the kernel's sentence. Strict,
    # because otherwise the kernel ignores filters in a dump request and hands over the whole table.
    options = [_CAP_ACK, _EXT_ACK] + ([_STRICT] if family == NETLINK_ROUTE else [])
    for option in options:
        opened.setsockopt(_SOL_NETLINK, option, 1)
    opened.bind((0, 0))
    return opened


def _open_inside(family: int, namespace_fd: int | None) -> socket.socket:
    open_it = partial(_open, family)
    try:
        return open_it() if namespace_fd is None else namespaces.visit(namespace_fd, open_it)
    except OSError as error:
        raise NetlinkError(error.errno or errno.EIO, "", f"open a netlink socket of family {family}") from error


class NetlinkSocket:
    """A netlink socket in this thread's namespace, or inside the namespace behind `namespace_fd`."""

    def __init__(
        self, family: int = NETLINK_ROUTE, namespace_fd: int | None = None, *, transport: socket.socket | None = None
    ) -> None:
        """`transport` puts something else in the kernel's place: a connected datagram socket."""
        self._socket = transport or _open_inside(family, namespace_fd)
        self.family = family
        self.requests_sent = 0
        self._sequence = 0
        self._lock = threading.Lock()
        # Mapped, not allocated: of its pages only those that answers touch become real.
        self._buffer = memoryview(mmap.mmap(-1, _RECEIVE_SIZE))

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> NetlinkSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def request(self, message: Message) -> list[Reply]:
        """Send one request and wait for its end. The answers, often none; a refusal raises NetlinkError."""
        with self._lock:
            first = self._send([message], NLM_F_REQUEST | NLM_F_ACK)
            replies, failures, _ = self._collect(first, 1)
        if failures[0] is not None:
            raise _failure(failures[0], message)
        return replies[0]

    def dump(self, message: Message) -> list[Reply]:
        """Read a whole table, again if it changed meanwhile."""
        for _ in range(_DUMP_ATTEMPTS):
            with self._lock:
                first = self._send([message], NLM_F_REQUEST | NLM_F_DUMP)
                replies, failures, interrupted = self._collect(first, 1)
            if failures[0] is not None:
                raise _failure(failures[0], message)
            if not interrupted:
                return replies[0]
        raise DumpInterrupted(message.what)

    def batch(self, messages: Sequence[Message]) -> list[NetlinkError | None]:
        """Send many requests at once; the kernel carries them out in order and does not stop at a refusal.

        One entry a message: None, or why the kernel refused it. So one phase of all cards of a pod is one conversation
        however many they are, and each request still has an answer of its own: who failed is known, and who did not
        need not be asked for again.
        """
        return [error for _, error in self._converse(messages, NLM_F_REQUEST | NLM_F_ACK)] if messages else []

    def ask(self, questions: Sequence[Message]) -> list[Reply | NetlinkError]:
        """Like `batch`, for questions that have one answer each: that, or why the kernel refused it."""
        # Not acknowledged: the answer says as much, and half the datagrams is half the time to read them.
        outcome = self._converse(questions, NLM_F_REQUEST)
        return [
            replies[0] if replies else error or _no_answer(asked)
            for (replies, error), asked in zip(outcome, questions, strict=True)
        ]

    def _converse(self, messages: Sequence[Message], flags: int) -> list[tuple[list[Reply], NetlinkError | None]]:
        outcome: list[tuple[list[Reply], NetlinkError | None]] = []
        # One lock over all portions: what another thread sent in between could undo what the later ones build on.
        with self._lock:
            for start in range(0, len(messages), _BATCH_MESSAGES):
                portion = messages[start : start + _BATCH_MESSAGES]
                first = self._send(portion, flags)
                replies, failures, _ = self._collect(first, len(portion), answer_ends=not flags & NLM_F_ACK)
                errors = [found and _failure(found, asked) for found, asked in zip(failures, portion, strict=True)]
                outcome += zip(replies, errors, strict=True)
        return outcome

    def subscribe(self, *groups: int) -> None:
        """Receive the events of multicast groups. Use such a socket for nothing else."""
        for group in groups:
            try:
                self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
            except OSError as error:
                raise NetlinkError(error.errno or errno.EIO, "", f"subscribe to netlink group {group}") from error

    def reserve(self, size: int) -> None:
        """Ask for a receive buffer of `size` bytes; without the right to exceed the system's limit, up to that."""
        for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, option, size)
                return
            except PermissionError:
                continue

    def pending(self) -> tuple[list[Reply], bool]:
        """The events that wait now, and whether the kernel had to drop some (then look at everything again)."""
        datagrams, lost = self.pending_datagrams()
        return [Reply(kind, payload) for data in datagrams for kind, _, _, payload in _split(data)], lost

    def pending_datagrams(self) -> tuple[list[bytes], bool]:
        """Like `pending`, raw: device events (uevents) are no netlink messages."""
        datagrams: list[bytes] = []
        lost = False
        while True:
            try:
                datagrams.append(self._receive(_MSG_DONTWAIT))
            except BlockingIOError:
                return datagrams, lost
            except NetlinkError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                lost = True

    def _send(self, messages: Sequence[Message], flags: int) -> int:
        """Send in one go, numbered in order; the number of the first."""
        first = self._sequence + 1
        self._sequence += len(messages)
        self.requests_sent += len(messages)
        parts: list[bytes] = []
        for number, message in enumerate(messages, first):
            kind, own_flags, payload, _ = message
            parts.append(_HEADER.pack(16 + len(payload), kind, own_flags | flags, number & 0xFFFFFFFF, 0))
            parts.append(payload)
            if len(payload) & 3:
                parts.append(bytes(-len(payload) & 3))
        try:
            self._socket.send(b"".join(parts))
        except OSError as error:
            raise NetlinkError(error.errno or errno.EIO, "", messages[0].what) from error
        return first

    def _receive(self, flags: int = 0) -> bytes:
        try:
            size = self._socket.recv_into(self._buffer, 0, flags | _MSG_TRUNC)
        except BlockingIOError:
            raise
        except OSError as error:
            raise NetlinkError(error.errno or errno.EIO, "", "receive from netlink") from error
        if size > _RECEIVE_SIZE:
            raise NetlinkError(errno.EMSGSIZE, f"an answer of {size} bytes does not fit", "receive from netlink")
        return bytes(self._buffer[:size])

    def _collect(
        self, first: int, count: int, *, answer_ends: bool = False
    ) -> tuple[list[list[Reply]], list[tuple[int, str] | None], bool]:
        """Read until each of `count` requests is acknowledged, or answered where that is its end. What is left of an
        older request is dropped."""
        replies: list[list[Reply]] = [[] for _ in range(count)]
        failures: list[tuple[int, str] | None] = [None] * count
        interrupted = False
        open_requests = count
        while open_requests:
            data = self._receive()
            # Not by `_split`: a look at a node with many links comes by here thousands of times.
            offset, end = 0, len(data) - 16
            while offset <= end:
                length, kind, flags, number, _ = _unpack_header(data, offset)
                if length < 16:
                    break
                payload = data[offset + 16 : offset + length]
                offset += (length + 3) & ~3
                which = (number - first) & 0xFFFFFFFF
                if which >= count:
                    continue  # of a request whose caller was interrupted while it waited
                if flags & NLM_F_DUMP_INTR:
                    interrupted = True
                if kind > _NLMSG_OVERRUN:
                    replies[which].append(Reply(kind, payload))
                    open_requests -= answer_ends
                elif kind in (_NLMSG_ERROR, _NLMSG_DONE):
                    failures[which] = _read_code(kind, flags, payload)
                    open_requests -= 1
        return replies, failures, interrupted


def _split(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Type, flags, sequence number and payload of each message in a datagram."""
    offset, end = 0, len(data)
    while offset + 16 <= end:
        length, kind, flags, number, _ = _unpack_header(data, offset)
        if length < 16:
            return
        yield kind, flags, number, data[offset + 16 : offset + length]
        offset += (length + 3) & ~3


def _read_code(kind: int, flags: int, payload: bytes) -> tuple[int, str] | None:
    """The errno and the kernel's text of an acknowledgement or of a dump's end; None when all went well."""
    code = -_CODE.unpack_from(payload)[0] if len(payload) >= 4 else 0
    if code <= 0:
        return None
    if not flags & _NLM_F_ACK_TLVS:
        return code, ""
    start = 4
    if kind == _NLMSG_ERROR:
        echoed = 16 if flags & _NLM_F_CAPPED else _unpack_header(payload, 4)[0]
        start += (echoed + 3) & ~3
    return code, string(attributes(payload, start).get(_EXTACK_TEXT, b""))


def _failure(found: tuple[int, str], message: Message) -> NetlinkError:
    return NetlinkError(found[0], found[1], message.what)


def _no_answer(question: Message) -> NetlinkError:
    return NetlinkError(errno.EIO, "it was acknowledged, not answered", question.what)


__all__ = [
    "NETLINK_GENERIC",
    "NETLINK_KOBJECT_UEVENT",
    "NETLINK_RDMA",
    "NETLINK_ROUTE",
    "DumpInterrupted",
    "Message",
    "NetlinkError",
    "NetlinkSocket",
    "Reply",
]
