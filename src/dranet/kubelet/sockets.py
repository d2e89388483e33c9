"""The plugin's two sockets as files: where they are, how they appear, how they go.

The kubelet dials a registration socket the moment its file appears, so a socket is bound under a hidden name, listens,
and is then renamed into place: a file under the final name always has, or had, a listener. That makes the dead ones
easy to tell: nobody answers. Two instances of a driver run side by side during an update of its DaemonSet; each has
sockets named after its pod, and neither removes what the other put there.
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

from dranet.kubelet.handler import KubeletError

KUBELET_ROOT = Path("/var/lib/kubelet")
_UID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
# sun_path of a unix address, less the byte that ends it.
_LONGEST_PATH = 107


class SocketPaths(msgspec.Struct, frozen=True):
    """Where one instance of a driver listens. With a pod UID, two instances can be there at the same time."""

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
        """The socket files of this driver, ours and those of other instances, in order."""
        patterns = {
            self.registry: re.compile(rf"{re.escape(self.driver)}(-{_UID})?-reg\.sock"),
            self.data: re.compile(rf"dra(-{_UID})?\.sock"),
        }
        for folder, pattern in patterns.items():
            found = sorted(folder.iterdir()) if folder.is_dir() else []
            yield from (path for path in found if pattern.fullmatch(path.name))


class PublishedSocket(msgspec.Struct, frozen=True):
    """A socket file we put there, told apart from a namesake by its inode."""

    path: Path
    inode: int

    def remove(self) -> None:
        """Remove the file if it is still ours: a successor with the same name may have taken its place."""
        try:
            if self.path.stat().st_ino == self.inode:
                self.path.unlink()
        except FileNotFoundError:
            pass


async def publish(path: Path, listen: Callable[[Path], Awaitable[None]]) -> PublishedSocket:
    """Let `listen` bind a hidden path, then put the socket in place, over a dead predecessor of the same name."""
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise KubeletError(f"socket path {path} is longer than {_LONGEST_PATH} bytes; use a shorter kubelet root")
    hidden = path.with_name(f".{os.getpid()}.new")
    hidden.unlink(missing_ok=True)
    await listen(hidden)
    inode = hidden.stat().st_ino
    hidden.rename(path)
    return PublishedSocket(path, inode)


@asynccontextmanager
async def sole_editor(paths: SocketPaths, patience: float = 5.0) -> AsyncIterator[None]:
    """No other instance adds or sweeps sockets meanwhile, so a dead one cannot come to life between look and unlink.

    An instance that was stopped while it held the lock must not keep us from starting: past `patience` we go on.
    """
    descriptor = os.open(paths.sockets_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + patience
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


def sweep(paths: SocketPaths) -> list[Path]:
    """Remove the sockets of instances that died without cleaning up. Returns what was removed."""
    dead = [path for path in paths.siblings() if is_dead(path)]
    for path in dead:
        path.unlink(missing_ok=True)
    return dead


def has_living_sibling(paths: SocketPaths) -> bool:
    """Whether another instance of the driver can be found by the kubelet."""
    others = (path for path in paths.siblings() if path.parent == paths.registry and path != paths.registration)
    return any(not is_dead(path) for path in others)


def is_dead(path: Path) -> bool:
    """Whether this is a socket file that nobody listens on."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
            return probe.connect_ex(str(path)) == errno.ECONNREFUSED
    except FileNotFoundError:
        return False
