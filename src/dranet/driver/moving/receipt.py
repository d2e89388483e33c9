"""The receipt: a CDI file that exists only while all cards of a claim are in its pod.

Prepare names the CDI device; the runtime cannot create a container that names the claim while the file is missing. So
no such container ever runs without its cards, whatever happens to our connection to the runtime, and it starts by
itself once a late attach succeeds. The file also carries the RDMA character devices, for those containers only.

The kubelet gives all pods that name a claim the same CDI name. So that one file is there while any of them has its
cards, and which of them has is noted beside it: for the pods after the first in a file each, which no container names,
and for the first, should it be out while others are in, by a note that it is away. The hook reads these.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from dranet.driver.moving.told import Told
from dranet.driver.records.plan import ClaimPlan
from dranet.model.errors import DranetError

KIND = "dra.net/claim"
CDI_VERSION = "0.6.0"
_PREFIX = "dra.net-claim-"
_NOTHING = Told()


def cdi_name(claim_uid: str) -> str:
    """The fully qualified name that prepare answers."""
    return f"{KIND}={claim_uid}"


class Receipts:
    """The receipts of this node, one file a claim in the runtime's CDI folder.

    A folder that cannot be used is an error here, at the start, and not in the hook of the first pod.
    """

    def __init__(self, folder: str, *, seen_by_runtime: bool = True) -> None:
        """In a folder the runtime does not see they are only our own notes: no container may be told to need one."""
        self.seen_by_runtime = seen_by_runtime
        self._changing = threading.Lock()
        """Pods of one claim come and go at the same time, and its file is there for all of them."""
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if not os.access(self.folder, os.W_OK):
            raise PermissionError(errno.EACCES, "cannot write", folder)

    def path(self, claim_uid: str) -> Path:
        """Where the receipt of a claim lies. Refuses a UID that would lead out of the folder."""
        if not re.fullmatch(r"[A-Za-z0-9][-A-Za-z0-9_.]*", claim_uid):
            raise DranetError(f"{claim_uid!r} cannot be a claim UID")
        return self.folder / f"{_PREFIX}{claim_uid}.json"

    def exists(self, uid: str) -> bool:
        """Whether containers of the claim may start in the pod that has this plan."""
        first = self.path(uid.partition(".")[0])
        noted = self.path(uid).exists()
        return noted and (first.exists() if "." in uid else not self._away(first).exists())

    def write(self, plan: ClaimPlan, told: Told = _NOTHING) -> None:
        """Say that the cards are in. Appears at once and whole: the runtime may read the folder at any moment."""
        self.folder.mkdir(parents=True, exist_ok=True)
        first = self.path(plan.ref.uid)
        with self._changing:
            if not plan.is_beside:
                self._put(first, specification(plan, told))
                self._away(first).unlink(missing_ok=True)
                return
            self._put(self.path(plan.uid), specification(plan, told))
            if not first.exists():
                self._note_away(first)
                self._put(first, specification(plan, told, plan.ref.uid))

    def _put(self, target: Path, content: dict[str, Any]) -> None:
        hidden = self._unfinished(target)
        try:
            hidden.write_bytes(msgspec.json.encode(content))
            os.replace(hidden, target)
        except OSError:  # the disk is full: not even an empty file stays
            hidden.unlink(missing_ok=True)
            raise

    def remove(self, uid: str, beside: Iterable[str] = ()) -> None:
        """The cards of this plan are not in its pod any more; `beside` are plans of further pods of the claim. Opens
        nothing: a driver without file descriptors must still be able to bring cards home."""
        claim_uid = uid.partition(".")[0]
        first = self.path(claim_uid)
        with self._changing:
            if uid != claim_uid:
                self._unlink(self.path(uid))
            if any(self.path(other).exists() for other in beside if other != uid):
                if uid == claim_uid:
                    self._note_away(first)
            elif uid == claim_uid or self._away(first).exists():
                self._unlink(first)

    def _unlink(self, target: Path) -> None:
        for path in (target, self._unfinished(target), self._away(target)):
            path.unlink(missing_ok=True)

    def prune(self, known: set[str]) -> list[str]:
        """Remove receipts of claims nobody knows; the UIDs that went."""
        found = {path.name.removeprefix(_PREFIX).removesuffix(".json") for path in self.folder.glob(f"{_PREFIX}*.json")}
        # Those beside others first: the claim's own stays while any of them is there.
        stale = sorted(found - known, reverse=True)
        for uid in stale:
            self.remove(uid, [other for other in known if other.startswith(f"{uid.partition('.')[0]}.")])
        return stale

    def _unfinished(self, target: Path) -> Path:
        """What is being written; a driver that dies just then leaves it."""
        return target.with_name(f".{target.name}.new")

    def _note_away(self, first: Path) -> None:
        with contextlib.suppress(FileExistsError):
            os.mknod(self._away(first))

    def _away(self, first: Path) -> Path:
        """The note that the claim's first pod is out, although its file is there for others."""
        return first.with_name(f".{first.name}.away")


def variable_of(claim_name: str) -> str:
    """The variable that containers with the claim have."""
    return "DRANET_CLAIM_" + re.sub(r"[^A-Za-z0-9]", "_", claim_name).upper()


def specification(plan: ClaimPlan, told: Told = _NOTHING, name: str = "") -> dict[str, Any]:
    """The CDI file, of a device with the plan's own name or another. A device must bring something: one variable tells
    a container which interfaces are its own."""
    names = ",".join(device.wanted.name for device in plan.devices if device.wanted)
    variables = {variable_of(plan.name): names, **told.variables}
    edits: dict[str, Any] = {"env": [f"{variable}={value}" for variable, value in variables.items()]}
    if plan.char_devices:
        edits["deviceNodes"] = [
            {"path": node.path, "type": "c", "major": node.major, "minor": node.minor, "permissions": "rw"}
            for node in plan.char_devices
        ]
    if told.mounts:
        edits["mounts"] = [mount.to_cdi() for mount in told.mounts]
    return {"cdiVersion": CDI_VERSION, "kind": KIND, "devices": [{"name": name or plan.uid, "containerEdits": edits}]}
