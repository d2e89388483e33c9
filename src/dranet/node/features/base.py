"""The interface of a feature: one aspect of a device, with one record on disk and the steps of its lifecycle.

A step is a generator. It yields netlink messages and gets the kernel's answers to them, None for success. The
lifecycle runs the steps of all devices side by side and sends what they yield in the same round as one netlink batch,
so a step is written for one device. What netlink cannot do (ethtool, sysctls, RDMA) happens between two yields.

The steps, in the order of a device's life:

    plan           decide what will be needed, from the host and the claim (in prepare; may refuse)
    save_settings  record the host state that only `restore` needs (after the reply to the kubelet)
    set_up         do on the host what is possible before the pod exists
    attach         move or create the link in the pod's network namespace
    configure      configure the link in the pod, before it is up
    bring_up       in the pod: addresses, up, routes
    detach         remove the link from the pod
    restore        restore the host state
    recover        rebuild the record of an attached device after the store was lost

Features run in ascending `order` up to `bring_up`, and in descending order in `detach` and `restore`. Both are repeated
after a crash: they compare with the kernel and do what is missing.
"""

from __future__ import annotations

import errno
from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from dranet.core import attributes
from dranet.core.device import Device
from dranet.core.errors import DranetError
from dranet.core.netconfig import NetworkConfig
from dranet.kubernetes.api.claims import Condition
from dranet.linux.codec import Message
from dranet.linux.links import Link
from dranet.linux.netlink import NetlinkError
from dranet.linux.sysfs import Sysfs
from dranet.node.features.host_tables import HostTables
from dranet.node.inventory.snapshot import NodeDevice
from dranet.node.namespaces import Host, PodNamespace
from dranet.node.records.plan import AttachMode, DevicePlan, UnreadablePlan

R = TypeVar("R")
T = TypeVar("T")

Answers = Sequence[NetlinkError | None]
Step = Generator[Sequence[Message], Answers, T]
Work = Step[None]
Problems = Step[list[str]]
Conditions = Step[tuple[Condition, ...]]


class AttachError(DranetError):
    """A device cannot be attached to its pod; says which and why."""


class NodeContext(msgspec.Struct, frozen=True):
    """What `plan` reads: the host network namespace, its tables, and sysfs."""

    host: Host
    tables: HostTables
    sysfs: Sysfs
    dev_root: str = "/"


class RecoveryContext(msgspec.Struct, frozen=True):
    """What is known about an attached device after the store was lost: the published device and the claim's config."""

    node: NodeContext
    pod: PodNamespace
    published: Device
    config: NetworkConfig
    recorded: NetworkConfig | None = None
    """The configuration in the pod, where the reference driver attached the device."""
    taken: frozenset[int] = frozenset()
    """Indexes of the pod's links that belong to other devices."""

    @property
    def rdma_device(self) -> str | None:
        """The name of the published RDMA device."""
        name = self.published.attributes.get(attributes.RDMA_DEVICE)
        return str(name) if name else None


