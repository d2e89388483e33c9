"""What a part is: one aspect of a device, with one record on disk and the steps of its life.

A step is a generator. What it yields are netlink messages; what comes back are the kernel's answers to them, None for
done. `moving` runs the steps of all cards side by side and makes one conversation of what they yield in the same round,
so eight cards cost eight kernel moves and nothing else; a step itself is written for one card. What netlink cannot do
(ethtool, sysctls, RDMA) is done between two yields.

The steps, in the order of a device's life:

    plan      what will be needed, from the node as it is and what was asked (prepare; may say no)
    note      how the card was found, as far as only the way home needs it (once the kubelet is answered)
    ready     what can be done on the host before the pod exists
    enter     over from the host into the pod
    settle    in the pod, before the interface is raised
    rise      in the pod: addresses, up, routes
    leave     out of the pod again
    restore   on the host, as it was found
    adopt     recognise what is in a pod although nobody remembers having put it there

On the way in the parts come in the order of their `place`, on the way home in the opposite order. `leave` and `restore`
are repeated after every crash: they look at what is there and do what is missing.
"""

from __future__ import annotations

import errno
from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from dranet.driver.namespaces import Host, PodNamespace
from dranet.driver.parts.host_tables import HostTables
from dranet.driver.records.plan import DevicePlan, UnreadablePlan, Use
from dranet.inventory.snapshot import NodeDevice
from dranet.kernel.codec import Message
from dranet.kernel.links import Link
from dranet.kernel.netlink import NetlinkError
from dranet.kernel.sysfs import Sysfs
from dranet.kube.claims import Condition
from dranet.model.device import Device
from dranet.model.errors import DranetError
from dranet.model.netconfig import NetworkConfig

R = TypeVar("R")
T = TypeVar("T")

Answers = Sequence[NetlinkError | None]
Step = Generator[Sequence[Message], Answers, T]
Work = Step[None]
Problems = Step[list[str]]
Said = Step[tuple[Condition, ...]]
"""What the claim's status says of the device once it is in."""


class AttachError(DranetError):
    """A card could not be given to its pod; says which and why."""


class Node(msgspec.Struct, frozen=True):
    """Where plans are made: the host's namespace, a picture of its tables, and its devices' files."""

    host: Host
    tables: HostTables
    sysfs: Sysfs
    dev_root: str = "/"


class Witness(msgspec.Struct, frozen=True):
    """What is known of a device in a pod when the store is lost: what was published, and what the claim asks for."""

    node: Node
    pod: PodNamespace
    published: Device
    config: NetworkConfig
    recorded: NetworkConfig | None = None
    """How the reference driver had configured it in the pod, where that one brought it there."""
    taken: frozenset[int] = frozenset()
    """Links of the pod that are other devices, by index."""


class Part(Generic[R]):
    """One aspect of devices. Every step does nothing unless a part says otherwise."""

    tag: ClassVar[str]
    """Its name, on disk and in the places where tests kill the driver."""
    place: ClassVar[int]
    """Where it stands on the way in; the way home is the opposite."""
    version: ClassVar[int] = 1
    record: ClassVar[type[msgspec.Struct]]

    def of(self, device: DevicePlan) -> R | None:
        """This part's record of the device; None where the device has nothing of it."""
        raw = device.parts.get(self.tag)
        if raw is None:
            return None
        if raw.get("version", 1) > self.version:
            raise UnreadablePlan(f"its part {self.tag} was written by a newer driver: run that one again")
        try:
            found: R = msgspec.convert(raw, self.record)  # type: ignore[assignment]
        except msgspec.ValidationError as error:
            raise UnreadablePlan(f"its part {self.tag} cannot be read ({error})") from error
        return found

    def keep(self, device: DevicePlan, record: R) -> DevicePlan:
        """The device with this part's record."""
        built: Mapping[str, Any] = {"version": self.version, **msgspec.to_builtins(record)}
        return msgspec.structs.replace(device, parts={**device.parts, self.tag: built})

    def plan(self, node: Node, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        """The device with what this part will need; raises InvalidInput with everything that cannot be."""
        return device

    def note(self, host: Host, tables: HostTables, device: DevicePlan, card: Link) -> DevicePlan:
        """The device with what this part will put back. The card has not been in a pod since it was found."""
        return device

    def is_noted(self, device: DevicePlan) -> bool:
        """Whether `note` has nothing more to add."""
        return True

    def ready(self, host: Host, device: DevicePlan, card: Link) -> Work:
        yield from ()

    def may_refuse(self, device: DevicePlan) -> bool:
        """Whether the kernel may say no to `ready`: then the kubelet is answered afterwards, so that it hears why."""
        return self.of(device) is not None

    def enter(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link) -> Work:
        yield from ()

    def settle(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link) -> Work:
        yield from ()

    def rise(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link | None) -> Said:
        yield from ()
        return ()

    def leave(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link | None) -> Problems:
        yield from ()
        return []

    def restore(self, host: Host, tables: HostTables, device: DevicePlan, card: Link | None) -> Problems:
        yield from ()
        return []

    def adopt(self, witness: Witness, device: DevicePlan) -> DevicePlan:
        """The device with what this part finds of it in the pod."""
        return device


class Carrier(Part[R]):
    """The part that brings the interface of a device: it knows which link of the kernel is that interface.

    A device has one or none: none where only RDMA is given, or nothing at all.
    """

    use: ClassVar[Use]

    def at_home(self, host: Host, devices: Sequence[DevicePlan], *, settings: bool = False) -> list[Link | None]:
        """The links on the host, all in one conversation; None for one that is not there."""
        raise NotImplementedError

    def in_pod(self, host: Host, pod: PodNamespace, devices: Sequence[DevicePlan]) -> list[Link | None]:
        """The links in the pod, all in one conversation; None for one that is not there."""
        raise NotImplementedError

    def fetch(self, host: Host, device: DevicePlan, *, last_resort: bool) -> None:
        """Get home what is neither in its pod nor on the host; raises where it must not be given up.

        The last resort may take seconds and costs whatever the device does besides.
        """

    def seen_again(self, host: Host, devices: Sequence[DevicePlan]) -> list[DevicePlan]:
        """Plans from before a reboot, with what is on the host as the machine has set it up now."""
        return list(devices)


def refusals(answers: Answers) -> list[NetlinkError]:
    """What the kernel refused, except what was there already."""
    return [error for error in answers if error is not None and error.errno != errno.EEXIST]


def raise_first(answers: Answers) -> None:
    """Raise the first refusal of messages that build on each other."""
    for error in answers:
        if error is not None:
            raise error
