"""The plan of a claim: everything known at prepare, in the form in which the store keeps it.

Prepare decides and writes a plan. Attach carries it out and decides nothing. Detach needs only the plan and the current
state of the kernel. A plan therefore holds both sides of a device: its state on the host, and its configuration in the
pod.

The names on disk are those of the first version (`host` for the host state, `pod` for the pod configuration). Later
additions have fields of their own, so that the previous driver can read what this one writes. Features that came later
keep their records under `parts`, by tag.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import field

from dranet.core.errors import DranetError
from dranet.core.names import ClaimRef, exclude_each_other
from dranet.node.records.kernel_rows import AddressRow, LinkRow, NeighbourRow, NexthopRow, RouteRow, RuleRow

VERSION = 2
"""The format that this driver writes: format 1 had no `use`, no `parts` and no version."""


class UnreadablePlan(DranetError):
    """A stored plan that this driver cannot read. Only its own claim is affected."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Immutable and compact on disk."""


class PodRef(Record, frozen=True):
    """The pod that a claim is reserved for."""

    uid: str
    name: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class CharDevice(Record, frozen=True):
    """A character device node that containers get."""

    path: str
    major: int
    minor: int


class RdmaRecord(Record, frozen=True):
    """The RDMA device of a NIC. An empty name moves nothing: admin access to the character devices."""

    device: str
    char_devices: tuple[CharDevice, ...] = ()


class VrfRecord(Record, frozen=True):
    """The VRF device that the interface joins in the pod."""

    name: str
    table: int


class DisciplineRow(Record, frozen=True):
    """A queueing discipline in the kernel's own form."""

    parent: int
    handle: int
    kind: str
    options: bytes = b""


class TrafficRow(Record, frozen=True):
    """A nested qdisc, a class or a filter, in the kernel's own form; `type` is the netlink message that adds it."""

    type: int
    parent: int
    handle: int
    kind: str
    info: int = 0
    options: bytes = b""
    chain: int = 0


class SavedSettings(Record, frozen=True):
    """Settings that a pod may change although its claim did not ask for it; None where they could not be read."""

    features: tuple[str, ...] | None = None
    """The changeable offload features that are switched on."""
    private_flags: Mapping[str, bool] | None = None
    tables: Mapping[str, Mapping[str, bytes]] | None = None
    """Rings, channels, coalescing and pauses, by the kernel's attribute numbers."""
    disciplines: tuple[DisciplineRow, ...] | None = None
    programs: tuple[int, ...] | None = None
    """The ids of XDP and TCX programs."""
    traffic: tuple[TrafficRow, ...] | None = None
    """Classes, nested qdiscs and filters, parents first."""
    hardware_addresses: tuple[str, ...] | None = None
    """Unicast addresses that the link accepts besides its own (`bridge fdb`)."""
    multicast: tuple[str, ...] | None = None
    """Static multicast addresses (`ip maddr`)."""


class HostState(Record, frozen=True):
    """The state of a network interface on the host before it was attached; detach restores it."""

    link: LinkRow
    pci: str | None = None
    addresses: tuple[AddressRow, ...] = ()
    routes: tuple[RouteRow, ...] = ()
    rules: tuple[RuleRow, ...] = ()
    neighbours: tuple[NeighbourRow, ...] = ()
    features: Mapping[str, bool] = {}
    private_flags: Mapping[str, bool] = {}
    saved_settings: SavedSettings | None = field(name="unasked", default=None)
    nexthops: tuple[NexthopRow, ...] = ()


class PodConfig(Record, frozen=True):
    """The interface as the pod gets it. Link indexes are zero until the interface is in the pod."""

    name: str
    mtu: int | None = None
    mac: str | None = None
    sizes: Mapping[str, int] = {}
    """GSO and GRO limits by the names of `linux.links.change`."""
    sysctls: Mapping[str, str] = {}
    """Settings below net/."""
    addresses: tuple[AddressRow, ...] = ()
    routes: tuple[RouteRow, ...] = ()
    rules: tuple[RuleRow, ...] = ()
    neighbours: tuple[NeighbourRow, ...] = ()
    features: Mapping[str, bool] = {}
    private_flags: Mapping[str, bool] = {}
    detach_bpf: bool = False
    vrf: VrfRecord | None = None
    dhcp: bool = False
    verify_routes: bool = False
    """Ask the kernel, after configuring, whether the addresses send by these routes."""


class AttachMode(enum.Enum):
    """How a claim uses a device."""

    MOVED = "moved"
    """The network interface moves into the pod, with its RDMA device where it has one."""
    SHARED = "shared"
    """The NIC stays on the host; the pod gets a child interface of it."""
    RDMA_ONLY = "rdma-only"
    """No network interface: only the RDMA device."""
    ADMIN = "admin"
    """Admin access to a device that other claims may hold: nothing moves, and no claim waits for it."""
    PENDING = "pending"
    """Not planned yet: holds only what has to be released if planning fails."""
    UNSPECIFIED = ""
    """Written by format 1, which had no mode; replaced by the mode that the other fields imply."""


