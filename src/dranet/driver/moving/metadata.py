"""Metadata files for containers: written when the cards are in the pod and before the receipt lets containers start.

The files of a claim lie in a folder of its UID: a claim made anew under the same name cannot lose its files to the end
of the old one. They are information only: where they cannot be written, that is said, and the pod starts without them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from dranet.driver.moving.told import Mount, write_whole
from dranet.driver.records.plan import ClaimPlan
from dranet.podfacts.card import ClaimIdentity, PodCard
from dranet.podfacts.metadata import container_path, request_folder, stream

log = logging.getLogger(__name__)


def write_metadata(folder: Path, plan: ClaimPlan, cards: Sequence[PodCard]) -> tuple[Mount, ...]:
    """One file a request; the mounts that bring them into containers."""
    claim = ClaimIdentity(plan.namespace, plan.name, plan.uid, plan.pod_claim)
    requests = sorted({request_folder(card.request) for card in cards})
    try:
        return tuple(_file(folder, claim, request, cards) for request in requests)
    except OSError as error:
        log.warning("no device metadata for the containers of claim %s: %s", plan.ref, error)
        return ()


def _file(folder: Path, claim: ClaimIdentity, request: str, cards: Sequence[PodCard]) -> Mount:
    path = folder / claim.uid / f"{request}.json"
    write_whole(path, stream(claim, [card for card in cards if request_folder(card.request) == request]))
    return Mount(str(path), container_path(claim, request))
