"""A device as its pod has it: the source of all files and settings for that pod."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
from msgspec.structs import replace

from dranet.core.errors import KernelError
from dranet.core.logs import get_logger
from dranet.linux.gids import Gid, own_gid, read_gids
from dranet.linux.links import Link
from dranet.linux.sysfs import Sysfs, mount_sysfs
from dranet.node.namespaces import PodNamespace
from dranet.node.records.plan import DevicePlan

log = get_logger(__name__)

INFINIBAND, ROCE, EFA = "infiniband", "roce", "efa"

_GID_SECONDS = 0.2
"""The kernel adds GIDs a moment after the address is set; a device whose GID takes longer is written without one."""


class ClaimIdentity(msgspec.Struct, frozen=True):
    """The claim, and the pod's own name for it where it was created from a template."""

    namespace: str
    name: str
    uid: str
    pod_claim_name: str = ""


class PodDevice(msgspec.Struct, frozen=True):
    """One device of a claim after attach."""

    request: str
    """With its sub-request: `nic/fast`."""
    pool: str
    device: str
    attributes: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    """As published in the slice, in the API's form."""
    interface: str = ""
    """Its name in the pod; empty for an RDMA-only device."""
    addresses: Sequence[str] = ()
    """With prefix length."""
    mac: str = ""
    rdma_device: str = ""
    port: int = 1
    fabric: str = ""
    """One of INFINIBAND, ROCE, EFA; empty without RDMA."""
    gid: Gid | None = None
    """The GID of the device's own address, read after attach; None where it is not certain."""

    def with_gid_of(self, table: Iterable[Gid]) -> PodDevice:
        """The device with its own entry of its port's GID table, as the pod sees it."""
        own = [ipaddress.ip_interface(address).ip for address in self.addresses]
        return replace(self, gid=own_gid(table, self.interface, own))

    @property
    def verbs_name(self) -> str:
        """The RDMA port as NCCL and UCX write it."""
        return f"{self.rdma_device}:{self.port}" if self.rdma_device else ""


def pod_device(sysfs_root: str, pod: PodNamespace, plan: DevicePlan, link: Link | None) -> PodDevice:
    """A device of a plan with its interface in the pod."""
    published = plan.snapshot.get("device") or {}
    config = plan.pod_config
    cidrs = tuple(address.cidr for address in config.addresses) if config is not None and link is not None else ()
    rdma = plan.rdma.device if plan.rdma else ""
    device = PodDevice(
        request=plan.request,
        pool=plan.pool,
        device=plan.name,
        attributes=published.get("attributes") or {},
        interface=link.name if link else "",
        addresses=cidrs,
        mac=link.mac if link else "",
        rdma_device=rdma,
        fabric=_fabric(rdma, link),
    )
    return device if device.fabric != ROCE or not cidrs else _with_gid(sysfs_root, pod, device)


def _with_gid(sysfs_root: str, pod: PodNamespace, device: PodDevice) -> PodDevice:
    with ExitStack() as stack:
        sysfs = Sysfs(sysfs_root)
        # In RDMA's exclusive mode the host does not show a device of a pod: the pod's own sysfs has its GID table.
        if not sysfs.exists("class/infiniband", device.rdma_device):
            try:
                sysfs = stack.enter_context(mount_sysfs(pod.namespace.fd))
            except KernelError as error:
                log.warning("Cannot read RDMA GIDs", device=device.device, rdma_device=device.rdma_device, error=error)
                return device
        end = time.monotonic() + _GID_SECONDS
        while True:
            seen = device.with_gid_of(read_gids(sysfs, device.rdma_device, device.port))
            if seen.gid is not None or time.monotonic() > end:
                return seen
            time.sleep(0.01)


def _fabric(rdma: str, link: Link | None) -> str:
    if not rdma:
        return ""
    if rdma.startswith(("rdmap", "efa_")):
        return EFA
    return INFINIBAND if link is None or link.encapsulation == "infiniband" else ROCE
