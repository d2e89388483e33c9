"""Network namespaces: naming them, entering them, asking what they are.

`setns` changes one thread only, so work inside a namespace is done on a fresh thread that ends there. The one exception
is `visit`, for a system call or two: a thread that ends is work the kernel's next move of a link waits for. A netlink
socket belongs to the namespace it was opened in for ever and may be used from any thread afterwards; sysctls belong to
the namespace of the thread that writes. Nothing is mounted here: an open file descriptor is enough to keep a namespace
alive.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from dranet.kernel import codec
from dranet.kernel.errors import KernelError

if TYPE_CHECKING:
    from dranet.kernel.netlink import NetlinkSocket

CLONE_NEWNET = 0x40000000
_NS_GET_NSTYPE = 0xB703
_RTM_NEWNSID, _RTM_GETNSID = 88, 90
_NETNSA_NSID, _NETNSA_FD, _NETNSA_TARGET = 1, 3, 4

_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENXIO})
"""No such path, or its process has ended."""

_T = TypeVar("_T")
Work = Callable[[], None]
_libc = ctypes.CDLL(None, use_errno=True)


class NamespaceError(KernelError):
    """A network namespace that cannot be opened or entered."""


class NamespaceGone(NamespaceError):
    """There is no namespace at that path any more. Any other trouble on opening one says nothing about that."""


class NamespaceIdentity(NamedTuple):
    """What makes two paths the same namespace, whatever they are called."""

    device: int
    inode: int


def run_inside(namespace_fd: int, function: Callable[[], _T]) -> _T:
    """Run `function` on a fresh thread inside the namespace and hand back its result or its exception."""
    return _on_thread(lambda: _call_libc("setns", namespace_fd, CLONE_NEWNET), function)


def visit(namespace_fd: int, function: Callable[[], _T]) -> _T:
    """Like `run_inside`, on the calling thread where that may come back; for what neither blocks nor lingers."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(home, CLONE_NEWNET) != 0:  # who could not come back must not leave
            return run_inside(namespace_fd, function)
        try:
            _call_libc("setns", namespace_fd, CLONE_NEWNET)
            return function()
        finally:
            if _libc.setns(home, CLONE_NEWNET) != 0:
                os.abort()  # a thread lost in another namespace would go on to do the node's work there
    finally:
        os.close(home)


def _on_thread(enter: Callable[[], None], function: Callable[[], _T]) -> _T:
    results: list[_T] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            enter()
            results.append(function())
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=work, name="netns")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def _call_libc(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        advice = "it needs CAP_SYS_ADMIN" if code == errno.EPERM else "is the file a network namespace?"
        raise NamespaceError(f"cannot enter a network namespace ({name}): {os.strerror(code)}; {advice}")


class Namespace:
    """An open network namespace; it lives at least as long as this object stays open."""

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def open(cls, path: str) -> Namespace:
        """Open a namespace by path (`/var/run/netns/x`, `/proc/1234/ns/net`)."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            kind = NamespaceGone if error.errno in _GONE else NamespaceError
            raise kind(f"cannot open the network namespace {path}: {error.strerror}") from error
        if not _is_network_namespace(fd):
            os.close(fd)
            raise NamespaceGone(f"{path} is not a network namespace; was it deleted?")
        return cls(fd, path)

    @classmethod
    def current(cls) -> Namespace:
        """The namespace of the calling thread."""
        return cls.open("/proc/thread-self/ns/net")

    @classmethod
    def create(cls) -> Namespace:
        """A new, empty namespace that vanishes when its last user is gone; its path works in this process only."""
        fd = _on_thread(
            lambda: _call_libc("unshare", CLONE_NEWNET),
            lambda: os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC),
        )
        return cls(fd, f"/proc/self/fd/{fd}")

    def run(self, function: Callable[[], _T]) -> _T:
        """Call a function inside, on a fresh thread: one that could not come back would do other work there."""
        return run_inside(self.fd, function)

    def identity(self) -> NamespaceIdentity:
        """What tells it from all others on this machine, for as long as it lives; paths do not."""
        found = os.fstat(self.fd)
        return NamespaceIdentity(found.st_dev, found.st_ino)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Namespace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_network_namespace(fd: int) -> bool:
    try:
        return fcntl.ioctl(fd, _NS_GET_NSTYPE) == CLONE_NEWNET
    except OSError:
        return False


def exists(path: str) -> bool:
    """Whether a network namespace is there now, and not only the file it was mounted on; raises where nobody knows."""
    return identity_of(path) is not None


def identity_of(path: str) -> NamespaceIdentity | None:
    """The identity of the namespace at `path`, or None when there is none."""
    try:
        with Namespace.open(path) as namespace:
            return namespace.identity()
    except NamespaceGone:
        return None


def nsid(socket: NetlinkSocket, namespace_fd: int) -> int | None:
    """The number by which the socket's namespace knows another one, or None if it has not met it."""
    request = codec.Message(
        _RTM_GETNSID, 0, b"\0\0\0\0" + codec.u32(_NETNSA_FD, namespace_fd), "look up the number of a namespace"
    )
    for reply in socket.request(request):
        found = codec.signed(codec.attributes(reply.payload, 4)[_NETNSA_NSID])
        return found if found >= 0 else None
    return None


def numbered(socket: NetlinkSocket, namespace_fd: int) -> int:
    """The same, with a number given to it now if it had none; it lasts until the other one is gone."""
    payload = b"\0\0\0\0" + codec.u32(_NETNSA_FD, namespace_fd) + codec.i32(_NETNSA_NSID, -1)
    found = nsid(socket, namespace_fd)
    if found is None:
        socket.request(codec.Message(_RTM_NEWNSID, 0, payload, "give a namespace a number"))
        found = nsid(socket, namespace_fd)
    assert found is not None
    return found


def translated(socket: NetlinkSocket, number: int, target: int) -> int | None:
    """The number by which the namespace `target` knows the one that is `number` here; None if it has not met it."""
    payload = b"\0\0\0\0" + codec.i32(_NETNSA_NSID, number) + codec.i32(_NETNSA_TARGET, target)
    for reply in socket.request(codec.Message(_RTM_GETNSID, 0, payload, "translate the number of a namespace")):
        found = codec.signed(codec.attributes(reply.payload, 4)[_NETNSA_NSID])
        return found if found >= 0 else None
    return None


def everywhere(proc_root: str = "/proc") -> Iterator[Namespace]:
    """Every network namespace that a process lives in or holds open, each once; close them.

    A namespace that only a mount keeps is found through no process. Neither is one held by a socket.
    """
    seen: set[NamespaceIdentity] = set()
    for path in _paths_of_processes(proc_root):
        try:
            found = os.stat(path)
        except OSError:
            continue  # the process has ended, or the descriptor is closed
        identity = NamespaceIdentity(found.st_dev, found.st_ino)
        if identity in seen:
            continue
        seen.add(identity)
        try:
            namespace = Namespace.open(path)
        except NamespaceError:
            continue
        yield namespace


def _paths_of_processes(proc_root: str) -> Iterator[str]:
    """First where processes live, which is cheap and finds nearly all, then what they hold."""
    processes = [name for name in os.listdir(proc_root) if name.isdigit()]
    for process in processes:
        yield f"{proc_root}/{process}/ns/net"
    for process in processes:
        try:
            for descriptor in os.listdir(f"{proc_root}/{process}/fd"):
                path = f"{proc_root}/{process}/fd/{descriptor}"
                if os.readlink(path).startswith("net:["):
                    yield path
        except OSError:
            continue
