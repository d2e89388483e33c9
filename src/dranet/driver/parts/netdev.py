"""The network interface that goes into the pod and comes back.

In the hook the runtime is waiting, so nothing is decided there: a card is moved, addressed and raised with as few
requests as the kernel allows. The first refusal stops the attach, and what was moved is brought home, so a pod never
starts with half of its cards. A card leaves its pod under a temporary name, because its old name may be taken.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from dranet.driver.namespaces import Host, PodNamespace
from dranet.driver.parts.base import (
    AttachError,
    Node,
    Problems,
    Witness,
    Work,
    raise_first,
    refusals,
)
from dranet.driver.parts.host_tables import HostTables
from dranet.driver.parts.interface import InterfaceInPod
from dranet.driver.parts.netdev_adopted import found_as_published
from dranet.driver.parts.netdev_checks import check_asked, check_may_leave
from dranet.driver.parts.netdev_fetch import fetch, unheard_of_name
from dranet.driver.parts.netdev_identity import find_at_home, find_in_pod, temporary_name
from dranet.driver.parts.netdev_restore import layer_messages, link_messages, names_to_free, settings_to_restore
from dranet.driver.parts.netdev_wanted import wanted
from dranet.driver.records.kernel_rows import LinkRow
from dranet.driver.records.plan import DevicePlan, Found, Use, Wanted
from dranet.inventory.snapshot import NodeDevice
from dranet.kernel import links, rules, sysctl
from dranet.kernel.codec import Message
from dranet.kernel.links import Link
from dranet.model import attributes
from dranet.model.device import Device
from dranet.model.netconfig import NetworkConfig


class NetdevRecord(NamedTuple):
    """Both sides of a card. On disk they are the fields `host` and `pod` of the device, as in the first version."""

    found: Found
    wanted: Wanted


class NetdevPart(InterfaceInPod[NetdevRecord]):
    """Moves a network interface."""

    tag, place, use = "netdev", 10, Use.MOVED

    def of(self, device: DevicePlan) -> NetdevRecord | None:
        if device.use is not Use.MOVED or device.found is None or device.wanted is None:
            return None
        return NetdevRecord(device.found, device.wanted)

    def keep(self, device: DevicePlan, record: NetdevRecord) -> DevicePlan:
        return msgspec.structs.replace(device, found=record.found, wanted=record.wanted)

    def _sides(self, device: DevicePlan) -> NetdevRecord:
        record = self.of(device)
        assert record is not None, f"{device.name} has no network interface"
        return record

    def plan(self, node: Node, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        if device.use is not Use.MOVED:
            return device
        link = check_asked(node.tables, seen, config)
        check_may_leave(node, seen, link)
        found = _recognisable(node.tables.found(link, str(seen.pci) if seen.pci else None), seen.device)
        return self.keep(device, NetdevRecord(found, wanted(config, found)))

    def at_home(self, host: Host, devices: Sequence[DevicePlan], *, settings: bool = False) -> list[Link | None]:
        return find_at_home(host.route, [self._sides(device) for device in devices], settings=settings)

    def in_pod(self, host: Host, pod: PodNamespace, devices: Sequence[DevicePlan]) -> list[Link | None]:
        return find_in_pod(pod, [self._sides(device) for device in devices], host)

    def fetch(self, host: Host, device: DevicePlan, *, last_resort: bool) -> None:
        fetch(host, self._sides(device), last_resort=last_resort)

    def seen_again(self, host: Host, devices: Sequence[DevicePlan]) -> list[DevicePlan]:
        tables = HostTables(host.route)
        cards = zip(self.at_home(host, devices), devices, strict=True)
        return [self._seen_again(tables, device, card) for card, device in cards]

    def _seen_again(self, tables: HostTables, device: DevicePlan, card: Link | None) -> DevicePlan:
        now = tables.link(card.name) if card else None
        if now is None:
            return device
        was, want = self._sides(device)
        found = tables.found(now, was.pci)
        link = msgspec.structs.replace(found.link, permanent_mac=was.link.permanent_mac)
        found = msgspec.structs.replace(found, link=link, features=was.features, private_flags=was.private_flags)
        return self.keep(device, NetdevRecord(found, want))

    def ready(self, host: Host, device: DevicePlan, card: Link) -> Work:
        """Down, MTU, MAC: what moving would only make slower. Nothing that is done already."""
        raise_first((yield _early_settings(card, self._sides(device).wanted)))

    def may_refuse(self, device: DevicePlan) -> bool:
        """Any driver lets its card be taken down, but not every size or address be set."""
        record = self.of(device)
        return record is not None and bool(_asked_settings(record.found.link, record.wanted))

    def enter(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link) -> Work:
        name = self._sides(device).wanted.name
        (error,) = yield [links.change(card.index, namespace_fd=pod.namespace.fd, name=name)]
        if error is None:
            return
        if error.errno == errno.EEXIST:
            taken = f"the pod already has an interface named {name}"
            raise AttachError(f"{taken}; give {device.name} another interface.name") from error
        raise AttachError(f"{device.name}: {error}") from error

    def leave(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link | None) -> Problems:
        found, want = self._sides(device)
        if card is None:
            return []
        # All down before the first move: a link that goes down leaves the kernel work which the next move waits for.
        # Without alternative names: one that a link on the host has would keep the card here.
        yield [links.change(card.index, up=False), *(links.delete_altname(card.index, n) for n in card.altnames)]
        (error,) = yield [links.change(card.index, namespace_fd=host.namespace.fd, name=temporary_name(found))]
        if error is not None and error.errno == errno.EEXIST:
            (error,) = yield [links.change(card.index, namespace_fd=host.namespace.fd, name=unheard_of_name())]
        if error is not None and error.errno != errno.ENODEV:  # who is gone is not held back
            raise error
        yield [rules.delete(rule.kernel()) for rule in want.rules]  # they outlive the card where the namespace lives on
        return []

    def restore(self, host: Host, tables: HostTables, device: DevicePlan, card: Link | None) -> Problems:
        """Its settings, its old names, and last its state, addresses and routes."""
        found = self._sides(device).found
        if card is None:
            # A virtual card dies with its pod's namespace. That is said, and nothing can be done.
            return [f"{found.link.name} is not on this node any more: it was destroyed with the pod's namespace"]
        yield names_to_free(card, found)
        rise = [links.change(card.index, up=found.link.is_up)]
        # The kernel forgets the settings of the IP layers with every move; they come back before the card is raised.
        # Where they were the usual ones it may be raised at once, and only waits for the others before its routes.
        at_once = _has_its_layers(card, found) and not settings_to_restore(card, found.link)
        answers = yield [*link_messages(card, found.link), *(rise if at_once else [])]
        problems = [str(error) for error in answers if error is not None]
        forgotten = settings_to_restore(_with_its_layers(host, card, found), found.link)
        problems += sysctl.write_each(host.namespace.fd, forgotten, proc_root=host.proc_root) if forgotten else []
        answers = yield [] if at_once else rise
        problems += [str(error) for error in answers if error is not None]
        return [*problems, *map(str, refusals((yield layer_messages(tables, card, found))))]

    def adopt(self, witness: Witness, device: DevicePlan) -> DevicePlan:
        if device.use is not Use.MOVED:
            return device
        found = _recognisable(found_as_published(witness), witness.published)
        return self.keep(device, NetdevRecord(found, wanted(witness.config, found)))


def _recognisable(found: Found, published: Device) -> Found:
    """A virtual function is known by its PCI function alone. It has one interface, and its address is burnt in nowhere:
    rebound to its driver it may have another."""
    if not published.attributes.get(attributes.IS_SRIOV_VF) or not found.link.parent_device:
        return found
    return msgspec.structs.replace(found, link=msgspec.structs.replace(found.link, permanent_mac=""))


def _has_its_layers(card: Link, found: Found) -> bool:
    return bool(card.ipv6_settings) or not found.link.ipv6_settings


def _with_its_layers(host: Host, card: Link, found: Found) -> Link:
    """A card that came home too small for IPv6 has that layer again with its size, and with settings by default."""
    if _has_its_layers(card, found):
        return card
    return links.get_links(host.route, [card.index], settings=True)[0] or card


def _early_settings(card: Link, want: Wanted) -> list[Message]:
    messages: list[Message] = [links.change(card.index, up=False)] if card.is_up else []
    if card.master:
        messages.append(links.change(card.index, master=0))
    return messages + _asked_settings(card, want)


def _asked_settings(card: Link | LinkRow, want: Wanted) -> list[Message]:
    messages: list[Message] = []
    if want.mtu is not None and card.mtu != want.mtu:
        messages.append(links.change(card.index, mtu=want.mtu))
    if want.mac is not None and card.mac != want.mac:
        messages.append(links.change(card.index, mac=want.mac))
    return messages


PART = NetdevPart()
