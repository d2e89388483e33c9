"""The sqlite file behind the store: opening, migrating, setting aside, and one connection each to write and to look.

Two connections, because one that commits is locked until the disk has answered; in WAL mode who looks does not wait for
who writes. The version of the file is sqlite's own `user_version`. It stays at 1 as long as the driver before this one
has to open the file: what is new goes into the rows.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from dranet.driver.records.rows import Row
from dranet.model.errors import DranetError

log = logging.getLogger(__name__)

WRITE_SECONDS = 1.0
LOOK_SECONDS = 0.1
"""How long to wait for another process; a hook that looks has little time, and what we know will do."""


_UNREAD = -1


class StoreError(DranetError):
    """The store cannot be opened or written."""


def _create(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE claims (uid TEXT PRIMARY KEY, pod_uid TEXT NOT NULL, plan BLOB NOT NULL)")


Migration = Callable[[sqlite3.Connection], None]

MIGRATIONS: tuple[Migration, ...] = (_create,)
"""Step N brings a file of version N to version N+1."""


class StoreFile:
    """An open file of rows. Not for several threads at once, except that one may look while another writes."""

    def __init__(self, path: str, migrations: Sequence[Migration]) -> None:
        self.path = path
        self.set_aside: str | None = None
        self._mark = Path(f"{path}.incomplete")
        self._migrations = migrations
        self._version = _UNREAD
        """The state of the file that is known, as the connection that looks counts it."""
        self._of_others = _UNREAD
        """What others have written, as the connection that writes counts it: not its own."""
        self._is_in_its_folder = False
        self._waits: bool | None = None
        self._writer = self._open()
        self._reader = _connect(path, LOOK_SECONDS)

    @property
    def is_complete(self) -> bool:
        return not self._mark.exists()

    def completed(self) -> None:
        self._mark.unlink(missing_ok=True)
        self.set_aside = None

    def changed_rows(self) -> Mapping[str, Row] | None:
        """Every row, if anything was written since the last call, by us or by another process; else None."""
        try:
            version = _data_version(self._reader)
            if version == self._version:
                return None
            rows = _rows(self._reader)
        except sqlite3.OperationalError as error:
            log.warning("%s cannot be read just now (%s); going on with what is known", self.path, error)
            return None
        self._version = version
        return rows

    def version(self) -> int | None:
        """The state of the file now; None where nobody can say."""
        with contextlib.suppress(sqlite3.OperationalError):
            return _data_version(self._reader)
        return None

    def know_own_write(self, version: int) -> None:
        """What was just written is no news, and `version` was asked for after it: if nobody else has written, the next
        look need not read everything again. Others are asked about last, so that what they write meanwhile is seen in
        one of the two."""
        try:
            of_others = _data_version(self._writer)
        except sqlite3.OperationalError:
            return
        if of_others != self._of_others:
            self._of_others, self._version = of_others, _UNREAD
        elif self._version != _UNREAD:
            self._version = version

    def put(self, row: Row, *, wait_for_disk: bool) -> None:
        """Write a row. It survives this process at once, and the machine when `wait_for_disk` was asked."""
        self._write("INSERT OR REPLACE INTO claims (uid, pod_uid, plan) VALUES (?, ?, ?)", [row], wait_for_disk)

    def delete(self, uid: str) -> None:
        """Take a row away, without waiting for the disk."""
        self._write("DELETE FROM claims WHERE uid = ?", [(uid,)], False)

    def strike(self, rows: Sequence[Row]) -> None:
        """Take rows away that are still as they are here: another driver may have prepared a claim anew meanwhile."""
        self._write("DELETE FROM claims WHERE uid = ? AND plan = ?", [(row.uid, row.raw) for row in rows], False)

    def settle(self) -> None:
        """What was written without waiting is in the log beside the file, in order: the disk gets that."""
        # The folder too, once: that is where the log stands, and it was made when the file was opened.
        places = [f"{self.path}-wal", *([] if self._is_in_its_folder else [str(Path(self.path).parent)])]
        try:
            for place in places:
                with contextlib.suppress(FileNotFoundError), _opened(place) as descriptor:
                    os.fsync(descriptor)
            self._is_in_its_folder = True
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}; is the disk full or broken?") from error

    def _write(self, statement: str, values: Sequence[tuple[object, ...]], wait_for_disk: bool) -> None:
        try:
            if wait_for_disk != self._waits:
                self._writer.execute(f"PRAGMA synchronous = {'FULL' if wait_for_disk else 'NORMAL'}")
                self._waits = wait_for_disk
            with self._writer:
                self._writer.executemany(statement, values)
        except sqlite3.Error as error:
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
            raise StoreError(f"cannot use the folder of {self.path}: {error.strerror}; see --db-path") from error
        try:
            return self._load()
        except sqlite3.OperationalError as error:
            raise StoreError(f"cannot open {self.path}: {error}; does another driver hold it?") from error
        except sqlite3.DatabaseError as error:
            self._move_away(error)
            return self._load()

    def _move_away(self, error: Exception) -> None:
        self.set_aside = _free_name(self.path)
        log.error(
            "the store %s cannot be read (%s); it is kept as %s, and a new one begins", self.path, error, self.set_aside
        )
        self._mark.write_text(self.set_aside)
        os.replace(self.path, self.set_aside)
        for suffix in ("-wal", "-shm"):
            Path(self.path + suffix).unlink(missing_ok=True)

    def _load(self) -> sqlite3.Connection:
        db = _connect(self.path, WRITE_SECONDS)
        try:
            os.chmod(self.path, 0o600)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            migrate(db, self.path, self._migrations)
            _rows(db)  # a page that cannot be read is found now, not in a hook
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
    except BaseException:  # the first look at the file: it may be none of ours
        db.close()
        raise
    return db


def _data_version(db: sqlite3.Connection) -> int:
    """A number that changes when anybody else than this connection has written."""
    (version,) = db.execute("PRAGMA data_version").fetchone()
    return int(version)


def _rows(db: sqlite3.Connection) -> dict[str, Row]:
    found = db.execute("SELECT uid, pod_uid, plan FROM claims ORDER BY uid")
    return {uid: Row(uid, pod_uid, raw if isinstance(raw, bytes) else str(raw).encode()) for uid, pod_uid, raw in found}


def rows_of(path: str) -> dict[str, Row]:
    """The rows of a driver's file, which is not changed; none where there is no file."""
    if _is_empty(path):
        return {}
    try:
        with contextlib.closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as db:
            return _rows(db)
    except sqlite3.Error as error:
        raise StoreError(f"cannot read {path}: {error}; is it the driver's store, and may you read it?") from error


def migrate(db: sqlite3.Connection, path: str, migrations: Sequence[Migration]) -> None:
    """Bring the file to the newest version, one step a transaction."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > len(migrations):
        raise StoreError(f"{path} was written by a newer driver (version {version}); use that one, or set --db-path")
    for number in range(version, len(migrations)):
        with db:
            db.execute("BEGIN IMMEDIATE")
            migrations[number](db)
            db.execute(f"PRAGMA user_version = {number + 1}")


def _is_empty(path: str) -> bool:
    return not os.path.exists(path) or os.path.getsize(path) == 0


def _free_name(path: str) -> str:
    target = f"{path}.unreadable-{time.strftime('%Y%m%dT%H%M%S')}"
    while os.path.exists(target):
        target += "x"
    return target
