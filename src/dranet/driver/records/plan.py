"""The plan of a claim: everything known at prepare, in the form in which it is kept on disk.

Prepare decides and writes a plan; attach carries it out and decides nothing; bringing a card home needs only the plan
and what the kernel shows. So a plan holds both sides of a card: how it was found on the node, and how the pod wants it.

The names on disk are those of the first version (`host` for what was found, `pod` for what is wanted), and what came
later stands beside them in fields of its own: so the driver before this one reads what this one writes. Parts that came
later keep their records under `parts`, each by its tag.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import field

from dranet.driver.records.kernel_rows import AddressRow, LinkRow, NeighbourRow, RouteRow, RuleRow
from dranet.model.errors import DranetError
from dranet.model.names import ClaimRef, exclude_each_other

VERSION = 2
"""What this driver writes: 1 had no `use`, no `parts` and no version."""


class UnreadablePlan(DranetError):
    """A stored plan that this driver cannot read; it costs its own claim, and nobody else, anything."""


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
    """The RDMA side of a card. Without a name there is nothing to move: an admin's view of the nodes."""

    device: str
    char_devices: tuple[CharDevice, ...] = ()


class VrfRecord(Record, frozen=True):
    """The VRF device the card joins in the pod."""

    name: str
    table: int


class DisciplineRow(Record, frozen=True):
    """A queueing discipline as the kernel tells and takes it."""

    parent: int
    handle: int
    kind: str
    options: bytes = b""


class Unasked(Record, frozen=True):
    """Settings of a card that a pod may change without having asked; None where they could not be read."""

    features: tuple[str, ...] | None = None
    """Those that are wanted, of all that can be changed."""
    private_flags: Mapping[str, bool] | None = None
    tables: Mapping[str, Mapping[str, bytes]] | None = None
    """Rings, channels, coalescing and pauses, by the kernel's own numbers."""
    disciplines: tuple[DisciplineRow, ...] | None = None
    programs: tuple[int, ...] | None = None
    """The ids of XDP and TCX programs."""


class Found(Record, frozen=True):
    """The card as it was found on the node: what it gets back when it comes home."""

    link: LinkRow
    pci: str | None = None
    addresses: tuple[AddressRow, ...] = ()
    routes: tuple[RouteRow, ...] = ()
    rules: tuple[RuleRow, ...] = ()
    neighbours: tuple[NeighbourRow, ...] = ()
    features: Mapping[str, bool] = {}
    private_flags: Mapping[str, bool] = {}
    unasked: Unasked | None = None


class Wanted(Record, frozen=True):
    """The interface as the pod gets it. Link indexes are zero until the interface is in the pod."""

    name: str
    mtu: int | None = None
    mac: str | None = None
    sizes: Mapping[str, int] = {}
    """GSO and GRO limits by the names of `kernel.links.change`."""
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


class Use(enum.Enum):
    """What a claim has of a device."""

    MOVED = "moved"
    """The network interface goes into the pod, with its RDMA device where it has one."""
    SHARED = "shared"
    """The card stays on the node; the pod gets something made from it."""
    RDMA_ONLY = "rdma-only"
    """No network interface: only the RDMA device."""
    ADMIN = "admin"
    """A look at a device that others may hold: nothing moves, nobody waits."""
    PENDING = "pending"
    """Not planned yet: only what has to be given back if it never is."""
    UNSAID = ""
    """Written by the first version, which did not say; replaced by what can be told from the rest."""


class DevicePlan(Record, frozen=True):
    """One allocated device."""

    name: str = field(name="device")
    pool: str
    request: str
    share_id: str | None = None
    consumed: Mapping[str, str] = {}
    """What of each capacity its share has."""
    use: Use = Use.UNSAID
    found: Found | None = field(name="host", default=None)
    wanted: Wanted | None = field(name="pod", default=None)
    rdma: RdmaRecord | None = None
    profile: str | None = None
    profile_config: Mapping[str, Any] = {}
    lease: Mapping[str, Any] = {}
    snapshot: Mapping[str, Any] = {}
    """The device as it was published, so that it stays published unchanged while a pod has it."""
    parts: Mapping[str, Mapping[str, Any]] = {}
    """Records of parts that came after the first version, by their tag."""
    environment: tuple[str, ...] = ()
    """Communication libraries that are told of it in containers; a driver that does not know this tells none."""

    def __post_init__(self) -> None:
        if self.use is Use.UNSAID:
            msgspec.structs.force_setattr(self, "use", _use_of_first_version(self))

    @property
    def key(self) -> tuple[str, str | None]:
        """What tells the devices of one claim apart: several shares of one card are several."""
        return self.name, self.share_id

    def conflicts(self, device: str, share_id: str | None) -> bool:
        """Whether somebody else cannot have that device, or that share of it, because of this plan."""
        whole = self.share_id is None or share_id is None or self.share_id == share_id
        return exclude_each_other(self.name, device) and whole and self.use is not Use.ADMIN


