"""The readiness gate: a CDI spec that exists only while all devices of a claim are attached to its pod.

Prepare returns the CDI device name, and the runtime cannot create a container that names the claim while the spec is
missing. So no such container runs without its devices, even while the driver has no connection to the runtime, and it
starts by itself after a late attach. The spec also carries the RDMA character devices, for those containers only.

The kubelet returns one CDI device name to all pods that share a claim, so the spec exists while any of them has its
devices. Other files in its folder record which of them has: one for each additional pod, which no container names, and
an `away` file while the first pod is detached and others are attached. The CreateContainer hook reads them.
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

from dranet.core.errors import DranetError
from dranet.node.edits.container_edits import NO_EDITS, ContainerEdits, cdi_spec
from dranet.node.records.plan import ClaimPlan

_PREFIX = "dra.net-claim-"


class ReadinessGates:
    """The gates of this node, one file for each claim in the runtime's CDI folder.

    Raises for a folder that is not writable: at the start, not in the hook of the first pod.
    """

    def __init__(self, folder: str, *, visible_to_runtime: bool = True) -> None:
        """Without `visible_to_runtime` the files are the driver's own state, and prepare returns no CDI device."""
        self.visible_to_runtime = visible_to_runtime
        self._changing = threading.Lock()  # pods that share a claim come and go at the same time
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if not os.access(self.folder, os.W_OK):
            raise PermissionError(errno.EACCES, "cannot write", folder)

    def path(self, claim_uid: str) -> Path:
        """The file of a claim. Raises for a UID that would lead out of the folder."""
        if not re.fullmatch(r"[A-Za-z0-9][-A-Za-z0-9_.]*", claim_uid):
            raise DranetError(f"{claim_uid!r} is not a valid claim UID")
        return self.folder / f"{_PREFIX}{claim_uid}.json"

    def exists(self, uid: str) -> bool:
        """Whether containers of the claim may start in the pod that has this plan."""
        first = self.path(uid.partition(".")[0])
        is_attached = self.path(uid).exists()
        return is_attached and (first.exists() if "." in uid else not self._away(first).exists())

    def write(self, plan: ClaimPlan, edits: ContainerEdits = NO_EDITS) -> None:
        """Open the gate of a plan, atomically: the runtime may read the folder at any moment."""
        self.folder.mkdir(parents=True, exist_ok=True)
        first = self.path(plan.ref.uid)
        with self._changing:
            if not plan.is_additional:
                self._put(first, cdi_spec(plan, edits))
                self._away(first).unlink(missing_ok=True)
                return
            self._put(self.path(plan.uid), cdi_spec(plan, edits))
            if not first.exists():
                self._mark_away(first)
                self._put(first, cdi_spec(plan, edits, plan.ref.uid))

    def _put(self, target: Path, content: dict[str, Any]) -> None:
        hidden = self._unfinished(target)
        try:
            hidden.write_bytes(msgspec.json.encode(content))
            os.replace(hidden, target)
        except OSError:  # a full disk leaves an empty file
            hidden.unlink(missing_ok=True)
            raise

    def remove(self, uid: str, additional: Iterable[str] = ()) -> None:
        """Close the gate of a plan; `additional` are the plans of additional pods of the claim.

        Opens no file, because a driver that is out of file descriptors must still detach devices.
        """
        claim_uid = uid.partition(".")[0]
        first = self.path(claim_uid)
        with self._changing:
            if uid != claim_uid:
                self._unlink(self.path(uid))
            if any(self.path(other).exists() for other in additional if other != uid):
                if uid == claim_uid:
                    self._mark_away(first)
            elif uid == claim_uid or self._away(first).exists():
                self._unlink(first)

    def _unlink(self, target: Path) -> None:
        for path in (target, self._unfinished(target), self._away(target)):
            path.unlink(missing_ok=True)

    def prune(self, known: set[str]) -> list[str]:
        """Remove the gates of claims that are not in the store; returns their UIDs."""
        found = {path.name.removeprefix(_PREFIX).removesuffix(".json") for path in self.folder.glob(f"{_PREFIX}*.json")}
        # Additional pods sort after their claim; they go first, because the claim's own file stays while one is there.
        stale = sorted(found - known, reverse=True)
        for uid in stale:
            self.remove(uid, [other for other in known if other.startswith(f"{uid.partition('.')[0]}.")])
        return stale

    def _unfinished(self, target: Path) -> Path:
        """The temporary file of a write; a driver that is killed leaves it behind."""
        return target.with_name(f".{target.name}.new")

    def _mark_away(self, first: Path) -> None:
        with contextlib.suppress(FileExistsError):
            os.mknod(self._away(first))

    def _away(self, first: Path) -> Path:
        """Exists while the claim's first pod is detached although its spec exists for additional pods."""
        return first.with_name(f".{first.name}.away")
