"""A card as its pod has it: everything the files and settings for that pod are made from."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dranet.model.gids import Gid, own_gid

INFINIBAND, ROCE, EFA = "infiniband", "roce", "efa"


class ClaimIdentity(msgspec.Struct, frozen=True):
    """The claim, and how the pod calls it where the claim was made from a template."""

    namespace: str
    name: str
    uid: str
    pod_claim_name: str = ""


class PodCard(msgspec.Struct, frozen=True):
    """One device of a claim after attach."""

    request: str
    """With its sub-request: `nic/fast`."""
    pool: str
    device: str
    attributes: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    """As published in the slice, in the API's form."""
    interface: str = ""
    """Its name in the pod; empty for a device that is RDMA only."""
    addresses: Sequence[str] = ()
    """With prefix length."""
    mac: str = ""
    rdma_device: str = ""
    port: int = 1
    fabric: str = ""
    """One of INFINIBAND, ROCE, EFA; empty without RDMA."""
    gid: Gid | None = None
    """The entry this card's traffic must use, read after attach; None where none is certain."""

    def with_gid_of(self, table: Iterable[Gid]) -> PodCard:
        """The same card with its own entry of its port's table, as the pod sees it."""
        own = [ipaddress.ip_interface(address).ip for address in self.addresses]
        return replace(self, gid=own_gid(table, self.interface, own))

    @property
    def verbs_name(self) -> str:
        """The RDMA port as NCCL and UCX write it."""
        return f"{self.rdma_device}:{self.port}" if self.rdma_device else ""