class Feature(Generic[R]):
    """One aspect of devices. A step that a feature does not define does nothing."""

    tag: ClassVar[str]
    """Its name on disk and in fault points."""
    order: ClassVar[int]
    version: ClassVar[int] = 1
    record_type: ClassVar[type[msgspec.Struct]]

    def record_of(self, device: DevicePlan) -> R | None:
        """The feature's record of the device; None for a device without the feature."""
        raw = device.feature_records.get(self.tag)
        if raw is None:
            return None
        if raw.get("version", 1) > self.version:
            raise UnreadablePlan(f"a newer driver wrote the record of feature {self.tag}: run that driver again")
        try:
            found: R = msgspec.convert(raw, self.record_type)  # type: ignore[assignment]
        except msgspec.ValidationError as error:
            raise UnreadablePlan(f"cannot read the record of feature {self.tag} ({error})") from error
        return found

    def require(self, device: DevicePlan) -> R:
        """The feature's record of a device that has the feature."""
        record = self.record_of(device)
        assert record is not None, f"{device.name} has no {self.tag}"
        return record

    def with_record(self, device: DevicePlan, record: R) -> DevicePlan:
        """The device with the feature's record."""
        built: Mapping[str, Any] = {"version": self.version, **msgspec.to_builtins(record)}
        return msgspec.structs.replace(device, feature_records={**device.feature_records, self.tag: built})

    def plan(self, node: NodeContext, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        """The device with the feature's record; raises InvalidInput with all problems of the config."""
        return device

    def save_settings(self, host: Host, tables: HostTables, device: DevicePlan, link: Link) -> DevicePlan:
        """The device with the settings to restore. The link has not been in a pod since `plan`."""
        return device

    def has_saved_settings(self, device: DevicePlan) -> bool:
        """Whether `save_settings` has nothing to add."""
        return True

    def set_up(self, host: Host, device: DevicePlan, link: Link) -> Work:
        yield from ()

    def set_up_may_fail(self, device: DevicePlan) -> bool:
        """Whether the kernel may refuse `set_up`: then it runs before the reply, so that the kubelet gets the error."""
        return self.record_of(device) is not None

    def attach(self, host: Host, pod: PodNamespace, device: DevicePlan, link: Link) -> Work:
        yield from ()

    def configure(self, host: Host, pod: PodNamespace, device: DevicePlan, link: Link) -> Work:
        yield from ()

    def bring_up(self, host: Host, pod: PodNamespace, device: DevicePlan, link: Link | None) -> Conditions:
        """Returns the conditions of the device in the claim's status."""
        yield from ()
        return ()

    def detach(self, host: Host, pod: PodNamespace, device: DevicePlan, link: Link | None) -> Problems:
        yield from ()
        return []

    def restore(self, host: Host, tables: HostTables, device: DevicePlan, link: Link | None) -> Problems:
        yield from ()
        return []

    def recover(self, context: RecoveryContext, device: DevicePlan) -> DevicePlan:
        """The device with the feature's record, from what the pod shows."""
        return device


class LinkProvider(Feature[R]):
    """The feature that provides the network interface of a device, and knows which link of the kernel it is.

    A device has at most one: RDMA-only devices and admin access have none.
    """

    mode: ClassVar[AttachMode]

    def find_on_host(self, host: Host, devices: Sequence[DevicePlan], *, settings: bool = False) -> list[Link | None]:
        """The links on the host, read in one batch; None for one that is not there."""
        raise NotImplementedError

    def find_in_pod(self, host: Host, pod: PodNamespace, devices: Sequence[DevicePlan]) -> list[Link | None]:
        """The links in the pod, read in one batch; None for one that is not there."""
        raise NotImplementedError

    def reclaim(self, host: Host, device: DevicePlan, *, last_resort: bool) -> None:
        """Get a link back that is neither in its pod nor on the host; raises for one that must not be given up.

        The last resort may take seconds and interrupts whatever else the device does.
        """

    def is_elsewhere(self, host: Host, device: DevicePlan) -> bool:
        """Whether the link is in some namespace, for one that is neither in its pod nor on the host. Moves nothing."""
        return False

    def refresh_after_reboot(self, host: Host, devices: Sequence[DevicePlan]) -> list[DevicePlan]:
        """Plans from before a reboot, with the host state that the machine has set up since."""
        return list(devices)


def name_taken(device: DevicePlan, name: str) -> AttachError:
    """The error for a pod that has an interface with the configured name."""
    return AttachError(f"the pod already has an interface named {name}; give {device.name} another interface.name")


def refusals(answers: Answers) -> list[NetlinkError]:
    """The errors among the answers, except EEXIST."""
    return [error for error in answers if error is not None and error.errno != errno.EEXIST]


def raise_first(answers: Answers) -> None:
    """Raise the first error of messages that build on each other."""
    for error in answers:
        if error is not None:
            raise error
