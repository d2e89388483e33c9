"""The process on its node: log output, heap settings, and which folders belong to the host.

Log lines are text by default and JSON by flag, on standard error. Both forms carry the same fields
(`dranet.core.logs`): those of the line, then those of its context. `pod` and `claim` are NAMESPACE/NAME; JSON adds
`pod_uid`, `claim_uid` and `node`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import sys
import time
from pathlib import Path

from dranet.core.logs import Message, context_fields, get_logger

log = get_logger(__name__)

_DEBUG_VERBOSITY = 4
"""The verbosity from which on debug lines are logged, as in the reference driver."""
_IN_TEXT = ("pod", "claim", "device")
"""UIDs are left out of the text form: they are long, and rarely what a reader needs."""


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        level, name = record.levelname[:1], record.name.removeprefix("dranet.")
        line = f"{clock}.{int(record.msecs):03d} {level} {name}: {_with_context(record)}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = {"node": node} if node else {}

    def format(self, record: logging.LogRecord) -> str:
        message = _message(record)
        found = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message.text,
            **self._node,
            **context_fields(),
            **{key: _plain(value) for key, value in message.fields.items()},
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=False)


def _message(record: logging.LogRecord) -> Message:
    """Lines of libraries have no fields."""
    return record.msg if isinstance(record.msg, Message) else Message(record.getMessage(), {})


def _with_context(record: logging.LogRecord) -> str:
    message, context = _message(record), context_fields()
    added = {name: context[name] for name in _IN_TEXT if name in context and name not in message.fields}
    return str(Message(message.text, {**message.fields, **added}))


def _plain(value: object) -> object:
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def set_up_logging(style: str, verbosity: int, node: str = "") -> None:
    """Log to standard error; verbosity 4 and more includes debug lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(node) if style == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    # Only our own loggers: libraries log a line for every frame on a socket at DEBUG.
    logging.getLogger("dranet").setLevel(logging.DEBUG if verbosity >= _DEBUG_VERBOSITY else logging.INFO)


_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE_BUFFER = 64 * 1024
"""Buffers of this size get pages of their own, which go back to the system with them."""
_HEAP_SLACK = 128 * 1024


def limit_heap() -> None:
    """One heap for all threads, large buffers outside of it, and its free end returned early.

    The C library's defaults suit programs that allocate from many threads at once. This process mostly waits; its few
    large buffers would leave holes in the heap, which only grow over months.
    """
    c_library = ctypes.CDLL(None)
    for option, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _LARGE_BUFFER), (_TRIM_THRESHOLD, _HEAP_SLACK)):
        c_library.mallopt(option, value)


def release_startup_memory() -> None:
    """Return what only the start needed, and keep the collector away from objects that stay for months."""
    gc.collect()
    gc.freeze()
    ctypes.CDLL(None).malloc_trim(0)


_REFERENCE_SUFFIX, _OWN_SUFFIX = ".db", ".sqlite"
_SQLITE = b"SQLite format 3\0"
_CONTAINER_ROOTS = ("overlay", "aufs", "fuse.fuse-overlayfs")


def store_path(db_path: str) -> str:
    """The driver's own file for a --db-path. One that ends in .db is the reference driver's, which cannot open ours: so
    ours is next to it, and users can go back.

    A file that an earlier version of this driver put there stays. That version may have it open (two drivers overlap
    in an update, and a database that is renamed while in use is lost), and it may be installed again.
    """
    path = Path(db_path)
    if path.suffix != _REFERENCE_SUFFIX:
        return db_path
    if _is_sqlite(path):
        log.info("Using the store of an earlier version at its path", path=path)
        return db_path
    return str(path.with_suffix(_OWN_SUFFIX))


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def is_host_folder(folder: str, mountinfo: str = "/proc/self/mountinfo") -> bool:
    """Whether other processes on the node see the folder too: it is not part of a container's own root.

    True where that is unknown, as on a plain machine.
    """
    try:
        lines = Path(mountinfo).read_text().splitlines()
    except OSError:
        return True
    path, deepest, kind = Path(folder).resolve(), -1, ""
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = Path(left.split()[4].encode().decode("unicode_escape"))
        depth = len(mount.parts)
        if path.is_relative_to(mount) and depth >= deepest:
            deepest, kind = depth, right.split()[0] if depth == 1 else ""
    return kind not in _CONTAINER_ROOTS
