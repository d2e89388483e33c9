"""The durable store: plans by claim UID in sqlite, on disk before prepare answers.

Everything is also held in memory, so reading costs next to nothing in a hook; writing goes to disk first. During a
rolling update two drivers share the file: each notices the other's commits and reads again. A file that cannot be read
is set aside, never deleted. A store that begins empty, for this or any other reason, is incomplete until the daemon has
rebuilt what it can from the API server, the kernel and the runtime; a mark beside the file outlives restarts.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from dranet.driver.claims import plan as plans
from dranet.driver.claims.plan import ClaimPlan
from dranet.model.errors import DranetError

log = logging.getLogger(__name__)


class StoreError(DranetError):
    """The store cannot be opened or written."""


def _create(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE claims (uid TEXT PRIMARY KEY, pod_uid TEXT NOT NULL, plan BLOB NOT NULL)")


Migration = Callable[[sqlite3.Connection], None]

MIGRATIONS: tuple[Migration, ...] = (_create,)
"""Step N brings a file of version N to version N+1; the version is sqlite's own `user_version`."""


class Store:
    """Plans by claim UID. `path` None keeps them in memory only, as the reference's empty --db-path does."""

    def __init__(self, path: str | None, migrations: Sequence[Migration] = ()) -> None:
        self.path = path
        self._migrations = migrations or MIGRATIONS
        self.set_aside: str | None = None
        """Where an unreadable file went, until what was in it is rebuilt."""
        self._mark = Path(f"{path}.incomplete") if path else None
        self._is_complete = False
        self._lock = threading.RLock()
        """Held over a whole change, in memory and on disk: hooks and kubelet calls come from several threads."""
        self._plans: dict[str, ClaimPlan] = {}
        self._version = 0
        self._db = self._open() if path else None

    @property
    def is_complete(self) -> bool:
        """Whether every plan this node goes by is here; a store that began empty cannot know."""
        return self._is_complete

    def completed(self) -> None:
        """Whatever could be found is here."""
        if self._mark is not None:
            self._mark.unlink(missing_ok=True)
        self.set_aside, self._is_complete = None, True

    @property
    def plans(self) -> Mapping[str, ClaimPlan]:
        """Every plan by claim UID, as of now."""
        self._catch_up()
        return MappingProxyType(self._plans)

    def get(self, uid: str) -> ClaimPlan | None:
        return self.plans.get(uid)

    def for_pod(self, pod_uid: str) -> list[ClaimPlan]:
        """The plans of one pod, in an order that does not change: by namespace and name of the claim."""
        found = [plan for plan in self.plans.values() if plan.pod.uid == pod_uid]
        return sorted(found, key=lambda plan: (plan.namespace, plan.name, plan.uid))

    def holder(self, device: str, *, other_than: str) -> ClaimPlan | None:
        """The claim, other than the one named, that has this device."""
        for plan in self.plans.values():
            if plan.uid != other_than and any(d.device == device for d in plan.devices):
                return plan
        return None

    def put(self, plan: ClaimPlan, *, survives_reboot: bool = True) -> None:
        """Write a plan to disk, then remember it.

        Every write survives the death of this process. Waiting for the disk as well makes it survive the machine's;
        what means nothing after a reboot, such as where a namespace was, need not wait.
        """
        row = (plan.uid, plan.pod.uid, plans.encode(plan))
        statement = "INSERT OR REPLACE INTO claims (uid, pod_uid, plan) VALUES (?, ?, ?)"
        with self._lock:
            self._write(statement, row, wait_for_disk=survives_reboot)
            self._plans = {**self._plans, plan.uid: plan}

    def change(self, uid: str, *, survives_reboot: bool = True, **changes: object) -> ClaimPlan | None:
        """Replace fields of a stored plan; None where the claim is not known."""
        with self._lock:
            old = self.get(uid)
            if old is None:
                return None
            new = msgspec.structs.replace(old, **changes)
            if new != old:
                self.put(new, survives_reboot=survives_reboot)
            return new

    def delete(self, uid: str) -> None:
        with self._lock:
            self._write("DELETE FROM claims WHERE uid = ?", (uid,))
            self._plans = {known: plan for known, plan in self._plans.items() if known != uid}

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _catch_up(self) -> None:
        """Read again if another process has written. Readers keep the map they have: it is replaced, never changed."""
        if self._db is None:
            return
        with self._lock:
            (version,) = self._db.execute("PRAGMA data_version").fetchone()
            if version != self._version:
                self._plans, self._version = _read(self._db), version

    def _write(self, statement: str, values: tuple[object, ...], *, wait_for_disk: bool = True) -> None:
        if self._db is None:
            return
        try:
            self._db.execute(f"PRAGMA synchronous = {'FULL' if wait_for_disk else 'NORMAL'}")
            with self._db:
                self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise StoreError(f"cannot write {self.path}: {error}; is the disk full or read-only?") from error

    def _open(self) -> sqlite3.Connection:
        assert self.path is not None and self._mark is not None
        try:
            Path(self.path).parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            if _is_empty(self.path):
                self._mark.touch()
            elif self._mark.exists():
                self.set_aside = self._mark.read_text() or None
        except OSError as error:
            raise StoreError(f"cannot use the folder of {self.path}: {error.strerror}; see --db-path") from error
        db = self._load_or_set_aside(self.path, self._mark)
        self._is_complete = not self._mark.exists()
        return db

    def _load_or_set_aside(self, path: str, mark: Path) -> sqlite3.Connection:
        try:
            return self._load(path)
        except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
            if isinstance(error, sqlite3.OperationalError):
                raise StoreError(f"cannot open {path}: {error}; does another driver hold it?") from error
            self.set_aside = _free_name(path)
            log.error("the store %s cannot be read (%s); set aside as %s, starting anew", path, error, self.set_aside)
            mark.write_text(self.set_aside)
            _move_away(path, self.set_aside)
            return self._load(path)

    def _load(self, path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, check_same_thread=False, timeout=1.0)
        try:
            os.chmod(path, 0o600)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA cache_size = -128")  # KiB; the default of 2 MiB would fill over the months
            migrate(db, path, self._migrations)
            self._plans = _read(db)
        except BaseException:
            db.close()
            raise
        return db


def _read(db: sqlite3.Connection) -> dict[str, ClaimPlan]:
    return {uid: plans.decode(raw) for uid, raw in db.execute("SELECT uid, plan FROM claims ORDER BY uid")}


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


def _move_away(path: str, target: str) -> None:
    os.replace(path, target)
    for suffix in ("-wal", "-shm"):
        Path(path + suffix).unlink(missing_ok=True)
