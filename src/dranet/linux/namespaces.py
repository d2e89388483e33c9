"""Network namespaces: naming them, entering them, asking what they are.

`setns` changes one thread only, so work inside a namespace is done on a fresh thread that ends there. The one exception
is `visit`, for a system call or two: a thread that ends is work the kernel's next move of a link waits for. A netlink
socket belongs to the namespace it was opened in for ever and may be used from any thread afterwards; sysctls belong to
the namespace of the thread that writes. Nothing is mounted here: an open file descriptor is enough to keep a namespace
alive.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, Self, TypeVar

from dranet.core.errors import KernelError

CLONE_NEWNET = 0x40000000
_NS_GET_NSTYPE = 0xB703

# The path does not exist, or its process has exited.
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENXIO})

_T = TypeVar("_T")
_libc = ctypes.CDLL(None, use_errno=True)


class NamespaceError(KernelError):
    """A network namespace cannot be opened or entered."""


class NamespaceGone(NamespaceError):
    """No namespace exists at that path. Other errors do not tell whether one exists."""


class Closeable:
    """Something with a `close` method, to be used in a `with` statement."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NamespaceIdentity(NamedTuple):
    """Equal for all paths of one namespace."""

    device: int
    inode: int


def run_inside(namespace_fd: int, function: Callable[[], _T]) -> _T:
    """Run `function` on a new thread inside the namespace; returns its result or raises its exception."""
    return _on_thread(lambda: _call_libc("setns", namespace_fd, CLONE_NEWNET), function)


def run_in_place(namespace_fd: int, function: Callable[[], _T]) -> _T:
    """Like `run_inside`, but on the calling thread if that is permitted to return. For functions that do not block."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(own, CLONE_NEWNET) != 0:  # this thread could not return, so use another one
            return run_inside(namespace_fd, function)
        try:
            _call_libc("setns", namespace_fd, CLONE_NEWNET)
            return function()
        finally:
            if _libc.setns(own, CLONE_NEWNET) != 0:
                os.abort()  # this thread would do the node's work in the wrong namespace
    finally:
        os.close(own)


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


class Namespace(Closeable):
    """An open network namespace, which exists at least until this object is closed."""

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
        """A new, empty namespace. Its path is valid in this process only."""
        fd = _on_thread(
            lambda: _call_libc("unshare", CLONE_NEWNET),
            lambda: os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC),
        )
        return cls(fd, f"/proc/self/fd/{fd}")

    def run(self, function: Callable[[], _T]) -> _T:
        """Call a function inside the namespace, on a new thread."""
        return run_inside(self.fd, function)

    def identity(self) -> NamespaceIdentity:
        """Unique on this machine while the namespace exists; paths are not."""
        found = os.fstat(self.fd)
        return NamespaceIdentity(found.st_dev, found.st_ino)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _is_network_namespace(fd: int) -> bool:
    try:
        return fcntl.ioctl(fd, _NS_GET_NSTYPE) == CLONE_NEWNET
    except OSError:
        return False


def exists(path: str) -> bool:
    """Whether a network namespace exists there, and not only its mount point; raises if that cannot be determined."""
    return identity_of(path) is not None


def identity_of(path: str) -> NamespaceIdentity | None:
    """The identity of the namespace at `path`, or None if there is none."""
    try:
        with Namespace.open(path) as namespace:
            return namespace.identity()
    except NamespaceGone:
        return None


def find_namespaces(proc_root: str = "/proc") -> Iterator[Namespace]:
    """Every network namespace in which a process runs or that it has open, each once. The caller closes them.

    Namespaces that only a mount or a socket keeps alive are not found.
    """
    seen: set[NamespaceIdentity] = set()
    for path in _paths_of_processes(proc_root):
        try:
            found = os.stat(path)
        except OSError:
            continue  # the process has exited, or the descriptor was closed
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
    """First the namespaces of processes, which is cheap and finds nearly all, then those of their threads, then their
    open descriptors."""
    processes = [f"{proc_root}/{name}" for name in os.listdir(proc_root) if name.isdigit()]
    for process in processes:
        yield f"{process}/ns/net"
    for process in processes:
        for thread in _entries(f"{process}/task"):
            yield f"{thread}/ns/net"
    for process in processes:
        for path in _entries(f"{process}/fd"):
            # A descriptor that was closed since skips one entry, not all those of its process.
            with contextlib.suppress(OSError):
                if os.readlink(path).startswith("net:["):
                    yield path


def _entries(folder: str) -> list[str]:
    """The paths in a folder of /proc; none where its process has exited."""
    try:
        return [f"{folder}/{name}" for name in os.listdir(folder)]
    except OSError:
        return []
