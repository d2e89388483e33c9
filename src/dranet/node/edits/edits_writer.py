"""Writes the files that containers mount: device metadata, and settings of the libraries that a claim asks for.

The files are complete before a readiness gate opens, because a container keeps the file it was started with.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from dranet.linux.links import Link, get_link
from dranet.node.edits.container_edits import NO_EDITS, ContainerEdits
from dranet.node.edits.library_settings import LibrarySettingsWriter
from dranet.node.edits.metadata import write_metadata
from dranet.node.edits.pod_device import PodDevice, pod_device
from dranet.node.namespaces import PodNamespace
from dranet.node.records.plan import ClaimPlan, DevicePlan

PRIMARY = "eth0"
"""The name that containerd and CRI-O give to the interface of the pod network."""

AttachedLinks = Sequence[tuple[str, DevicePlan, Link | None]]
"""The devices of a pod, each with its claim's UID and its interface."""


class ContainerEditsWriter:
    """Writes below a folder that the runtime sees under the same path, one folder for each claim UID."""

    def __init__(self, folder: str | Path, sysfs_root: str = "/sys", *, metadata: bool = True) -> None:
        self.folder = Path(folder)
        self._sysfs_root = sysfs_root
        self._metadata = metadata
        self._libraries = LibrarySettingsWriter(self.folder, sysfs_root)

    def write(
        self, pod: PodNamespace, plans: Sequence[ClaimPlan], attached: AttachedLinks
    ) -> dict[str, ContainerEdits]:
        """The edits by claim UID. Raises where requested settings cannot be written, because the pod needs them."""
        requested = any(plan.sets_environment for plan in plans)
        if not self._metadata and not requested:
            return {}
        devices = [(uid, plan, pod_device(self._sysfs_root, pod, plan, link)) for uid, plan, link in attached]
        edits = self._settings(pod, plans, [(p.environment, device) for _, p, device in devices]) if requested else {}
        for plan in plans if self._metadata else ():
            files = write_metadata(self.folder, plan, [device for uid, _, device in devices if uid == plan.uid])
            settings = edits.get(plan.uid, NO_EDITS)
            edits[plan.uid] = ContainerEdits((*files, *settings.mounts), settings.variables)
        return edits

    def _settings(
        self, pod: PodNamespace, plans: Sequence[ClaimPlan], devices: Sequence[tuple[Sequence[str], PodDevice]]
    ) -> dict[str, ContainerEdits]:
        claimed = {device.interface for _, device in devices}
        has_primary = get_link(pod.route, PRIMARY) is not None and PRIMARY not in claimed
        return self._libraries.write(plans, devices, PRIMARY if has_primary else "")

    def remove(self, claim_uid: str) -> None:
        """Remove the files of a released claim."""
        shutil.rmtree(self.folder / claim_uid, ignore_errors=True)

    def prune(self, known: set[str]) -> None:
        """Remove the files of claims that are not in the store."""
        for folder in self.folder.glob("*"):
            if folder.name not in known:
                self.remove(folder.name)