class DevicePlan(Record, frozen=True):
    """One allocated device."""

    name: str = field(name="device")
    pool: str
    request: str
    share_id: str | None = None
    consumed: Mapping[str, str] = {}
    """The part of each capacity that its share has."""
    mode: AttachMode = field(name="use", default=AttachMode.UNSPECIFIED)
    host_state: HostState | None = field(name="host", default=None)
    pod_config: PodConfig | None = field(name="pod", default=None)
    rdma: RdmaRecord | None = None
    profile: str | None = None
    profile_config: Mapping[str, Any] = {}
    lease: Mapping[str, Any] = {}
    snapshot: Mapping[str, Any] = {}
    """The device as it was published, so that it stays published unchanged while a pod has it."""
    feature_records: Mapping[str, Mapping[str, Any]] = field(name="parts", default={})
    """Records of the features that came after format 1, by tag."""
    environment: tuple[str, ...] = ()
    """Communication libraries whose settings containers get; drivers that do not know this field set none."""

    def __post_init__(self) -> None:
        if self.mode is AttachMode.UNSPECIFIED:
            msgspec.structs.force_setattr(self, "mode", _mode_of_format_1(self))

    @property
    def key(self) -> tuple[str, str | None]:
        """Identifies a device within its claim: several shares of one NIC are several devices."""
        return self.name, self.share_id

    def conflicts_with(self, device: str, share_id: str | None) -> bool:
        """Whether no other claim can have that device, or that share of it, because of this plan."""
        whole = self.share_id is None or share_id is None or self.share_id == share_id
        return exclude_each_other(self.name, device) and whole and self.mode is not AttachMode.ADMIN


def _mode_of_format_1(device: DevicePlan) -> AttachMode:
    """In format 1, admin access to a NIC looks like an RDMA-only device, except that its snapshot has a netdev."""
    if device.host_state is not None:
        return AttachMode.MOVED
    if device.profile is not None and device.rdma is None:
        return AttachMode.PENDING
    has_netdev = (device.snapshot.get("netdev") or {}).get("place", "none") != "none"
    return AttachMode.ADMIN if device.rdma is None or has_netdev else AttachMode.RDMA_ONLY


def additional_uid(claim_uid: str, pod_uid: str) -> str:
    """The key of the plan of an additional pod of a shared claim. UIDs of Kubernetes contain no dot."""
    return f"{claim_uid}.{pod_uid}"


class ClaimPlan(Record, frozen=True):
    """One claim in one pod: the pod, its devices, and the network namespace that has them now.

    A shared claim has one plan for each of its pods. The key of the first plan is the claim's UID; the plans of
    additional pods have :func:`additional_uid`. Each plan is attached and released independently.
    """

    uid: str
    namespace: str
    name: str
    pod: PodRef
    devices: tuple[DevicePlan, ...] = ()
    named: bool | None = None
    """Whether any container of the pod names the claim; None where the pod could not be read."""
    netns: str | None = None
    """The pod's network namespace while the devices are, or may be, inside it."""
    boot: str = ""
    """The boot ID of the machine when the host state was read; after a reboot that state is mostly void."""
    attached: bool = False
    """Whether every device was attached and configured in `netns`, so that containers of the pod may have run since."""
    pod_claim: str = ""
    """The pod's own name for a claim that was created from a template; empty for a claim it names directly."""
    provisional: bool = False
    """Written before a profile provider or DHCP server was asked, so that a crash cannot leak what it gave."""
    gpus: tuple[str, ...] = ()
    """PCI addresses of the claim's devices of other drivers; looked up only where containers get NCCL settings."""
    own_variables: tuple[str, ...] = ()
    """Environment variables that the pod's containers set themselves; the driver does not override them."""

    @property
    def ref(self) -> ClaimRef:
        return ClaimRef(self.namespace, self.name, self.uid.partition(".")[0])

    @property
    def is_additional(self) -> bool:
        """Whether another pod has the claim's first plan."""
        return self.uid != self.ref.uid

    @property
    def is_unfinished_addition(self) -> bool:
        """Whether planning of an additional pod was interrupted; it starts again when the pod is seen next."""
        return self.is_additional and self.provisional

    @property
    def is_shared(self) -> bool:
        """Whether any of its NICs stays on the host, where other claims may share it."""
        return any(device.mode is AttachMode.SHARED for device in self.devices)

    @property
    def sets_environment(self) -> bool:
        """Whether containers get settings of a communication library."""
        return any(device.environment for device in self.devices)

    @property
    def char_devices(self) -> tuple[CharDevice, ...]:
        """The character devices of all its devices, each once, by path."""
        found = {node.path: node for device in self.devices if device.rdma for node in device.rdma.char_devices}
        return tuple(found[path] for path in sorted(found))


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first fields of every row; rows of format 1 have none."""

    version: int = 1
    oldest_reader: int = 1


def oldest_reader(plan: ClaimPlan) -> int:
    """The oldest format whose driver can use this plan. Format 1 knows no later features."""
    is_new = any(device.feature_records or device.mode is AttachMode.SHARED for device in plan.devices)
    return 2 if is_new else 1


_HEADERS = {n: msgspec.json.encode(_Header(version=VERSION, oldest_reader=n)) for n in range(1, VERSION + 1)}


def encode(plan: ClaimPlan) -> bytes:
    """The row of a plan: one JSON object, the header's fields first."""
    return _HEADERS[oldest_reader(plan)][:-1] + b"," + msgspec.json.encode(plan)[1:]


def decode(raw: bytes) -> ClaimPlan:
    """The plan in a row; raises UnreadablePlan."""
    try:
        header = msgspec.json.decode(raw, type=_Header)
        if header.oldest_reader > VERSION:
            raise UnreadablePlan(
                f"it was written by a newer driver (format {header.version}; this driver reads up to format "
                f"{VERSION}); run that driver until the pods of this claim are deleted"
            )
        return msgspec.json.decode(raw, type=ClaimPlan)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadablePlan(
            f"its row in the store cannot be read ({error}); run the driver that wrote it, "
            "or see docs/tasks/troubleshooting.md"
        ) from error
