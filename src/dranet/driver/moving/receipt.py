"""The receipt: a CDI file that exists only while all cards of a claim are in its pod.

Prepare names the CDI device; the runtime cannot create a container that names the claim while the file is missing. So
no such container ever runs without its cards, whatever happens to our connection to the runtime, and it starts by
itself once a late attach succeeds. The file also carries the RDMA character devices, for those containers only.
"""

from __future__ import annotations

import errno
import os
import re
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
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if not os.access(self.folder, os.W_OK):
            raise PermissionError(errno.EACCES, "cannot write", folder)

    def path(self, claim_uid: str) -> Path:
        """Where the receipt of a claim lies. Refuses a UID that would lead out of the folder."""
        if not re.fullmatch(r"[A-Za-z0-9][-A-Za-z0-9_.]*", claim_uid):
            raise DranetError(f"{claim_uid!r} cannot be a claim UID")
        return self.folder / f"{_PREFIX}{claim_uid}.json"

    def exists(self, claim_uid: str) -> bool:
        """Whether containers of the claim may start."""
        return self.path(claim_uid).exists()

    def write(self, plan: ClaimPlan, told: Told = _NOTHING) -> None:
        """Say that the cards are in. Appears at once and whole: the runtime may read the folder at any moment."""
        target = self.path(plan.uid)
        self.folder.mkdir(parents=True, exist_ok=True)
        hidden = self._unfinished(target)
        try:
            hidden.write_bytes(msgspec.json.encode(specification(plan, told)))
            os.replace(hidden, target)
        except OSError:  # the disk is full: not even an empty file stays
            hidden.unlink(missing_ok=True)
            raise

    def remove(self, claim_uid: str) -> None:
        target = self.path(claim_uid)
        for path in (target, self._unfinished(target)):
            path.unlink(missing_ok=True)

    def prune(self, known: set[str]) -> list[str]:
        """Remove receipts of claims nobody knows; the UIDs that went."""
        found = {path.name.removeprefix(_PREFIX).removesuffix(".json") for path in self.folder.glob(f"{_PREFIX}*.json")}
        stale = sorted(found - known)
        for uid in stale:
            self.remove(uid)
        return stale

    def _unfinished(self, target: Path) -> Path:
        """What is being written; a driver that dies just then leaves it."""
        return target.with_name(f".{target.name}.new")


def variable_of(claim_name: str) -> str:
    """The variable that containers with the claim have."""
    return "DRANET_CLAIM_" + re.sub(r"[^A-Za-z0-9]", "_", claim_name).upper()


def specification(plan: ClaimPlan, told: Told = _NOTHING) -> dict[str, Any]:
    """The CDI file. A device must bring something: one variable tells a container which interfaces are its own."""
    names = ",".join(device.wanted.name for device in plan.devices if device.wanted)
    variables = {variable_of(plan.name): names, **told.variables}
    edits: dict[str, Any] = {"env": [f"{name}={value}" for name, value in variables.items()]}
    if plan.char_devices:
        edits["deviceNodes"] = [
            {"path": node.path, "type": "c", "major": node.major, "minor": node.minor, "permissions": "rw"}
            for node in plan.char_devices
        ]
    if told.mounts:
        edits["mounts"] = [mount.to_cdi() for mount in told.mounts]
    return {"cdiVersion": CDI_VERSION, "kind": KIND, "devices": [{"name": plan.uid, "containerEdits": edits}]}
