"""What the containers of a pod are told of their cards: metadata files, and settings of libraries that were asked for.

Everything is written when the cards are in the pod and before the receipts let containers start, for a container's
mount keeps the file it was started with.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from dranet.driver.moving.library_files import LibraryFiles
from dranet.driver.moving.metadata import write_metadata
from dranet.driver.moving.pod_cards import pod_card
from dranet.driver.moving.told import Told
from dranet.driver.namespaces import PodNamespace
from dranet.driver.records.plan import ClaimPlan, DevicePlan
from dranet.kernel.links import Link, get_link
from dranet.podfacts.card import PodCard

PRIMARY = "eth0"
"""How both runtimes call the interface of the pod network."""

Inside = Sequence[tuple[str, DevicePlan, Link | None]]
"""The devices of a pod, each with its claim's UID and its interface."""


class Telling:
    """The files of this node's claims, below a folder that the runtime sees under the same path."""

    def __init__(self, folder: str | Path, sysfs_root: str = "/sys", *, metadata: bool = True) -> None:
        self.folder = Path(folder)
        self._sysfs_root = sysfs_root
        self._metadata = metadata
        self._libraries = LibraryFiles(self.folder, sysfs_root)

    def tell(self, pod: PodNamespace, plans: Sequence[ClaimPlan], inside: Inside) -> dict[str, Told]:
        """By claim UID. Settings that were asked for and cannot be written are an error: the pod needs them."""
        asked = any(plan.asks_for_settings for plan in plans)
        if not self._metadata and not asked:
            return {}
        cards = [(uid, device, pod_card(self._sysfs_root, pod, device, link)) for uid, device, link in inside]
        told = self._settings(pod, plans, [(d.environment, card) for _, d, card in cards]) if asked else {}
        for plan in plans if self._metadata else ():
            files = write_metadata(self.folder, plan, [card for uid, _, card in cards if uid == plan.uid])
            settings = told.get(plan.uid, Told())
            told[plan.uid] = Told((*files, *settings.mounts), settings.variables)
        return told

    def _settings(
        self, pod: PodNamespace, plans: Sequence[ClaimPlan], asking: Sequence[tuple[Sequence[str], PodCard]]
    ) -> dict[str, Told]:
        is_there = get_link(pod.route, PRIMARY) is not None and PRIMARY not in {card.interface for _, card in asking}
        return self._libraries.write(plans, asking, PRIMARY if is_there else "")

    def remove(self, claim_uid: str) -> None:
        """The claim's containers are gone, or never were."""
        shutil.rmtree(self.folder / claim_uid, ignore_errors=True)

    def prune(self, known: set[str]) -> None:
        """Remove what is of claims nobody knows."""
        for folder in self.folder.glob("*"):
            if folder.name not in known:
                self.remove(folder.name)