def _use_of_first_version(device: DevicePlan) -> Use:
    """The first version told only what a device brings: an admin's view of a card looks like an RDMA-only device whose
    snapshot, however, has a network interface."""
    if device.found is not None:
        return Use.MOVED
    if device.profile is not None and device.rdma is None:
        return Use.PENDING
    has_interface = (device.snapshot.get("netdev") or {}).get("place", "none") != "none"
    return Use.ADMIN if device.rdma is None or has_interface else Use.RDMA_ONLY


def uid_beside(claim_uid: str, pod_uid: str) -> str:
    """What the plan of a further pod of a claim goes by. No UID of Kubernetes has a dot."""
    return f"{claim_uid}.{pod_uid}"


class ClaimPlan(Record, frozen=True):
    """One claim in one pod: who has it, its devices, and where its cards are meant to be now.

    A claim that several pods name has a plan for each of them: the first goes by the claim's UID, those beside it by
    :func:`uid_beside`. Each lives and ends like the plan of a claim of its own.
    """

    uid: str
    namespace: str
    name: str
    pod: PodRef
    devices: tuple[DevicePlan, ...] = ()
    named: bool | None = None
    """Whether any container of the pod names the claim; None where that could not be learnt."""
    netns: str | None = None
    """The pod's network namespace while the cards are, or may be, inside it."""
    boot: str = ""
    """The machine's boot in which the cards were found; after another one what was found means little."""
    pod_claim: str = ""
    """How the pod calls a claim that was made from a template; empty for one it names itself."""
    provisional: bool = False
    """Written before a profile provider was asked, so that a crash cannot leak what it gave."""
    gpus: tuple[str, ...] = ()
    """PCI addresses of what other drivers give to the claim; looked up only where NCCL is told of the cards."""
    own_variables: tuple[str, ...] = ()
    """Variables that the pod's containers set themselves: these are not ours to set."""

    @property
    def ref(self) -> ClaimRef:
        return ClaimRef(self.namespace, self.name, self.uid.partition(".")[0])

    @property
    def is_beside(self) -> bool:
        """Whether another pod has the claim's first plan."""
        return self.uid != self.ref.uid

    @property
    def is_joining(self) -> bool:
        """Whether its pod was only about to join the others when it was written; who meets the pod begins again."""
        return self.is_beside and self.provisional

    @property
    def is_shared(self) -> bool:
        """Whether any of its cards stays on the node, where others may have something of it too."""
        return any(device.use is Use.SHARED for device in self.devices)

    @property
    def asks_for_settings(self) -> bool:
        """Whether any communication library is told of any of its devices."""
        return any(device.environment for device in self.devices)

    @property
    def char_devices(self) -> tuple[CharDevice, ...]:
        """Every node of the claim's cards once, by path."""
        found = {node.path: node for device in self.devices if device.rdma for node in device.rdma.char_devices}
        return tuple(found[path] for path in sorted(found))


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    """What every row begins with; a row without one is of the first version."""

    version: int = 1
    oldest_reader: int = 1


def oldest_reader(plan: ClaimPlan) -> int:
    """The oldest version whose driver can go on with this plan. The first one knows no parts but its own."""
    return 2 if any(device.parts or device.use is Use.SHARED for device in plan.devices) else 1


_HEADERS = {n: msgspec.json.encode(_Header(version=VERSION, oldest_reader=n)) for n in range(1, VERSION + 1)}


def encode(plan: ClaimPlan) -> bytes:
    """The row of a plan: one JSON object, our header's fields first."""
    return _HEADERS[oldest_reader(plan)][:-1] + b"," + msgspec.json.encode(plan)[1:]


def decode(raw: bytes) -> ClaimPlan:
    """The plan in a row; raises UnreadablePlan in words that say what to do."""
    try:
        header = msgspec.json.decode(raw, type=_Header)
        if header.oldest_reader > VERSION:
            raise UnreadablePlan(
                f"it was written by a newer driver (format {header.version}; this one reads up to {VERSION}): "
                "run that driver again until its pods have ended"
            )
        return msgspec.json.decode(raw, type=ClaimPlan)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadablePlan(
            f"its row in the store cannot be read ({error}): run the driver that wrote it; "
            "if none can read it, see docs/troubleshooting.md"
        ) from error
