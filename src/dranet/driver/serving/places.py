"""Where things lie on a node: our store beside the reference driver's, and whether a folder is the host's at all."""

from __future__ import annotations

import logging
from pathlib import Path

log = logging.getLogger(__name__)

_THEIRS, _OURS = ".db", ".sqlite"
_SQLITE = b"SQLite format 3\0"
_CONTAINER_ROOTS = ("overlay", "aufs", "fuse.fuse-overlayfs")


def own_store(db_path: str) -> str:
    """Our file for a --db-path. One that ends in .db is the reference driver's, which cannot open ours: so ours lies
    beside it, and people can go back.

    A file of ours that an earlier version put there stays where it is. That version may have it open (two drivers
    overlap in an update, and a database that is renamed under its user is lost), and it may come back and look there.
    """
    theirs = Path(db_path)
    if theirs.suffix != _THEIRS:
        return db_path
    if _is_sqlite(theirs):
        log.info("the store of an earlier version of this driver is at %s and stays there", theirs)
        return db_path
    return str(theirs.with_suffix(_OURS))


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def is_hosts(folder: str, mountinfo: str = "/proc/self/mountinfo") -> bool:
    """Whether a folder is one that others on the node see too: not part of a container's own root.

    Where nothing can be said, as on a plain machine, it is.
    """
    try:
        lines = Path(mountinfo).read_text().splitlines()
    except OSError:
        return True
    path, best, kind = Path(folder).resolve(), -1, ""
    for line in lines:
        left, _, right = line.partition(" - ")
        place = Path(left.split()[4].encode().decode("unicode_escape"))
        depth = len(place.parts)
        if path.is_relative_to(place) and depth >= best:
            best, kind = depth, right.split()[0] if depth == 1 else ""
    return kind not in _CONTAINER_ROOTS
