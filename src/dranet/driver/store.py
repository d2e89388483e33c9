"""The durable store: plans by claim UID in sqlite, written before prepare answers.

Everything is also held in memory, so reading costs next to nothing in a hook; writing goes to disk first and belongs
on a worker thread. During a rolling update two drivers share the file: each notices what the other commits.

A row that cannot be read, or that a newer driver wrote, costs its own claim a clear refusal and nobody else anything. A
file that cannot be read is set aside, never deleted. A store that begins empty, for this or any other reason, is
incomplete until the daemon has rebuilt what it can from the API server, the kernel and the runtime; a mark beside the
file outlives restarts.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import msgspec

from dranet.driver.parts.registry import PARTS, Parts
from dranet.driver.records import plan as plans
from dranet.driver.records.plan import ClaimPlan, DevicePlan, UnreadablePlan
from dranet.driver.records.rows import Row, Unreadable, read_rows
from dranet.driver.records.store_file import MIGRATIONS, Migration, StoreError, StoreFile, rows_of
from dranet.model.names import exclude_each_other

log = logging.getLogger(__name__)

T = TypeVar("T")


class Store:
    """Plans by claim UID. `path` None keeps them in memory only, as the reference's empty --db-path does."""

    def __init__(self, path: str | None, migrations: Sequence[Migration] = MIGRATIONS, parts: Parts = PARTS) -> None:
        self.path = path
        self._parts = parts
        self._file = StoreFile(path, migrations) if path else None
        self.is_open = True
        self._is_complete = self._file is not None and self._file.is_complete
        self._writing = threading.RLock()
        """Held over a whole change, in memory and on disk. A commit may wait for the disk, so readers never take it."""
        self._looking = threading.Lock()
        """Held while what is in memory is replaced; never while anybody waits for the disk."""
        self._rows: dict[str, Row] = {}
        self._plans: dict[str, ClaimPlan] = {}
        self._unreadable: dict[str, Unreadable] = {}
        self._struck: dict[str, Row] = {}
        """Plans that are over, as they still stand in the file."""
        self._inherited: set[str] = set()
        """Plans as another process has left them in the file."""
        self._catch_up()

    @classmethod
    def copy_of(cls, path: str) -> Store:
        """What a driver's file says now, in memory: for who is not the driver."""
        copy = cls(None)
        copy._take(rows_of(path))
        return copy

    @property
    def set_aside(self) -> str | None:
        """Where an unreadable file went, until what was in it is rebuilt."""
        return self._file.set_aside if self._file else None

    @property
    def is_complete(self) -> bool:
        """Whether every plan this node goes by is here; a store that began empty cannot know."""
        return self._is_complete

    def completed(self) -> None:
        """Whatever could be found is here."""
        if self._file is not None:
            self._file.completed()
        self._is_complete = True

    @property
    def plans(self) -> Mapping[str, ClaimPlan]:
        """Every plan that can be read, by claim UID, as of now."""
        self._catch_up()
        return MappingProxyType(self._plans)

    @property
    def unreadable(self) -> Mapping[str, Unreadable]:
        """The claims whose plans cannot be read, by UID: they are left alone, with everything that is theirs."""
        self._catch_up()
        return MappingProxyType(self._unreadable)

    def get(self, uid: str) -> ClaimPlan | None:
        """The plan of a claim, None where there is none; raises UnreadablePlan where it cannot be read."""
        found = self.plans.get(uid)
        if found is None and uid in self._unreadable:
            raise UnreadablePlan(self._unreadable[uid].reason)
        return found

    def for_pod(self, pod_uid: str) -> list[ClaimPlan]:
        """The plans of one pod, in an order that does not change: by namespace and name of the claim."""
        found = [plan for plan in self.plans.values() if plan.pod.uid == pod_uid and not plan.is_joining]
        return sorted(found, key=lambda plan: (plan.namespace, plan.name, plan.uid))

    def beside(self, claim_uid: str) -> list[ClaimPlan]:
        """The plans of a claim's further pods, as of the last look at the file: who asks has just asked for its own."""
        return [plan for plan in self._plans.values() if plan.is_beside and plan.ref.uid == claim_uid]

    def devices_beside(self, uid: str) -> list[DevicePlan]:
        """The devices of all plans but one."""
        return [device for plan in self.plans.values() if plan.uid != uid for device in plan.devices]

    def unreadable_for_pod(self, pod_uid: str) -> dict[str, str]:
        """Claims of a pod whose plans cannot be read, by UID, each with the reason; as of the last look at the file."""
        # Who asks has just asked for the plans. Asking the file a second time would be half the cost of a hook that has
        # nothing to do, which is most of them; and after a write of our own all rows would be read again.
        return {uid: lost.reason for uid, lost in self._unreadable.items() if lost.pod_uid == pod_uid}

    def holder(self, device: str, share_id: str | None = None, *, other_than: str) -> str | None:
        """Who, other than the claim named, has this device or this share of it; in words. An admin's look holds
        nothing."""
        for plan in self.plans.values():
            if plan.ref.uid != other_than and any(held.conflicts(device, share_id) for held in plan.devices):
                return f"claim {plan.ref} of pod {plan.pod.name}"
        for uid, lost in self._unreadable.items():
            if uid != other_than and any(exclude_each_other(device, name) for name in lost.devices):
                return f"claim {uid}, whose plan cannot be used here ({lost.reason})"
        return None

    def put(self, plan: ClaimPlan, *, survives_reboot: bool = True) -> None:
        """Write a plan to disk, then remember it.

        Every write survives the death of this process. Waiting for the disk as well makes it survive the machine's;
        what means nothing after a reboot, such as where a namespace was, need not wait.
        """
        row = Row(plan.uid, plan.pod.uid, plans.encode(plan))
        with self._writing:
            self._write_out()
            if self._file is not None:
                self._file.put(row, wait_for_disk=survives_reboot)
            with self._remembering():
                self._rows = {**self._rows, plan.uid: row}
                self._plans = {**self._plans, plan.uid: plan}
                self._unreadable = _without(self._unreadable, plan.uid)
                self._inherited.discard(plan.uid)

    def change(self, uid: str, *, survives_reboot: bool = True, **changes: object) -> ClaimPlan | None:
        """Replace fields of a stored plan; None where the claim is not known."""
        with self._writing:
            old = self.get(uid)
            if old is None:
                return None
            new = msgspec.structs.replace(old, **changes)
            if new != old:
                self.put(new, survives_reboot=survives_reboot)
            return new

    def delete(self, uid: str) -> None:
        """Forget a plan, in the file as well. That need not wait for the disk: a plan which the machine's death brings
        back is found to be nobody's when somebody else is given its devices, and `settle` soon makes that unlikely."""
        with self._writing:
            if self._file is not None:
                self._file.delete(uid)
            with self._remembering():
                self._drop(uid)

    def strike(self, uid: str) -> None:
        """Forget a plan without waiting for anything, so also on the event loop: the file follows with the next write
        or `settle`. What the death of this process brings back is nobody's as above."""
        with self._looking:
            if self._file is not None and uid in self._rows:
                self._struck[uid] = self._rows[uid]
            self._drop(uid)

    def _drop(self, uid: str) -> None:
        self._rows, self._plans = _without(self._rows, uid), _without(self._plans, uid)
        self._unreadable = _without(self._unreadable, uid)

    def is_inherited(self, uid: str) -> bool:
        """Whether another process has left the plan as it is."""
        return uid in self._inherited

    def settle(self) -> None:
        """Wait until everything written so far survives the machine's death. Whoever writes does not wait for that."""
        if self._file is not None and self.is_open:
            with self._writing:
                self._write_out()
            self._file.settle()

    def close(self) -> None:
        """Nothing can be written any more; what is in memory can still be read."""
        self.is_open = False
        if self._file is not None:
            with self._writing:
                try:
                    self._write_out()
                except StoreError as error:  # who comes next finds out that they are nobody's
                    log.error("plans that are over stay in the file: %s", error)
            self._file.close()

    def _catch_up(self) -> None:
        """Read again if anybody has written. Readers keep the maps they have: those are replaced, never changed."""
        if self._file is None or not self.is_open:
            return
        with self._looking:
            rows = self._file.changed_rows()
            if rows is not None:
                self._take(rows)

    def _write_out(self) -> None:
        """Take from the file what was struck before."""
        struck = tuple(self._struck.values())
        if self._file is None or not struck:
            return
        self._file.strike(struck)
        with self._remembering():
            self._struck = {uid: row for uid, row in self._struck.items() if row not in struck}

    @contextlib.contextmanager
    def _remembering(self) -> Iterator[None]:
        """Around what changes in memory after a write of our own, which is no news to the next look."""
        with self._looking:
            version = self._file.version() if self._file else None
            yield
        if self._file is not None and version is not None:  # by now without the lock: the writer may have to wait
            self._file.know_own_write(version)

    def _take(self, rows: Mapping[str, Row]) -> None:
        """Rows we know already, our own among them, are not decoded again."""
        rows = {uid: row for uid, row in rows.items() if row != self._struck.get(uid)}
        same = [uid for uid, row in rows.items() if uid in self._plans and self._rows.get(uid) == row]
        known = {uid: self._plans[uid] for uid in same}
        found, lost = read_rows([row for uid, row in rows.items() if uid not in known], self._parts.check)
        for uid in sorted(set(lost) - set(self._unreadable)):
            log.error("the plan of claim %s is left alone: %s", uid, lost[uid].reason)
        self._rows, self._plans, self._unreadable = rows, {**known, **found}, lost
        self._inherited = (self._inherited & known.keys()) | found.keys()


def _without(known: dict[str, T], uid: str) -> dict[str, T]:
    return {other: value for other, value in known.items() if other != uid}
