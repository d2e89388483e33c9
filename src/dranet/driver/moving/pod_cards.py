"""Cards as their pod has them, with the GID of their own address: read after attach, because nobody knows it before.

In RDMA's exclusive mode the node does not show the table of a device that is in a pod: there it is read from the
pod's own sysfs.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack

from dranet.driver.namespaces import PodNamespace
from dranet.driver.records.plan import DevicePlan
from dranet.kernel.errors import KernelError
from dranet.kernel.gids import read_gids
from dranet.kernel.links import Link
from dranet.kernel.namespace_sysfs import sysfs_of
from dranet.kernel.sysfs import Sysfs
from dranet.podfacts.card import EFA, INFINIBAND, ROCE, PodCard

log = logging.getLogger(__name__)

GID_SECONDS = 0.2
"""The kernel makes GIDs a moment after the address is set; a card whose GID takes longer is told without one."""


def pod_card(sysfs_root: str, pod: PodNamespace, device: DevicePlan, link: Link | None) -> PodCard:
    """One device, whose interface in the pod this is."""
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
    return card if card.fabric != ROCE or not cidrs else _with_gid(sysfs_root, pod, card)


def _with_gid(sysfs_root: str, pod: PodNamespace, card: PodCard) -> PodCard:
    """With the entry of its own address, once the port's table has it."""
    with ExitStack() as stack:
        sysfs = Sysfs(sysfs_root)
        if not sysfs.exists("class/infiniband", card.rdma_device):
            try:
                sysfs = stack.enter_context(sysfs_of(pod.namespace.fd))
            except KernelError as error:
                log.warning("the GIDs of %s cannot be read: %s", card.rdma_device, error)
                return card
        end = time.monotonic() + GID_SECONDS
        while True:
            seen = card.with_gid_of(read_gids(sysfs, card.rdma_device, card.port))
            if seen.gid is not None or time.monotonic() > end:
                return seen
            time.sleep(0.01)


def _fabric(rdma: str, link: Link | None) -> str:
    if not rdma:
        return ""
    if rdma.startswith(("rdmap", "efa_")):
        return EFA
    return INFINIBAND if link is None or link.encapsulation == "infiniband" else ROCE
