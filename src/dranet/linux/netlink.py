"""Netlink sockets: all netlink requests of this program go through a `NetlinkSocket`.

The kernel processes a request inside `send`, so the reply is ready when we read, and no timeout is needed. Threads may
share a socket (one request at a time). Note:
* a dump may report that the table changed during it (NLM_F_DUMP_INTR): it is repeated, up to five times;
* errors contain the kernel's message (extended ACK), see `NetlinkError`;
* acknowledgements of a batch fill the receive buffer, so long batches are sent in portions.
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

from dranet.core.errors import KernelError
from dranet.linux import codec, namespaces
from dranet.linux.codec import (
    NLM_F_ACK,
    NLM_F_DUMP,
    NLM_F_DUMP_INTR,
    NLM_F_REQUEST,
    Message,
    Reply,
    attributes,
    string,
)

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
"""The kernel replies before we read. If replies overflow the receive buffer (208 KiB by default), some are lost, and
the next read does not tell which. 64 acknowledgements fit many times over."""
_DUMP_ATTEMPTS = 5

_CONTROL = 16
_GETFAMILY = 3
_FAMILY_ID, _FAMILY_NAME = 1, 2
GENERIC_HEADER = struct.Struct("=BBH")

_HEADER = struct.Struct("=IHHII")
_CODE = struct.Struct("=i")
_unpack_header = _HEADER.unpack_from


class NetlinkError(KernelError):
    """The kernel refused a request: what was requested, the error number and the kernel's message."""

    def __init__(self, code: int, kernel_text: str = "", what: str = "") -> None:
        super().__init__(code, kernel_text, what)
        self.errno = code
        self.kernel_text = kernel_text
        self.what = what

    def __str__(self) -> str:
        # Built on demand: most refusals are expected, such as those of unsupported settings.
        reason = f"{os.strerror(self.errno)} ({errno.errorcode.get(self.errno, str(self.errno))})"
        asked = f"cannot {self.what}: " if self.what else ""
        return asked + reason + (f": {self.kernel_text}" if self.kernel_text else "")


