"""The sqlite file behind the store: opening, migrating, setting aside, reading and writing rows.

It has two connections, because one that commits is locked until the disk has answered; in WAL mode a reader does not
wait for a writer. The version of the file is sqlite's own `user_version`. It stays at 1 as long as the previous driver
has to open the file: new things go into the rows.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dranet.core.errors import DranetError
from dranet.core.logs import get_logger
from dranet.node.records import plan as plans
from dranet.node.records.plan import ClaimPlan, UnreadablePlan

log = get_logger(__name__)

_WRITE_SECONDS = 1.0
_READ_SECONDS = 0.1
"""How long to wait for another process; a hook has little time, and can use the plans in memory."""
_NEVER_READ = -1


class StoreError(DranetError):
    """The store cannot be opened or written."""


class DamagedStore(StoreError):
    """The open file is not a usable database any more, or another process has replaced it."""


_NOT_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
    }
)
"""Errors of the machine or of another process, after which the file is as it was."""
_READ_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)
"""UnicodeDecodeError: sqlite's message quotes a damaged schema."""


def _is_damage(error: Exception) -> bool:
    """Whether the content of the file is wrong. Errors of the Python module itself, such as text that is not UTF-8,
    have no code."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code == sqlite3.SQLITE_IOERR_SHORT_READ or code & 0xFF not in _NOT_DAMAGE


def _create(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE claims (uid TEXT PRIMARY KEY, pod_uid TEXT NOT NULL, plan BLOB NOT NULL)")


Migration = Callable[[sqlite3.Connection], None]

MIGRATIONS: tuple[Migration, ...] = (_create,)
"""Step N migrates a file of version N to version N+1."""


class Row(NamedTuple):
    """One plan in the file."""

    uid: str
    pod_uid: str
    raw: bytes


class Unreadable(NamedTuple):
    """A row that this driver cannot decode, with the parts of it that it can."""

    pod_uid: str
    reason: str
    devices: Mapping[str, Mapping[str, Any]] = {}
    """The snapshots of its devices by name, where they can be read: no other claim gets these devices."""


class _DeviceNames(msgspec.Struct):
    device: str
    snapshot: dict[str, Any] = {}
    mode: str = msgspec.field(name="use", default="")


class _PlanDevices(msgspec.Struct):
    devices: list[_DeviceNames] = []


def decode_rows(
    rows: Iterable[Row], check: Callable[[ClaimPlan], None]
) -> tuple[dict[str, ClaimPlan], dict[str, Unreadable]]:
    """The plans, and the unreadable rows; `check` raises UnreadablePlan for features it does not know."""
    found: dict[str, ClaimPlan] = {}
    lost: dict[str, Unreadable] = {}
    for row in rows:
        try:
            plan = plans.decode(row.raw)
            check(plan)
            found[row.uid] = plan
        except UnreadablePlan as error:
            lost[row.uid] = Unreadable(row.pod_uid, str(error), _held_devices(row.raw))
    return found, lost


def _held_devices(raw: bytes) -> dict[str, Mapping[str, Any]]:
    try:
        held = [device for device in msgspec.json.decode(raw, type=_PlanDevices).devices if device.mode != "admin"]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return {device.device: device.snapshot for device in held}


class StoreFile:
    """An open file of rows. Not thread-safe, except that one thread may read while another writes."""

    def __init__(self, path: str, migrations: Sequence[Migration]) -> None:
        self.path = path
        self.set_aside: str | None = None
        self._mark = Path(f"{path}.incomplete")
        self._migrations = migrations
        self._version = _NEVER_READ
        """The version of the file in memory, by the reader connection's count."""
        self._version_of_others = _NEVER_READ
        """The same by the writer connection's count, which leaves out its own writes."""
        self._folder_is_synced = False
        self._waits_for_disk: bool | None = None
        self._writer = self._open()
        self._reader = _connect(path, _READ_SECONDS)
        self._inode = _inode(path)

    @property
    def is_complete(self) -> bool:
        return not self._mark.exists()

    def mark_complete(self) -> None:
        self._mark.unlink(missing_ok=True)
        self.set_aside = None

    def changed_rows(self) -> Mapping[str, Row] | None:
        """Every row, if this or another process wrote since the last call; else None."""
        if _inode(self.path) != self._inode:
            raise DamagedStore(f"another process has replaced or deleted {self.path}")
        try:
            version = _data_version(self._reader)
            if version == self._version:
                return None
            rows = _rows(self._reader)
        except _READ_ERRORS as error:
            self._raise_if_damaged(error)
            log.warning("Cannot read the store; using the plans in memory", path=self.path, error=error)
            return None
        self._version = version
        return rows

    def _raise_if_damaged(self, error: Exception) -> None:
        if _is_damage(error):
            raise DamagedStore(f"{self.path} is damaged: {error}") from error

    def replace(self, rows: Iterable[Row], error: Exception, *, is_complete: bool) -> None:
        """Set the damaged file aside and write these rows to a new one. Where another process has done so already, use
        its file: it has the same rows."""
        self.close()
        if _inode(self.path) in (None, self._inode):
            self._set_aside(error)
            self._writer = self._load()
            self._waits_for_disk = None
            for row in rows:
                self.put(row, wait_for_disk=True)
            if is_complete:
                self.mark_complete()
        else:
            self._writer = self._load()
        self._reader = _connect(self.path, _READ_SECONDS)
        self._inode = _inode(self.path)
        self._version = self._version_of_others = _NEVER_READ
        self._folder_is_synced = False

    def version(self) -> int | None:
        """The current version of the file; None where it cannot be read."""
        with contextlib.suppress(*_READ_ERRORS):
            return _data_version(self._reader)
        return None

    def skip_own_write(self, version: int) -> None:
        """The last write was our own, and `version` was read after it: unless another process wrote too, the next read
        can skip it."""
        try:
            # Asked last, so that a write of another process in the meantime shows in one of the two counts.
            of_others = _data_version(self._writer)
        except _READ_ERRORS:
            return
        if of_others != self._version_of_others:
            self._version_of_others, self._version = of_others, _NEVER_READ
        elif self._version != _NEVER_READ:
            self._version = version

    def put(self, row: Row, *, wait_for_disk: bool) -> None:
        """Write a row. It survives a crash of this process, and with `wait_for_disk` one of the machine."""
        self._write("INSERT OR REPLACE INTO claims (uid, pod_uid, plan) VALUES (?, ?, ?)", [row], wait_for_disk)

    def delete(self, uid: str) -> None:
        """Delete a row without waiting for the disk."""
        self._write("DELETE FROM claims WHERE uid = ?", [(uid,)], False)

    def delete_unchanged(self, rows: Sequence[Row]) -> None:
        """Delete these rows unless they changed: another driver may have prepared the claim again in the meantime."""
        self._write("DELETE FROM claims WHERE uid = ? AND plan = ?", [(row.uid, row.raw) for row in rows], False)

    def flush(self) -> None:
        """Sync to disk what was written without waiting; it is in the write-ahead log, in order."""
        # The folder too, once: it holds the log, which was created when the file was opened.
        paths = [f"{self.path}-wal", *([] if self._folder_is_synced else [str(Path(self.path).parent)])]
        try:
            for path in paths:
                with contextlib.suppress(FileNotFoundError), _opened(path) as descriptor:
                    os.fsync(descriptor)
            self._folder_is_synced = True
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}; is the disk full or broken?") from error

    def _write(self, statement: str, values: Sequence[tuple[object, ...]], wait_for_disk: bool) -> None:
        try:
            if wait_for_disk != self._waits_for_disk:
                self._writer.execute(f"PRAGMA synchronous = {'FULL' if wait_for_disk else 'NORMAL'}")
                self._waits_for_disk = wait_for_disk
            with self._writer:
                self._writer.executemany(statement, values)
        except _READ_ERRORS as error:
            self._raise_if_damaged(error)
            raise StoreError(f"cannot write {self.path}: {error}; is the disk full or read-only?") from error

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    def _open(self) -> sqlite3.Connection:
        try:
            Path(self.path).parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            if _is_empty(self.path):
                self._mark.touch()
            elif self._mark.exists():
                self.set_aside = self._mark.read_text() or None
        except OSError as error:
            raise StoreError(f"cannot use the folder of {self.path}: {error.strerror}; set --db-path") from error
        try:
            return self._load()
        except _READ_ERRORS as error:
            if not _is_damage(error):
                raise StoreError(f"cannot open {self.path}: {error}; is another driver using it?") from error
            self._set_aside(error)
            return self._load()

    def _set_aside(self, error: Exception) -> None:
        self.set_aside = _free_name(self.path)
        log.error(
            "Store is damaged; kept a copy and started a new one", path=self.path, kept=self.set_aside, error=error
        )
        self._mark.write_text(self.set_aside)
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.path, self.set_aside)
        for suffix in ("-wal", "-shm"):
            Path(self.path + suffix).unlink(missing_ok=True)

    def _load(self) -> sqlite3.Connection:
        db = _connect(self.path, _WRITE_SECONDS)
        try:
            os.chmod(self.path, 0o600)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            _migrate(db, self.path, self._migrations)
            _rows(db)  # finds a damaged page now, not in a hook
        except BaseException:
            db.close()
            raise
        return db


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _connect(path: str, patience: float) -> sqlite3.Connection:
    db = sqlite3.connect(path, check_same_thread=False, timeout=patience)
    try:
        db.execute("PRAGMA cache_size = -128")  # KiB; the default of 2 MiB would fill over the months
    except BaseException:  # the first access: this may not be an sqlite file
        db.close()
        raise
    return db


