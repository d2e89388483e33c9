"""Reading sysfs below a root that can be set, without ever leaving it.

The tree changes while it is read and parts may be forbidden: a missing file reads as None, anything else that goes
wrong is noted in `problems` and reads as None too. Links are followed by hand and only inside the root, so a root
that somebody made or mounted cannot lead us to another part of the machine. Make one `Sysfs` for a scan: it remembers
resolved folders.
"""

from __future__ import annotations

import copy
import errno
import os
import posixpath
import re

from dranet.model.errors import NotFound

_VANISHED = {errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.EINVAL, errno.ESRCH}
_LIMIT = 65536
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LINKS = 40
_NUMBERS = re.compile(r"(\d+)")


class Sysfs:
    """A reader of one sysfs tree. Paths are relative to the root: `class/net`, `devices/pci0000:00`."""

    def __init__(self, root: str = "/sys") -> None:
        # An open folder has no path of its own: its link in /proc is all there is.
        self.root = root if root.startswith("/proc/self/fd/") else os.path.realpath(root)
        self._prefixes = tuple(dict.fromkeys(f"{top}/" for top in (self.root, os.path.abspath(root), "/sys")))
        if not os.path.isdir(self.root):
            raise NotFound(f"sysfs is expected at {root}, but there is no such directory; check where it is mounted")
        if not os.access(self.root, os.R_OK | os.X_OK):
            raise NotFound(f"sysfs at {root} cannot be read: Permission denied; run as root")
        self.problems: list[str] = []
        self._folders: dict[str, str | None] = {"": ""}

    def anew(self) -> Sysfs:
        """The same tree with nothing remembered, for whoever keeps a reader over a longer time."""
        made = copy.copy(self)
        made.problems, made._folders = [], {"": ""}
        return made

    def read(self, *path: str) -> str | None:
        """The text of a file without surrounding white space; None when it is not there or cannot be read."""
        data = self.read_bytes(*path)
        return None if data is None else data.decode(errors="replace").strip(" \t\r\n\0")

    def read_bytes(self, *path: str) -> bytes | None:
        """A file as it is; None where it is missing, and where it cannot be read, which is noted."""
        joined = "/".join(path)
        folder, _, name = joined.rpartition("/")
        where = self._real_folder(folder)
        if where is None:
            return None
        data = self._read_file(f"{self.root}/{where}/{name}", joined)
        if data is not _IS_LINK:
            return data
        target = self.resolve(joined)
        return None if target is None else self._read_file(f"{self.root}/{target}", joined)

    def open(self, *path: str) -> int | None:
        """A descriptor of a file, for who reads it often; None when it is not there or cannot be opened."""
        joined = "/".join(path)
        folder, _, name = joined.rpartition("/")
        where = self._real_folder(folder)
        if where is None:
            return None
        try:
            return os.open(f"{self.root}/{where}/{name}", _READING)
        except OSError as error:
            self._note(joined, error)
            return None

    def read_number(self, *path: str) -> int | None:
        """A decimal or 0x number; None when the file is not there or holds something else."""
        content = self.read(*path)
        if content is None:
            return None
        try:
            return int(content, 16 if content.startswith("0x") else 10)
        except ValueError:
            self.problems.append(f"{'/'.join(path)}: expected a number, found {content[:40]!r}")
            return None

    def names(self, *path: str) -> list[str]:
        """The entries of a folder, numbers in order (`umad2` before `umad10`); empty when it is not there."""
        return sorted(self.entries(*path), key=natural_key)

    def entries(self, *path: str) -> set[str]:
        """The entries of a folder in no order, for large folders; empty when it is not there."""
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
        """Whether the path leads anywhere inside the root."""
        return self.resolve("/".join(path)) is not None

    def resolve(self, path: str) -> str | None:
        """The real path below the root, all links followed; None when it is not there or leads outside."""
        return self._resolve(path, _LINKS)

    def link_target(self, path: str) -> str | None:
        """Where a link points, its folder resolved and inside the root; half the price of `resolve`, one link deep."""
        folder, _, name = path.rpartition("/")
        where = self._real_folder(folder)
        if where is None:
            return None
        try:
            target = os.readlink(f"{self.root}/{where}/{name}")
        except OSError as error:
            if error.errno != errno.EINVAL:
                self._note(path, error)
                return None
            return f"{where}/{name}"
        joined = self._inside(path, where, target)
        if joined is None:
            return None
        last_folder, _, last = joined.rpartition("/")
        real = self._real_folder(last_folder)
        return None if real is None else f"{real}/{last}"

    def link_name(self, path: str) -> str | None:
        """The last part of a link's target, whether that is there or not; the own name where it is no link."""
        folder, _, name = path.rpartition("/")
        where = self._real_folder(folder)
        if where is None:
            return None
        try:
            return posixpath.basename(os.readlink(f"{self.root}/{where}/{name}"))
        except OSError as error:
            if error.errno == errno.EINVAL:
                return name
            self._note(path, error)
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
        """One component further from a real folder."""
        path = f"{folder}/{name}" if folder else name
        if name in ("", ".", ".."):
            self._outside(path)
            return None
        try:
            target = os.readlink(f"{self.root}/{path}")
        except OSError as error:
            if error.errno == errno.EINVAL:  # no link: a file or folder of its own
                return path
            self._note(path, error)
            return None
        if links_left == 0:
            self._outside(path)
            return None
        joined = self._inside(path, folder, target)
        return None if joined is None else self._resolve(joined, links_left - 1)

    def _inside(self, path: str, folder: str, target: str) -> str | None:
        """A link's target as a path below the root; None, with a problem noted, when it is not below.

        A copied tree may have kept absolute links: there /sys is the root.
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
        """What is not there is not worth a word; everything else is."""
        if error.errno not in _VANISHED:
            self.problems.append(f"{path}: {error.strerror}")

    def _outside(self, path: str) -> None:
        self.problems.append(f"{path}: leads outside {self.root}; not followed")


_IS_LINK = b"<a link>"


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts `eth2` before `eth10`."""
    return tuple((0, int(part), part) if part.isdigit() else (1, 0, part) for part in _NUMBERS.split(name) if part)
