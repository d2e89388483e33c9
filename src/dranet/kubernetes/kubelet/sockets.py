"""The plugin's socket files.

The kubelet connects to a registration socket as soon as its file appears. So a socket is bound under a hidden name,
listens, and is then renamed: a file under the final name has, or had, a listener. A dead one refuses connections. Two
instances of a driver run at the same time during an update of its DaemonSet; each names its sockets after its pod, and
neither removes live sockets of the other.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import socket
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from dranet.kubernetes.kubelet.handler import KubeletError

KUBELET_ROOT = Path("/var/lib/kubelet")
_UID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
# sun_path of a unix address, without the terminating NUL.
_MAX_PATH_BYTES = 107


class SocketPaths(msgspec.Struct, frozen=True):
    """The socket paths of one instance of a driver. With a pod UID, two instances can coexist."""

    root: Path
    driver: str
    pod_uid: str = ""

    @property
    def registry(self) -> Path:
        return self.root / "plugins_registry"

    @property
    def data(self) -> Path:
        return self.root / "plugins" / self.driver

    @property
    def registration(self) -> Path:
        return self.registry / f"{self.driver}{self._suffix}-reg.sock"

    @property
    def service(self) -> Path:
        return self.data / f"dra{self._suffix}.sock"

    @property
    def lock(self) -> Path:
        return self.data / "claims.lock"

    @property
    def sockets_lock(self) -> Path:
        return self.data / "sockets.lock"

    @property
    def _suffix(self) -> str:
        return f"-{self.pod_uid}" if self.pod_uid else ""

    def siblings(self) -> Iterator[Path]:
        """The socket files of all instances of this driver, sorted."""
        patterns = {
            self.registry: re.compile(rf"{re.escape(self.driver)}(-{_UID})?-reg\.sock"),
            self.data: re.compile(rf"dra(-{_UID})?\.sock"),
        }
        for folder, pattern in patterns.items():
            found = sorted(folder.iterdir()) if folder.is_dir() else []
            yield from (path for path in found if pattern.fullmatch(path.name))


class PublishedSocket(msgspec.Struct, frozen=True):
    """A socket file, identified by its inode."""

    path: Path
    inode: int

    def remove(self) -> None:
        """Remove the file, unless another instance has replaced it."""
        try:
            if self.path.stat().st_ino == self.inode:
                self.path.unlink()
        except FileNotFoundError:
            pass


async def publish(path: Path, listen: Callable[[Path], Awaitable[None]]) -> PublishedSocket:
    """Let `listen` bind a hidden path, then rename it; replaces a dead socket of the same name."""
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise KubeletError(f"socket path {path} is longer than {_MAX_PATH_BYTES} bytes; use a shorter kubelet root")
    hidden = path.with_name(f".{os.getpid()}.new")
    hidden.unlink(missing_ok=True)
    await listen(hidden)
    inode = hidden.stat().st_ino
    hidden.rename(path)
    return PublishedSocket(path, inode)


@asynccontextmanager
async def socket_files_lock(paths: SocketPaths, timeout: float = 5.0) -> AsyncIterator[None]:
    """Exclude other instances that publish or remove sockets, so that no live socket is removed as dead.

    Continues without the lock after `timeout` seconds: an instance that is stopped while it holds the lock must not
    block this one.
    """
    descriptor = os.open(paths.sockets_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + timeout
        while not _try_lock(descriptor) and time.monotonic() < end:  # noqa: ASYNC110 (the holder is another process)
            await asyncio.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove_dead_sockets(paths: SocketPaths) -> list[Path]:
    """Remove the sockets of dead instances. Returns the removed paths."""
    dead = [path for path in paths.siblings() if is_dead(path)]
    for path in dead:
        path.unlink(missing_ok=True)
    return dead


def has_other_instance(paths: SocketPaths) -> bool:
    """Whether the kubelet can register another instance of the driver."""
    others = (path for path in paths.siblings() if path.parent == paths.registry and path != paths.registration)
    return any(not is_dead(path) for path in others)


def is_dead(path: Path) -> bool:
    """Whether it is a socket file without a listener."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
            return probe.connect_ex(str(path)) == errno.ECONNREFUSED
    except FileNotFoundError:
        return False
