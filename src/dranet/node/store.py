"""The durable store: plans by claim UID in sqlite, written before prepare replies.

Everything is also in memory, so that a read in a hook costs almost nothing. Writes go to disk first and belong on a
worker thread. During a rolling update two drivers share the file, and each notices what the other commits.

A row that cannot be read, or that a newer driver wrote, affects only its own claim. A file that cannot be read is set
aside, never deleted; where that happens while the driver runs, the plans in memory are written to a new one. A store
that starts empty, for this or any other reason, is incomplete until the daemon has recovered plans from the API server,
the kernel and the runtime; a marker file next to it survives restarts.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import msgspec

from dranet.core.logs import get_logger
from dranet.core.names import exclude_each_other
from dranet.node.claim_states import is_allowed, state_of
from dranet.node.features.registry import FEATURES, Features
from dranet.node.records import plan as plans
from dranet.node.records.plan import ClaimPlan, DevicePlan, UnreadablePlan
from dranet.node.records.store_file import (
    MIGRATIONS,
    DamagedStore,
    Migration,
    Row,
    StoreError,
    StoreFile,
    Unreadable,
    decode_rows,
    read_file,
)

log = get_logger(__name__)

T = TypeVar("T")

UNEXPECTED_TRANSITION = "Unexpected change of a claim's state"


class Store:
    """Plans by claim UID. `path` None keeps them in memory only, as the reference's empty --db-path does."""

    def __init__(
        self,
        path: str | None,
        migrations: Sequence[Migration] = MIGRATIONS,
        features: Features = FEATURES,
    ) -> None:
        self.path = path
        self._features = features
        self._file = StoreFile(path, migrations) if path else None
        self.is_open = True
        self._is_complete = self._file is not None and self._file.is_complete
        self._write_lock = threading.RLock()
        """Held during a whole change, in memory and on disk. Readers never take it: a commit may wait for the disk."""
        self._memory_lock = threading.Lock()
        """Held while the maps in memory are replaced; never while waiting for the disk."""
        self._rows: dict[str, Row] = {}
        self._plans: dict[str, ClaimPlan] = {}
        self._unreadable: dict[str, Unreadable] = {}
        self._released: dict[str, Row] = {}
        """Released plans whose rows are still in the file."""
        self._is_damaged = False
        """The file could not be replaced yet; the next write tries again."""
        self._inherited: set[str] = set()
        """Plans that another process wrote last."""
        self._refresh()

    @classmethod
    def read_copy(cls, path: str) -> Store:
        """The current content of a driver's file, in memory, for other programs."""
        copy = cls(None)
        copy._load(read_file(path))
        return copy

    @property
    def set_aside(self) -> str | None:
        """The new path of an unreadable file, until its plans are recovered."""
        return self._file.set_aside if self._file else None

    @property
    def is_complete(self) -> bool:
        """Whether every plan of this node is here; a store that started empty cannot know."""
        return self._is_complete

    def mark_complete(self) -> None:
        """All plans that could be recovered are here."""
        if self._file is not None:
            self._file.mark_complete()
        self._is_complete = True

    @property
    def plans(self) -> Mapping[str, ClaimPlan]:
        """Every readable plan, by claim UID."""
        self._refresh()
        return MappingProxyType(self._plans)

    @property
    def unreadable(self) -> Mapping[str, Unreadable]:
        """The claims whose plans cannot be read, by UID; the driver does not touch their devices."""
        self._refresh()
        return MappingProxyType(self._unreadable)

    def get(self, uid: str) -> ClaimPlan | None:
        """The plan of a claim, or None; raises UnreadablePlan where it cannot be read."""
        found = self.plans.get(uid)
        if found is None and uid in self._unreadable:
            raise UnreadablePlan(self._unreadable[uid].reason)
        return found

    def for_pod(self, pod_uid: str) -> list[ClaimPlan]:
        """The plans of one pod in a stable order: by namespace and name of the claim."""
        found = [plan for plan in self.plans.values() if plan.pod.uid == pod_uid and not plan.is_unfinished_addition]
        return sorted(found, key=lambda plan: (plan.namespace, plan.name, plan.uid))

    def additional_plans(self, claim_uid: str) -> list[ClaimPlan]:
        """The plans of a claim's additional pods; callers have just read the claim's own plan, so memory is current."""
        return [plan for plan in self._plans.values() if plan.is_additional and plan.ref.uid == claim_uid]

    def devices_of_others(self, uid: str) -> list[DevicePlan]:
        """The devices of all plans except this one."""
        return [device for plan in self.plans.values() if plan.uid != uid for device in plan.devices]

    def unreadable_for_pod(self, pod_uid: str) -> dict[str, str]:
        """The reasons why plans of a pod cannot be read, by claim UID."""
        # Callers have just read the plans. Checking the file again would be half the cost of a hook that has nothing to
        # do, which most have; and after a write of our own it would read all rows again.
        return {uid: lost.reason for uid, lost in self._unreadable.items() if lost.pod_uid == pod_uid}

    def holder(self, device: str, share_id: str | None = None, *, other_than: str) -> str | None:
        """A description of the other claim that holds this device or share. Admin access holds nothing."""
        for plan in self.plans.values():
            if plan.ref.uid != other_than and any(held.conflicts_with(device, share_id) for held in plan.devices):
                return f"claim {plan.ref} of pod {plan.pod.name}"
        for uid, lost in self._unreadable.items():
            if uid != other_than and any(exclude_each_other(device, name) for name in lost.devices):
                return f"claim {uid}, whose plan this driver cannot read ({lost.reason})"
        return None

    def put(self, plan: ClaimPlan, *, survives_reboot: bool = True) -> None:
        """Write a plan to disk, then to memory.

        Every write survives a crash of this process. Waiting for the disk makes it survive a crash of the machine;
        values that mean nothing after a reboot, such as the path of a namespace, need not wait.
        """
        row = Row(plan.uid, plan.pod.uid, plans.encode(plan))
        with self._write_lock:
            self._check_transition(plan.uid, plan)
            self._delete_released()
            self._write(lambda file: file.put(row, wait_for_disk=survives_reboot))
            with self._updating_memory():
                self._rows = {**self._rows, plan.uid: row}
                self._plans = {**self._plans, plan.uid: plan}
                self._unreadable = _without(self._unreadable, plan.uid)
                self._inherited.discard(plan.uid)

    def change(self, uid: str, *, survives_reboot: bool = True, **changes: object) -> ClaimPlan | None:
        """Replace fields of a stored plan; None where the claim is not known."""
        with self._write_lock:
            old = self.get(uid)
            if old is None:
                return None
            new = msgspec.structs.replace(old, **changes)
            if new != old:
                self.put(new, survives_reboot=survives_reboot)
            return new

    def delete(self, uid: str) -> None:
        """Delete a plan, on disk too. Does not wait for the disk: if a crash of the machine brings the plan back, the
        next claim that is allocated its devices finds it stale; and `flush` soon makes that unlikely."""
        with self._write_lock:
            self._check_transition(uid, None)
            self._write(lambda file: file.delete(uid))
            with self._updating_memory():
                self._drop(uid)

    def release(self, uid: str) -> None:
        """Delete a plan in memory at once, so also on the event loop; the next write or `flush` deletes the row. After
        a crash in between, the plan is stale, as in `delete`."""
        self._check_transition(uid, None)
        with self._memory_lock:
            if self._file is not None and uid in self._rows:
                self._released[uid] = self._rows[uid]
            self._drop(uid)

    def _check_transition(self, uid: str, new: ClaimPlan | None) -> None:
        """Log a change that the table of transitions does not have; tests look for the message. The change is made:
        refusing it would keep devices from a pod, or from the host."""
        old = self._plans.get(uid)
        if not is_allowed(old, new):
            log.error(UNEXPECTED_TRANSITION, uid=uid, old=state_of(old).value, new=state_of(new).value)

    def _drop(self, uid: str) -> None:
        self._rows, self._plans = _without(self._rows, uid), _without(self._plans, uid)
        self._unreadable = _without(self._unreadable, uid)

    def is_inherited(self, uid: str) -> bool:
        """Whether another process wrote the plan last."""
        return uid in self._inherited

    def flush(self) -> None:
        """Wait until everything written so far survives a crash of the machine. Other writers do not wait for it."""
        if self._file is not None and self.is_open:
            with self._write_lock:
                self._delete_released()
            self._file.flush()

    def close(self) -> None:
        """Stop writing; the plans in memory can still be read."""
        self.is_open = False
        if self._file is not None:
            with self._write_lock:
                try:
                    self._delete_released()
                except StoreError as error:  # the next driver finds them stale
                    log.error("Could not delete released plans from the store", error=error)
                # A worker thread may be reading: sqlite crashes when a connection is closed in use.
                with self._memory_lock:
                    self._file.close()

    def _refresh(self) -> None:
        """Read the rows again if another process wrote. Maps are replaced, never changed, so readers keep theirs."""
        if self._file is None or not self.is_open:
            return
        try:
            with self._memory_lock:
                rows = self._file.changed_rows() if self.is_open and not self._is_damaged else None
                if rows is not None:
                    self._load(rows)
        except DamagedStore as error:
            self._is_damaged = True
            # A writer that holds the lock notices the damage itself. Readers never wait for it.
            if self._write_lock.acquire(blocking=False):
                try:
                    self._replace_file(error)
                except (StoreError, OSError) as failed:
                    log.error("Cannot replace the damaged store; using the plans in memory", error=failed)
                finally:
                    self._write_lock.release()

    def _write(self, work: Callable[[StoreFile], None]) -> None:
        """Write to the file, to a new one where it is damaged. The caller holds the write lock."""
        if self._file is None:
            return
        try:
            if self._is_damaged:
                raise DamagedStore(f"{self.path} is damaged")
            work(self._file)
        except DamagedStore as error:
            self._replace_file(error)
            work(self._file)

    def _replace_file(self, error: DamagedStore) -> None:
        """Write the plans in memory to a new file. The caller holds the write lock."""
        assert self._file is not None
        try:
            with self._memory_lock:
                self._file.replace(self._rows.values(), error, is_complete=self._is_complete)
                self._released = {}
                self._is_damaged = False
        except (OSError, sqlite3.Error) as failed:
            self._is_damaged = True
            raise StoreError(f"cannot replace the damaged store {self.path}: {failed}") from failed

    def _delete_released(self) -> None:
        """Delete the rows of released plans from the file."""
        released = tuple(self._released.values())
        if self._file is None or not released:
            return
        self._write(lambda file: file.delete_unchanged(released))
        with self._updating_memory():
            self._released = {uid: row for uid, row in self._released.items() if row not in released}

    @contextlib.contextmanager
    def _updating_memory(self) -> Iterator[None]:
        """Around a change in memory after a write of our own, so that the next refresh need not read it again."""
        with self._memory_lock:
            version = self._file.version() if self._file else None
            yield
        if self._file is not None and version is not None:  # outside the lock, because the writer may have to wait
            self._file.skip_own_write(version)

    def _load(self, rows: Mapping[str, Row]) -> None:
        """Rows that are known already, our own among them, are not decoded again."""
        rows = {uid: row for uid, row in rows.items() if row != self._released.get(uid)}
        same = [uid for uid, row in rows.items() if uid in self._plans and self._rows.get(uid) == row]
        known = {uid: self._plans[uid] for uid in same}
        found, lost = decode_rows([row for uid, row in rows.items() if uid not in known], self._features.check)
        for uid in sorted(set(lost) - set(self._unreadable)):
            log.error("Cannot read the plan of a claim; its devices stay unchanged", uid=uid, error=lost[uid].reason)
        self._rows, self._plans, self._unreadable = rows, {**known, **found}, lost
        self._inherited = (self._inherited & known.keys()) | found.keys()


def _without(known: dict[str, T], uid: str) -> dict[str, T]:
    return {other: value for other, value in known.items() if other != uid}
