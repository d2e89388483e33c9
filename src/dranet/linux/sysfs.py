"""Reading sysfs below a configurable root, without leaving that root.

The tree changes while it is read, and parts may be forbidden: a missing file reads as None; any other error is added to
`problems` and reads as None too. Links are followed here and only inside the root, so that a copied or mounted tree
cannot lead to other parts of the machine. Create one `Sysfs` for each scan: it caches resolved folders.

RDMA devices that were moved into another network namespace are visible only in a sysfs that was mounted there:
`mount_sysfs` does that without a mount point, so that nothing has to be unmounted and other processes do not see it.
"""

from __future__ import annotations

import copy
import ctypes
import errno
import os
import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager

from dranet.core.errors import KernelError, NotFound
from dranet.linux.namespaces import run_inside

_VANISHED = {errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.EINVAL, errno.ESRCH}
_LIMIT = 65536
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LINKS = 40
_NUMBERS = re.compile(r"(\d+)")
# System calls since Linux 5.2, with the same numbers on every architecture.
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_CLOEXEC, _CMD_CREATE = 1, 6
_SYSFS_MAGIC = 0x62656572
_libc = ctypes.CDLL(None, use_errno=True)


class Sysfs:
    """A reader of one sysfs tree. Paths are relative to the root: `class/net`, `devices/pci0000:00`."""

    def __init__(self, root: str = "/sys") -> None:
        # A detached mount has no path except its link in /proc, which realpath() cannot resolve.
        self.root = root if root.startswith("/proc/self/fd/") else os.path.realpath(root)
        self._prefixes = tuple(dict.fromkeys(f"{top}/" for top in (self.root, os.path.abspath(root), "/sys")))
        if not os.path.isdir(self.root):
            raise NotFound(f"no directory {root}: sysfs is expected there; check where it is mounted")
        if not os.access(self.root, os.R_OK | os.X_OK):
            raise NotFound(f"cannot read sysfs at {root}: Permission denied; run as root")
        self.problems: list[str] = []
        self._folders: dict[str, str | None] = {"": ""}

    def without_cache(self) -> Sysfs:
        """A reader of the same tree with an empty cache, for callers that keep a reader for a longer time."""
        fresh = copy.copy(self)
        fresh.problems, fresh._folders = [], {"": ""}
        return fresh

    def read(self, *path: str) -> str | None:
        """The text of a file without surrounding white space; None if it is missing or cannot be read."""
        data = self.read_bytes(*path)
        return None if data is None else data.decode(errors="replace").strip(" \t\r\n\0")

    def read_bytes(self, *path: str) -> bytes | None:
        """The content of a file; None if it is missing or cannot be read."""
        joined = "/".join(path)
        place = self._place(joined)
        if place is None:
            return None
        data = self._read_file(f"{self.root}/{place}", joined)
        if data is not _IS_LINK:
            return data
        target = self.resolve(joined)
        return None if target is None else self._read_file(f"{self.root}/{target}", joined)

    def open(self, *path: str) -> int | None:
        """A descriptor of a file, for callers that read it often; None if it is missing or cannot be opened."""
        joined = "/".join(path)
        place = self._place(joined)
        if place is None:
            return None
        try:
            return os.open(f"{self.root}/{place}", _READING)
        except OSError as error:
            self._note(joined, error)
            return None

    def read_number(self, *path: str) -> int | None:
        """A decimal or 0x number; None if the file is missing or has other content."""
        content = self.read(*path)
        if content is None:
            return None
        try:
            return int(content, 16 if content.startswith("0x") else 10)
        except ValueError:
            self.problems.append(f"{'/'.join(path)}: expected a number, found {content[:40]!r}")
            return None

    def names(self, *path: str) -> list[str]:
        """The entries of a folder in natural order (`umad2` before `umad10`); empty if it is missing."""
        return sorted(self.entries(*path), key=natural_key)

    def entries(self, *path: str) -> set[str]:
        """The entries of a folder, unordered, for large folders; empty if it is missing."""
        joined = "/".join(path)
        where = self._real_folder(joined)
        if where is None:
            return set()
        try:
            return set(os.listdir(f"{self.root}/{where}"))
        except OSError as error:
            self._note(joined, error)
            return set()

    def exists(self, *path: str) -> bool:
        """Whether the path exists inside the root."""
        return self.resolve("/".join(path)) is not None

    def resolve(self, path: str) -> str | None:
        """The path below the root with all links resolved; None if it is missing or outside."""
        return self._resolve(path, _LINKS)

    def link_target(self, path: str) -> str | None:
        """The target of a link inside the root, with one link resolved; half the cost of `resolve`."""
        place = self._place(path)
        target = self._link(place, path)
        if place is None or not target:
            return None if target is None else place
        joined = self._inside(path, place.rpartition("/")[0], target)
        return None if joined is None else self._place(joined)

    def link_name(self, path: str) -> str | None:
        """The base name of a link's target, which need not exist; the own name if it is not a link."""
        target = self._link(self._place(path), path)
        return None if target is None else posixpath.basename(target or path)

    def _place(self, path: str) -> str | None:
        """The path below the root with the links of its folder resolved, but not the last component."""
        folder, _, name = path.rpartition("/")
        where = self._real_folder(folder)
        return None if where is None else f"{where}/{name}" if where else name

    def _link(self, place: str | None, shown: str) -> str | None:
        """The target of a link; empty if it is not a link, None if it is missing or cannot be read."""
        if place is None:
            return None
        try:
            return os.readlink(f"{self.root}/{place}")
        except OSError as error:
            if error.errno == errno.EINVAL:
                return ""
            self._note(shown, error)
            return None

    def _resolve(self, path: str, links_left: int) -> str | None:
        folder, _, name = path.rpartition("/")
        where = self._real_folder(folder, links_left)
        return None if where is None else self._step(where, name, links_left)

    def _real_folder(self, path: str, links_left: int = _LINKS) -> str | None:
        if path not in self._folders:
            self._folders[path] = self._resolve(path, links_left)
        return self._folders[path]

    def _step(self, folder: str, name: str, links_left: int) -> str | None:
        """Resolve one component of a path below a resolved folder."""
        path = f"{folder}/{name}" if folder else name
        if name in ("", ".", ".."):
            self._outside(path)
            return None
        target = self._link(path, path)
        if not target:
            return None if target is None else path
        if links_left == 0:
            self._outside(path)
            return None
        joined = self._inside(path, folder, target)
        return None if joined is None else self._resolve(joined, links_left - 1)

    def _inside(self, path: str, folder: str, target: str) -> str | None:
        """A link's target as a path below the root; None, and a problem, if it is outside.

        A copied tree may contain absolute links: /sys means the root there.
        """
        if target.startswith("/"):
            prefix = next((prefix for prefix in self._prefixes if target.startswith(prefix)), None)
            if prefix is None:
                self._outside(path)
                return None
            target, folder = target[len(prefix) :], ""
        joined = posixpath.normpath(posixpath.join(folder, target))
        if joined == ".." or joined.startswith("../"):
            self._outside(path)
            return None
        return joined

    def _read_file(self, full: str, shown: str) -> bytes | None:
        try:
            fd = os.open(full, _READING)
        except OSError as error:
            if error.errno == errno.ELOOP:
                return _IS_LINK
            self._note(shown, error)
            return None
        try:
            return os.read(fd, _LIMIT)
        except OSError as error:
            self._note(shown, error)
            return None
        finally:
            os.close(fd)

    def _note(self, path: str, error: OSError) -> None:
        # Missing files are normal: hardware comes and goes during a scan.
        if error.errno not in _VANISHED:
            self.problems.append(f"{path}: {error.strerror}")

    def _outside(self, path: str) -> None:
        self.problems.append(f"{path}: points outside {self.root}; not followed")


_IS_LINK = b"<a link>"


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts `eth2` before `eth10`."""
    return tuple((0, int(part), part) if part.isdigit() else (1, 0, part) for part in _NUMBERS.split(name) if part)


def is_sysfs(root: str) -> bool:
    """Whether the kernel's sysfs is mounted there, and not a copied tree, which does not show other namespaces."""
    found = ctypes.create_string_buffer(256)
    return _libc.statfs(os.fsencode(root), found) == 0 and ctypes.c_long.from_buffer(found).value == _SYSFS_MAGIC


@contextmanager
def mount_sysfs(namespace_fd: int) -> Iterator[Sysfs]:
    """The sysfs of a network namespace; raises KernelError if mounting is not permitted."""
    fd = run_inside(namespace_fd, _mount)
    try:
        yield Sysfs(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def _mount() -> int:
    opened = _call(_FSOPEN, ctypes.c_char_p(b"sysfs"), _CLOEXEC)
    try:
        _call(_FSCONFIG, opened, _CMD_CREATE, None, None, 0)
        return _call(_FSMOUNT, opened, _CLOEXEC, 0)
    finally:
        os.close(opened)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise KernelError(f"cannot mount the sysfs of a network namespace: {os.strerror(ctypes.get_errno())}")
    return result
