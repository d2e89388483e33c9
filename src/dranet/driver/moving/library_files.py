"""Settings for communication libraries in a pod: one answer for all its claims.

A container may name several claims of its pod, and the runtime lets the last receipt win where two bring the same file
or variable. So every receipt of the pod brings the same: settings for all cards of the pod whose parameters name the
library, whichever claim they are of.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from dranet.driver.moving.told import Mount, Told, write_whole
from dranet.driver.records.plan import ClaimPlan
from dranet.kernel.sysfs import Sysfs
from dranet.model.attributes import PCI_BUS_ID
from dranet.podfacts.card import EFA, PodCard
from dranet.podfacts.settings import LIBRARIES, Settings, mpi_conf, nccl_conf, settings

log = logging.getLogger(__name__)

NCCL_CONF, MPI_CONF = "/etc/nccl.conf", "/root/.openmpi/mca-params.conf"
NCCL_TOPOLOGY = "/etc/dranet/nccl-topology.xml"

Asking = Sequence[tuple[Sequence[str], PodCard]]
"""Cards of a pod, each with the libraries that are to be told of it."""


class LibraryFiles:
    """Writes them below a folder that the runtime sees under the same path, one folder a claim."""

    def __init__(self, folder: Path, sysfs_root: str) -> None:
        self._folder = folder
        self._sysfs_root = sysfs_root

    def write(self, plans: Sequence[ClaimPlan], asking: Asking, primary: str) -> dict[str, Told]:
        """By claim, for those of the pod that ask for any; `primary` is the pod's own interface, or empty."""
        cards = {library: [card for names, card in asking if library in names] for library in LIBRARIES}
        gpus = {address for plan in plans for address in plan.gpus}
        topology = self._topology(cards["nccl"], gpus)
        found = settings(cards, primary=primary, topology=NCCL_TOPOLOGY if topology else "")
        found.leave_alone({name for plan in plans for name in plan.own_variables})
        for name, why in found.left_alone.items():
            log.info("%s is not set for containers: %s", name, why)
        files = {NCCL_CONF: nccl_conf(found), MPI_CONF: mpi_conf(found), NCCL_TOPOLOGY: topology}
        return {plan.uid: self._told(plan, files, found) for plan in plans if plan.asks_for_settings}

    def _told(self, plan: ClaimPlan, files: Mapping[str, bytes], found: Settings) -> Told:
        mounts = []
        for container, content in files.items():
            if content:
                path = self._folder / plan.uid / Path(container).name
                write_whole(path, content)
                mounts.append(Mount(str(path), container))
        return Told(tuple(mounts), found.environment)

    def _topology(self, cards: Sequence[PodCard], gpus: set[str]) -> bytes:
        """Only where there is something to be near to; EFA's plugin brings a file of its own."""
        if not gpus or not cards or any(card.fabric == EFA for card in cards):
            return b""
        from dranet.podfacts.nccl_topology import topology_file  # half a megabyte that few nodes ever need

        names = {_pci_address(card): card.rdma_device or card.interface for card in cards}
        nets = {**dict.fromkeys(gpus, ""), **{address: name for address, name in names.items() if address}}
        content, missing = topology_file(Sysfs(self._sysfs_root), nets)
        for address in missing:
            log.warning("%s is not on this node's PCI bus; NCCL's topology file leaves it out", address)
        return content


def _pci_address(card: PodCard) -> str:
    return str((card.attributes.get(PCI_BUS_ID) or {}).get("string", ""))
