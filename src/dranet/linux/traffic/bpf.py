"""BPF programs on links, by bpf(2): list and detach TCX, netkit and XDP programs.

Queries apply to the network namespace of the calling thread: use `Namespace.run` for another one. A program is attached
directly or through a BPF link, which keeps it attached while a process or a pin holds the link; so the link is
detached, and its pin in the BPF file system is removed. Interface indexes repeat between namespaces: pins are matched
by link id. Kernels before 6.6 have no TCX.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable, Sequence

import msgspec

from dranet.core.errors import KernelError

PROG_LOAD, OBJ_PIN, OBJ_GET, PROG_ATTACH, PROG_DETACH = 5, 6, 7, 8, 9
_PROG_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD, _PROG_QUERY = 13, 15, 16
LINK_CREATE, _LINK_GET_FD_BY_ID, _LINK_GET_NEXT_ID, _LINK_DETACH = 28, 30, 31, 34
ATTACH_TYPES = {"tcx/ingress": 46, "tcx/egress": 47, "netkit/primary": 54, "netkit/peer": 55}
ATTACH_XDP = 37
LINK_TYPES = {6: "xdp", 11: "tcx", 13: "netkit"}

SYSCALLS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_SYSCALL = SYSCALLS.get(platform.machine(), 280)
_ATTRIBUTE_SIZE = 128
_MOST_PROGRAMS = 64
_QUERY = struct.Struct("=IIIIQIxxxxQQQQ")
_U32_PAIR = struct.Struct("=II")
_INFO = struct.Struct("=IIQ")
_LINK_INFO = struct.Struct("=III4xI")
_NAME_OFFSET, _NAME_SIZE = 64, 16
_libc = ctypes.CDLL(None, use_errno=True)


class BpfError(KernelError):
    """bpf(2) refused."""

    def __init__(self, code: int, what: str) -> None:
        self.errno = code
        super().__init__(f"cannot {what}: {os.strerror(code)} ({errno.errorcode.get(code, str(code))})")


class Attachment(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One program on a link; `link_id` is 0 if it was attached directly, `hook` a key of ATTACH_TYPES."""

    index: int
    hook: str
    program_id: int
    link_id: int
    name: str