class DumpInterrupted(NetlinkError):
    """The kernel's tables changed during every attempt to read them; retry later."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.EINTR, f"the kernel's tables kept changing during {_DUMP_ATTEMPTS} attempts", what)


def _open(family: int) -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
    # Acknowledgements without a copy of the request (it would fill the buffer), but with the kernel's message. Strict,
    # because otherwise the kernel ignores filters in a dump request and returns the whole table.
    options = [_CAP_ACK, _EXT_ACK] + ([_STRICT] if family == NETLINK_ROUTE else [])
    for option in options:
        opened.setsockopt(_SOL_NETLINK, option, 1)
    opened.bind((0, 0))
    return opened


def _open_inside(family: int, namespace_fd: int | None) -> socket.socket:
    open_it = partial(_open, family)
    try:
        return open_it() if namespace_fd is None else namespaces.run_in_place(namespace_fd, open_it)
    except OSError as error:
        raise NetlinkError(error.errno or errno.EIO, "", f"open a netlink socket of family {family}") from error


class NetlinkSocket(namespaces.Closeable):
    """A netlink socket in this thread's namespace, or inside the namespace behind `namespace_fd`."""

    def __init__(
        self, family: int = NETLINK_ROUTE, namespace_fd: int | None = None, *, transport: socket.socket | None = None
    ) -> None:
        """`transport` replaces the kernel by a connected datagram socket, for tests."""
        self._socket = transport or _open_inside(family, namespace_fd)
        self.family = family
        self.requests_sent = 0
        self._sequence = 0
        self._lock = threading.Lock()
        # Mapped, not allocated: only pages that replies touch take memory.
        self._buffer = memoryview(mmap.mmap(-1, _RECEIVE_SIZE))

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def request(self, message: Message) -> list[Reply]:
        """Send one request; returns the replies, often none. A refusal raises NetlinkError."""
        with self._lock:
            first = self._send([message], NLM_F_REQUEST | NLM_F_ACK)
            replies, failures, _ = self._collect(first, 1)
        if failures[0] is not None:
            raise _failure(failures[0], message)
        return replies[0]

    def dump(self, message: Message) -> list[Reply]:
        """Read a whole table; repeats the read if the table changed during it."""
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
        """Send many requests at once; the kernel processes them in order and does not stop at a refusal.

        Returns one entry for each message: None, or the error. So each step for all NICs of a pod is one batch, and
        the caller knows which NIC failed.
        """
        return [error for _, error in self._exchange(messages, NLM_F_REQUEST | NLM_F_ACK)] if messages else []

    def ask(self, questions: Sequence[Message]) -> list[Reply | NetlinkError]:
        """Like `batch`, for requests with one reply each: the reply, or the error."""
        # Not acknowledged, because there is a reply: half the datagrams take half the time.
        outcome = self._exchange(questions, NLM_F_REQUEST)
        return [
            replies[0] if replies else error or _no_answer(asked)
            for (replies, error), asked in zip(outcome, questions, strict=True)
        ]

    def _exchange(self, messages: Sequence[Message], flags: int) -> list[tuple[list[Reply], NetlinkError | None]]:
        outcome: list[tuple[list[Reply], NetlinkError | None]] = []
        # One lock for all portions: requests of another thread in between could undo what later portions depend on.
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
        """Request a receive buffer of `size` bytes; without CAP_NET_ADMIN, up to the system's limit."""
        for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, option, size)
                return
            except PermissionError:
                continue

    def pending(self) -> tuple[list[Reply], bool]:
        """The pending events, and whether the kernel dropped some (then rescan everything)."""
        datagrams, lost = self.pending_datagrams()
        return [Reply(kind, payload) for data in datagrams for kind, _, _, payload in _split(data)], lost

    def pending_datagrams(self) -> tuple[list[bytes], bool]:
        """Like `pending`, raw: uevents are not netlink messages."""
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
        """Send all with consecutive sequence numbers; returns the first."""
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
            raise NetlinkError(errno.EMSGSIZE, f"a reply of {size} bytes does not fit", "receive from netlink")
        return bytes(self._buffer[:size])

    def _collect(
        self, first: int, count: int, *, answer_ends: bool = False
    ) -> tuple[list[list[Reply]], list[tuple[int, str] | None], bool]:
        """Read until each of `count` requests is acknowledged (or answered, if `answer_ends`). Drops replies to older
        requests."""
        replies: list[list[Reply]] = [[] for _ in range(count)]
        failures: list[tuple[int, str] | None] = [None] * count
        interrupted = False
        open_requests = count
        while open_requests:
            data = self._receive()
            # Not with `_split`, for speed: a scan of a node with many links runs this loop thousands of times.
            offset, end = 0, len(data) - 16
            while offset <= end:
                length, kind, flags, number, _ = _unpack_header(data, offset)
                if length < 16:
                    break
                payload = data[offset + 16 : offset + length]
                offset += (length + 3) & ~3
                which = (number - first) & 0xFFFFFFFF
                if which >= count:
                    continue  # a reply to a request whose caller was interrupted
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
    """The errno and the kernel's message in an acknowledgement or at the end of a dump; None on success."""
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
    return NetlinkError(errno.EIO, "acknowledged without a reply", question.what)


class GenericSocket:
    """A generic netlink socket for one family; ENOENT if the kernel does not have it.

    Families have names, and numbers that differ between boots.
    """

    def __init__(self, family: str, version: int, namespace_fd: int | None = None) -> None:
        self._socket = NetlinkSocket(NETLINK_GENERIC, namespace_fd)
        self._version = version
        try:
            self._family = self._resolve(family)
        except BaseException:
            self._socket.close()
            raise

    def _resolve(self, name: str) -> int:
        payload = GENERIC_HEADER.pack(_GETFAMILY, 1, 0) + codec.text(_FAMILY_NAME, name)
        what = f"find the generic netlink family {name}"
        (reply,) = self._socket.request(Message(_CONTROL, 0, payload, what))
        return codec.number(codec.attributes(reply.payload, GENERIC_HEADER.size)[_FAMILY_ID])

    def message(self, command: int, payload: bytes, what: str) -> Message:
        """A request of this family."""
        return Message(self._family, 0, GENERIC_HEADER.pack(command, self._version, 0) + payload, what)

    def request(self, command: int, payload: bytes, what: str) -> list[Reply]:
        """Send one request of this family; a refusal raises NetlinkError."""
        return self._socket.request(self.message(command, payload, what))

    def ask(self, requests: Sequence[tuple[int, bytes, str]]) -> list[Reply | NetlinkError]:
        """Several commands with their payloads in one batch: the reply of each, or the error."""
        return self._socket.ask([self.message(*request) for request in requests])

    def reserve(self, size: int) -> None:
        self._socket.reserve(size)

    def dump(self, command: int, payload: bytes, what: str) -> list[Reply]:
        """Read a whole table of this family."""
        return self._socket.dump(self.message(command, payload, what))

    def close(self) -> None:
        self._socket.close()