def _data_version(db: sqlite3.Connection) -> int:
    """A number that changes when another connection has written."""
    (version,) = db.execute("PRAGMA data_version").fetchone()
    return int(version)


def _rows(db: sqlite3.Connection) -> dict[str, Row]:
    found = db.execute("SELECT uid, pod_uid, plan FROM claims ORDER BY uid").fetchall()
    if not all(isinstance(text, str) for row in found for text in row[:2]):
        raise sqlite3.DatabaseError("a UID is not text")
    return {uid: Row(uid, pod_uid, raw if isinstance(raw, bytes) else str(raw).encode()) for uid, pod_uid, raw in found}


def read_file(path: str) -> dict[str, Row]:
    """The rows of a driver's file, opened read-only; empty where there is no file."""
    if _is_empty(path):
        return {}
    try:
        with contextlib.closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as db:
            return _rows(db)
    except _READ_ERRORS as error:
        raise StoreError(f"cannot read {path}: {error}; is it the driver's store, and may you read it?") from error


def _migrate(db: sqlite3.Connection, path: str, migrations: Sequence[Migration]) -> None:
    """Bring the file to the newest version, one transaction for each step."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > len(migrations):
        raise StoreError(f"{path} was written by a newer driver (version {version}); run that driver, or set --db-path")
    if version < 0:
        raise sqlite3.DatabaseError(f"user_version is {version}")
    for number in range(version, len(migrations)):
        with db:
            db.execute("BEGIN IMMEDIATE")
            migrations[number](db)
            db.execute(f"PRAGMA user_version = {number + 1}")


def _is_empty(path: str) -> bool:
    return not os.path.exists(path) or os.path.getsize(path) == 0


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


def _free_name(path: str) -> str:
    target = f"{path}.unreadable-{time.strftime('%Y%m%dT%H%M%S')}"
    while os.path.exists(target):
        target += "x"
    return target
