"""Metadata files for containers: written when the cards are in the pod and before the receipt lets containers start.

A container's mount keeps the file it was started with, so everything in it must be final by then. The files of a claim
lie in a folder of its UID: a claim made anew under the same name cannot lose its files to the end of the old one. They
are information only: where they cannot be written, that is said, and the pod starts without them.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dranet.driver.records.plan import ClaimPlan, DevicePlan
from dranet.kernel.gids import read_gids
from dranet.kernel.links import Link
from dranet.kernel.sysfs import Sysfs
from dranet.model.errors import DranetError
from dranet.model.gids import Gid
from dranet.podfacts.card import EFA, INFINIBAND, ROCE, ClaimIdentity, PodCard
from dranet.podfacts.metadata import container_path, request_folder, stream

log = logging.getLogger(__name__)

_GID_SECONDS = 0.2
"""The kernel makes GIDs a moment after the address is set; a card whose GID takes longer is told without one."""


class Mount(NamedTuple):
    """One file of the host, and where the container finds it."""

    host: str
    container: str

    def to_cdi(self) -> dict[str, Any]:
        return {"hostPath": self.host, "containerPath": self.container, "options": ["ro", "bind"]}


class MetadataFiles:
    """The metadata files of this node's claims, below a folder that the runtime sees under the same path."""

    def __init__(self, folder: str | Path, sysfs_root: str = "/sys") -> None:
        self.folder = Path(folder)
        self._sysfs_root = sysfs_root

    def write(self, plan: ClaimPlan, inside: Iterable[tuple[DevicePlan, Link | None]]) -> list[Mount]:
        """One file a request; the mounts that bring them into containers."""
        claim = ClaimIdentity(plan.namespace, plan.name, plan.uid, plan.pod_claim)
        try:
            cards = [self._card(device, link) for device, link in inside]
            return [self._file(claim, folder, cards) for folder in sorted({request_folder(c.request) for c in cards})]
        except (OSError, DranetError, ValueError) as error:
            log.warning("no device metadata for the containers of claim %s: %s", plan.ref, error)
            return []

    def remove(self, claim_uid: str) -> None:
        """The claim's containers are gone, or never were."""
        shutil.rmtree(self.folder / claim_uid, ignore_errors=True)

    def _file(self, claim: ClaimIdentity, request: str, cards: Sequence[PodCard]) -> Mount:
        own = [card for card in cards if request_folder(card.request) == request]
        path = self.folder / claim.uid / f"{request}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}.new")
        hidden.write_bytes(stream(claim, own))
        hidden.chmod(0o644)
        hidden.replace(path)
        return Mount(str(path), container_path(claim, request))

    def _card(self, device: DevicePlan, link: Link | None) -> PodCard:
        published = device.snapshot.get("device") or {}
        wanted = device.wanted
        cidrs = tuple(address.cidr for address in wanted.addresses) if wanted is not None and link is not None else ()
        rdma = device.rdma.device if device.rdma else ""
        card = PodCard(
            request=device.request,
            pool=device.pool,
            device=device.name,
            attributes=published.get("attributes") or {},
            interface=link.name if link else "",
            addresses=cidrs,
            mac=link.mac if link else "",
            rdma_device=rdma,
            fabric=_fabric(rdma, link),
        )
        return card if card.fabric != ROCE or not cidrs else self._with_gids(card)

    def _with_gids(self, card: PodCard) -> PodCard:
        """With the port's table, once it has an entry for the card's own address."""
        end = time.monotonic() + _GID_SECONDS
        while True:
            table: list[Gid] = read_gids(Sysfs(self._sysfs_root), card.rdma_device, card.port)
            seen = card.with_gids(table)
            # An empty table is one that cannot be seen from here, as in RDMA's exclusive mode: waiting shows no more.
            if not table or seen.gid is not None or time.monotonic() > end:
                return seen
            time.sleep(0.01)


def _fabric(rdma: str, link: Link | None) -> str:
    if not rdma:
        return ""
    if rdma.startswith(("rdmap", "efa_")):
        return EFA
    return INFINIBAND if link is None or link.encapsulation == "infiniband" else ROCE