class BpfLink(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One BPF link of an interface; `path` is where it is pinned, empty if it is not."""

    id: int
    kind: str
    program_id: int
    index: int
    path: str = ""


def call(command: int, attribute: bytes | bytearray, what: str) -> tuple[int, bytes]:
    """bpf(2): its result, and the attribute after the call."""
    buffer = ctypes.create_string_buffer(bytes(attribute), max(_ATTRIBUTE_SIZE, len(attribute)))
    result: int = _libc.syscall(_SYSCALL, command, buffer, len(buffer))
    if result < 0:
        raise BpfError(ctypes.get_errno(), what)
    return result, buffer.raw


def attachments(indexes: Iterable[int], hooks: Sequence[str] = ("tcx/ingress", "tcx/egress")) -> list[Attachment]:
    """The programs on links of this thread's namespace, by link and hook in the order they run.

    The kernel replies link by link; the buffers are reused, so that a node with many links is read quickly.
    """
    query = _Query()
    return [
        Attachment(index=index, hook=hook, program_id=program, link_id=link, name=program_name(program))
        for index in indexes
        for hook in hooks
        for program, link in query.ask(index, hook)
    ]


class _Query:
    """BPF_PROG_QUERY with reused buffers."""

    def __init__(self) -> None:
        self._programs = (ctypes.c_uint32 * _MOST_PROGRAMS)()
        self._links = (ctypes.c_uint32 * _MOST_PROGRAMS)()
        self._attribute = ctypes.create_string_buffer(_QUERY.size)
        self._where = (ctypes.addressof(self._programs), _MOST_PROGRAMS, 0, ctypes.addressof(self._links), 0, 0)
        self._ask = _libc.syscall

    def ask(self, index: int, hook: str) -> list[tuple[int, int]]:
        """Program and link ids on a hook. A kernel or link without the hook has none."""
        _QUERY.pack_into(self._attribute, 0, index, ATTACH_TYPES[hook], 0, 0, *self._where)
        if self._ask(_SYSCALL, _PROG_QUERY, self._attribute, _QUERY.size) < 0:
            code = ctypes.get_errno()
            if code in (errno.EINVAL, errno.ENODEV, errno.ENOENT, errno.EOPNOTSUPP):
                return []
            raise BpfError(code, f"list the {hook} programs of link {index}")
        count: int = _QUERY.unpack_from(self._attribute)[5]
        return list(zip(self._programs[:count], self._links[:count], strict=True)) if count else []


def program_name(program_id: int) -> str:
    """The name a program was loaded with (15 characters at most); empty if it no longer exists."""
    try:
        fd, _ = call(_PROG_GET_FD_BY_ID, struct.pack("=I", program_id), f"open BPF program {program_id}")
    except BpfError as error:
        if error.errno == errno.ENOENT:
            return ""
        raise
    try:
        info = _info(fd, 256, f"describe BPF program {program_id}")
    finally:
        os.close(fd)
    return info[_NAME_OFFSET : _NAME_OFFSET + _NAME_SIZE].split(b"\0", 1)[0].decode(errors="replace")


def _info(fd: int, size: int, what: str) -> bytes:
    info = ctypes.create_string_buffer(size)
    call(_OBJ_GET_INFO_BY_FD, _INFO.pack(fd, size, ctypes.addressof(info)), what)
    return info.raw


def detach(attachment: Attachment) -> None:
    """Detach a program from its link, if it is still attached."""
    try:
        if attachment.link_id:
            detach_link(attachment.link_id)
        else:
            _detach_program(attachment)
    except BpfError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV, errno.ENOLINK):
            raise


def _detach_program(attachment: Attachment) -> None:
    what = f"detach the {attachment.hook} program {attachment.name} of link {attachment.index}"
    fd, _ = call(_PROG_GET_FD_BY_ID, struct.pack("=I", attachment.program_id), what)
    try:
        call(PROG_DETACH, struct.pack("=III", attachment.index, fd, ATTACH_TYPES[attachment.hook]), what)
    finally:
        os.close(fd)


def detach_link(link_id: int) -> None:
    """Detach a BPF link from its interface, even if a process holds it."""
    what = f"detach BPF link {link_id}"
    fd, _ = call(_LINK_GET_FD_BY_ID, struct.pack("=I", link_id), what)
    try:
        call(_LINK_DETACH, struct.pack("=I", fd), what)
    finally:
        os.close(fd)


def list_links() -> list[BpfLink]:
    """All BPF links of interfaces on this machine, in all namespaces, by id."""
    found: list[BpfLink] = []
    last = 0
    while True:
        try:
            _, answer = call(_LINK_GET_NEXT_ID, _U32_PAIR.pack(last, 0), "list the BPF links")
        except BpfError as error:
            if error.errno == errno.ENOENT:
                return found
            raise
        last = _U32_PAIR.unpack_from(answer)[1]
        found += _link_by_id(last)


def _link_by_id(link_id: int) -> list[BpfLink]:
    try:
        fd, _ = call(_LINK_GET_FD_BY_ID, struct.pack("=I", link_id), f"open BPF link {link_id}")
    except BpfError as error:
        if error.errno in (errno.ENOENT, errno.EAGAIN):
            return []
        raise
    try:
        return _describe_link(fd, "")
    finally:
        os.close(fd)


def _describe_link(fd: int, path: str) -> list[BpfLink]:
    kind, link_id, program_id, index = _LINK_INFO.unpack_from(_info(fd, 128, "describe a BPF link"))
    if kind not in LINK_TYPES:
        return []
    return [BpfLink(id=link_id, kind=LINK_TYPES[kind], program_id=program_id, index=index, path=path)]


def pinned_links(root: str = "/sys/fs/bpf") -> tuple[list[BpfLink], list[str]]:
    """The interface links pinned below `root`, by path, and the errors."""
    found: list[BpfLink] = []
    problems: list[str] = []
    for folder, folders, files in os.walk(root, onerror=lambda error: problems.append(str(error))):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(folder, name)
            try:
                found += _pinned_link(path)
            except BpfError as error:
                problems.append(f"{path}: {error}")
    return found, problems


def _pinned_link(path: str) -> list[BpfLink]:
    name = ctypes.create_string_buffer(os.fsencode(path))
    try:
        fd, _ = call(OBJ_GET, struct.pack("=QII", ctypes.addressof(name), 0, 0), f"open the pin {path}")
    except BpfError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EINVAL):  # deleted, or not a BPF object
            return []
        raise
    try:
        # The kernel shows bpf_link for a new link and bpf-link for one that was opened by its pin.
        is_link = os.readlink(f"/proc/self/fd/{fd}").replace("_", "-").endswith("bpf-link")
        return _describe_link(fd, path) if is_link else []
    finally:
        os.close(fd)


def unpin(link: BpfLink) -> None:
    """Remove the pin of a link, if it exists."""
    try:
        os.unlink(link.path)
    except FileNotFoundError:
        pass
