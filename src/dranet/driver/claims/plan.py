"""The plan of a claim: everything known at prepare, in the form in which it is kept on disk.

Prepare decides and writes a plan; attach carries it out and decides nothing; bringing a card home needs only the plan
and what the kernel shows. So a plan holds both sides of a card: how it was found on the host, and how the pod wants it.
Records of the kernel room are embedded as they are; link indexes inside the pod side are zero until attach knows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dranet.kernel.addresses import Address
from dranet.kernel.links import Link
from dranet.kernel.neighbours import Neighbour
from dranet.kernel.routes import Route
from dranet.kernel.rules import Rule


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Immutable and compact on disk."""


class Consumer(_Record, frozen=True):
    """The pod that a claim is reserved for."""

    uid: str
    name: str
    namespace: str


class CharDevice(_Record, frozen=True):
    """A character device node that containers get."""

    path: str
    major: int
    minor: int


class RdmaPart(_Record, frozen=True):
    """The RDMA side of a card."""

    device: str
    char_devices: tuple[CharDevice, ...] = ()


class HostSide(_Record, frozen=True):
    """The card as it was found: what it gets back when it comes home."""

    link: Link
    pci: str | None = None
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    features: Mapping[str, bool] = {}
    private_flags: Mapping[str, bool] = {}


class VrfPart(_Record, frozen=True):
    """The VRF device the card joins in the pod."""

    name: str
    table: int


class PodSide(_Record, frozen=True):
    """The card as the pod gets it."""

    name: str
    mtu: int | None = None
    mac: str | None = None
    sizes: Mapping[str, int] = {}
    """GSO and GRO limits by the names of `kernel.links.change`."""
    sysctls: Mapping[str, str] = {}
    """Settings below net/, with `{name}` for the interface."""
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    features: Mapping[str, bool] = {}
    private_flags: Mapping[str, bool] = {}
    detach_bpf: bool = False
    vrf: VrfPart | None = None
    dhcp: bool = False


class DevicePlan(_Record, frozen=True):
    """One allocated device. Without a host side it has no netdev: only RDMA."""

    device: str
    pool: str
    request: str
    share_id: str | None = None
    host: HostSide | None = None
    pod: PodSide | None = None
    rdma: RdmaPart | None = None
    profile: str | None = None
    profile_config: Mapping[str, Any] = {}
    lease: Mapping[str, Any] = {}
    snapshot: Mapping[str, Any] = {}
    """The device as it was published, so that it stays published unchanged while a pod has it."""


class ClaimPlan(_Record, frozen=True):
    """One claim: who has it, its devices, and where its cards are meant to be now."""

    uid: str
    namespace: str
    name: str
    pod: Consumer
    devices: tuple[DevicePlan, ...] = ()
    named: bool | None = None
    """Whether any container of the pod names the claim; None where that could not be learnt."""
    netns: str | None = None
    """The pod's network namespace while the cards are, or may be, inside it."""
    boot: str = ""
    """The machine's boot in which the host sides were seen; after another one they mean little."""
    provisional: bool = False
    """Written before a profile provider was asked, so that a crash cannot leak what it gave."""

    @property
    def char_devices(self) -> tuple[CharDevice, ...]:
        """Every node of the claim's cards once, by path."""
        found = {node.path: node for device in self.devices if device.rdma for node in device.rdma.char_devices}
        return tuple(found[path] for path in sorted(found))


def encode(plan: ClaimPlan) -> bytes:
    return msgspec.json.encode(plan)


def decode(raw: bytes) -> ClaimPlan:
    return msgspec.json.decode(raw, type=ClaimPlan)
