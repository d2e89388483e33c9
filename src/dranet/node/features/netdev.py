"""A network interface that moves into the pod and back.

The runtime waits for the hook, so nothing is decided there: a link is moved, addressed and brought up with as few
requests as the kernel allows. The first error stops the attach and everything is detached again, so a pod never starts
with some of its devices. A link leaves its pod under a temporary name, because its old name may be taken on the host.

`restore` sends messages only for what differs from the host state. It compares everything with the kernel, so it can
run again after a crash at any point, after the pod's namespace is gone, or on links that never left the host.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dranet.core import attributes
from dranet.core.attributes import RAIL
from dranet.core.device import Device
from dranet.core.netconfig import NetworkConfig
from dranet.linux import devconf, links, nexthops, rules, sysctl
from dranet.linux.codec import Message
from dranet.linux.links import Link
from dranet.linux.nexthops import Nexthop
from dranet.node.features.base import (
    AttachError,
    NodeContext,
    Problems,
    RecoveryContext,
    Work,
    name_taken,
    raise_first,
    refusals,
)
from dranet.node.features.host_tables import HostTables
from dranet.node.features.interface import InterfaceInPod, address_messages, neighbour_messages, route_messages
from dranet.node.features.netdev_search import (
    find_in_pod,
    find_on_host,
    is_elsewhere,
    random_name,
    reclaim,
    recover_host_state,
    temporary_name,
)
from dranet.node.features.pod_config import SIZES, check_config, check_movable, pod_config
from dranet.node.inventory.snapshot import NodeDevice
from dranet.node.namespaces import Host, PodNamespace
from dranet.node.records.kernel_rows import LinkRow, RouteRow
from dranet.node.records.plan import AttachMode, DevicePlan, HostState, PodConfig

_SETTINGS = ("mtu", "mac", "broadcast", "alias", "txqlen", "group", "link_mode", "gso_max_segs")
_FLAGS = links.IFF_NOARP | links.IFF_PROMISC | links.IFF_ALLMULTI | links.IFF_MULTICAST


class NetdevRecord(NamedTuple):
    """On disk these are the fields `host` and `pod` of the device, as in the first version."""

    host_state: HostState
    pod_config: PodConfig


class NetdevFeature(InterfaceInPod[NetdevRecord]):
    """Moves a network interface."""

    tag, order, mode = "netdev", 10, AttachMode.MOVED

    def record_of(self, device: DevicePlan) -> NetdevRecord | None:
        if device.mode is not AttachMode.MOVED or device.host_state is None or device.pod_config is None:
            return None
        return NetdevRecord(device.host_state, device.pod_config)

    def with_record(self, device: DevicePlan, record: NetdevRecord) -> DevicePlan:
        return msgspec.structs.replace(device, host_state=record.host_state, pod_config=record.pod_config)

    def plan(self, node: NodeContext, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        if device.mode is not AttachMode.MOVED:
            return device
        link = check_config(node.tables, seen, config)
        check_movable(node, seen, link)
        state = _without_vf_mac(node.tables.host_state(link, str(seen.pci) if seen.pci else None), seen.device)
        return self.with_record(
            device, NetdevRecord(state, pod_config(config, state, seen.device.attributes.get(RAIL)))
        )

    def find_on_host(self, host: Host, devices: Sequence[DevicePlan], *, settings: bool = False) -> list[Link | None]:
        return find_on_host(host.route, [self.require(device) for device in devices], settings=settings)

    def find_in_pod(self, host: Host, pod: PodNamespace, devices: Sequence[DevicePlan]) -> list[Link | None]:
        return find_in_pod(pod, [self.require(device) for device in devices], host)

    def reclaim(self, host: Host, device: DevicePlan, *, last_resort: bool) -> None:
        reclaim(host, self.require(device), last_resort=last_resort)

    def is_elsewhere(self, host: Host, device: DevicePlan) -> bool:
        return is_elsewhere(host, self.require(device))

    def refresh_after_reboot(self, host: Host, devices: Sequence[DevicePlan]) -> list[DevicePlan]:
        tables = HostTables(host.route)
        found = zip(self.find_on_host(host, devices), devices, strict=True)
        return [self._refreshed(tables, device, link) for link, device in found]

    def _refreshed(self, tables: HostTables, device: DevicePlan, link: Link | None) -> DevicePlan:
        now = tables.link(link.name) if link else None
        if now is None:
            return device
        was, config = self.require(device)
        state = tables.host_state(now, was.pci)
        row = msgspec.structs.replace(state.link, permanent_mac=was.link.permanent_mac)
        state = msgspec.structs.replace(state, link=row, features=was.features, private_flags=was.private_flags)
        return self.with_record(device, NetdevRecord(state, config))

    def set_up(self, host: Host, device: DevicePlan, link: Link) -> Work:
        """Down, MTU and MAC, which are slow in the hook. Skips what is set already."""
        raise_first((yield _set_up_messages(link, self.require(device).pod_config)))

    def set_up_may_fail(self, device: DevicePlan) -> bool:
        """Every NIC can be taken down, but may refuse an MTU or a MAC."""
        record = self.record_of(device)
        return record is not None and bool(_requested_settings(record.host_state.link, record.pod_config))

    def attach(self, host: Host, pod: PodNamespace, device: DevicePlan, link: Link) -> Work:
        name = self.require(device).pod_config.name
        (error,) = yield [links.change(link.index, namespace_fd=pod.namespace.fd, name=name)]
        if error is None:
            return
        if error.errno == errno.EEXIST:
            raise name_taken(device, name) from error
        raise AttachError(f"{device.name}: {error}") from error

    def detach(self, host: Host, pod: PodNamespace, device: DevicePlan, link: Link | None) -> Problems:
        state, config = self.require(device)
        if link is None:
            return []
        # All down before the first move: the next move waits for the work that a link leaves when it goes down.
        # Without alternative names: the move fails if a link on the host has one of them.
        yield [links.change(link.index, up=False), *(links.delete_altname(link.index, n) for n in link.altnames)]
        (error,) = yield [links.change(link.index, namespace_fd=host.namespace.fd, name=temporary_name(state))]
        if error is not None and error.errno == errno.EEXIST:
            (error,) = yield [links.change(link.index, namespace_fd=host.namespace.fd, name=random_name())]
        if error is not None and error.errno != errno.ENODEV:
            raise error
        yield [rules.delete(rule.kernel()) for rule in config.rules]  # rules outlive the link if the namespace lives on
        return []

    def restore(self, host: Host, tables: HostTables, device: DevicePlan, link: Link | None) -> Problems:
        """Settings and names first, then up, then addresses and routes."""
        state = self.require(device).host_state
        if link is None:
            return [f"{state.link.name} is not on this node: the kernel removed it with the pod's network namespace"]
        yield _names_to_free(link, state)
        up = [links.change(link.index, up=state.link.is_up)]
        # The kernel resets the sysctls of a link with every move; they are set before the link is up. With default
        # values it can be brought up at once, and only its routes wait for the other links.
        at_once = _has_ipv6_settings(link, state) and not _sysctls_to_restore(link, state.link)
        answers = yield [*_link_messages(link, state.link), *(up if at_once else [])]
        problems = [str(error) for error in answers if error is not None]
        sysctls = _sysctls_to_restore(_with_ipv6_settings(host, link, state), state.link)
        problems += sysctl.write_each(host.namespace.fd, sysctls, proc_root=host.proc_root) if sysctls else []
        answers = yield [] if at_once else up
        problems += [str(error) for error in answers if error is not None]
        refused = refusals((yield _layer_messages(tables, link, state)))
        if state.nexthops and state.link.is_up:
            # In a round of their own: a group needs the nexthops of all links that return together.
            refused += refusals((yield _nexthop_messages(nexthops.list_nexthops(host.route), link, state)))
        return [*problems, *map(str, refused)]

    def recover(self, context: RecoveryContext, device: DevicePlan) -> DevicePlan:
        if device.mode is not AttachMode.MOVED:
            return device
        state = _without_vf_mac(recover_host_state(context), context.published)
        return self.with_record(
            device, NetdevRecord(state, pod_config(context.config, state, context.published.attributes.get(RAIL)))
        )


def _without_vf_mac(state: HostState, published: Device) -> HostState:
    """Identify a virtual function by its PCI function alone: rebound to its driver it may have another MAC."""
    if not published.attributes.get(attributes.IS_SRIOV_VF) or not state.link.parent_device:
        return state
    return msgspec.structs.replace(state, link=msgspec.structs.replace(state.link, permanent_mac=""))


def _set_up_messages(link: Link, config: PodConfig) -> list[Message]:
    messages: list[Message] = [links.change(link.index, up=False)] if link.is_up else []
    if link.master:
        messages.append(links.change(link.index, master=0))
    return messages + _requested_settings(link, config)


def _requested_settings(link: Link | LinkRow, config: PodConfig) -> list[Message]:
    messages: list[Message] = []
    if config.mtu is not None and link.mtu != config.mtu:
        messages.append(links.change(link.index, mtu=config.mtu))
    if config.mac is not None and link.mac != config.mac:
        messages.append(links.change(link.index, mac=config.mac))
    return messages


def _names_to_free(link: Link, state: HostState) -> list[Message]:
    """Remove names that are not the link's own, on all links first: two of them may have swapped their names."""
    foreign = [name for name in link.altnames if name not in state.link.altnames]
    messages = [links.delete_altname(link.index, name) for name in foreign]
    if link.name not in (state.link.name, temporary_name(state)):
        messages += [links.change(link.index, up=False), links.change(link.index, name=temporary_name(state))]
    return messages


def _has_ipv6_settings(link: Link, state: HostState) -> bool:
    return bool(link.ipv6_settings) or not state.link.ipv6_settings


def _with_ipv6_settings(host: Host, link: Link, state: HostState) -> Link:
    """A link whose MTU was too small for IPv6 gets IPv6 back with its MTU, and with default settings."""
    if _has_ipv6_settings(link, state):
        return link
    return links.get_links(host.route, [link.index], settings=True)[0] or link


def _sysctls_to_restore(link: Link, was: LinkRow) -> dict[str, str]:
    """The sysctls that differ, for a link that was read with its settings."""
    now, then = ((one.ipv4_settings, one.ipv6_settings) for one in (link, was))
    return devconf.sysctls_to_restore(was.name, now, then)


def _link_messages(link: Link, was: LinkRow) -> list[Message]:
    """Settings, names, flags and master; the link stays down."""
    changes = [links.change(link.index, **change) for change in _differences(link, was)]
    changes += [links.add_altname(link.index, name) for name in was.altnames if name not in link.altnames]
    messages = [links.change(link.index, up=False)] if changes and link.is_up else []
    messages += changes
    if flags := (link.flags ^ was.flags) & _FLAGS:
        messages.append(links.change_flags(link.index, flags, was.flags))
    if was.master and link.master != was.master:
        messages.append(links.change(link.index, master=was.master))
    return messages


def _differences(now: Link, was: LinkRow) -> list[dict[str, Any]]:
    """One change for each message, so that a refusal costs one setting; the name last.

    The kernel adjusts some of the sizes with others, so all of them are set if one differs.
    """
    names = [name for name in _SETTINGS if _differs(now, was, name)]
    names += SIZES if any(_differs(now, was, name) for name in SIZES) else ()
    return [{name: getattr(was, name)} for name in (*names, *(["name"] if now.name != was.name else []))]


def _differs(now: Link, was: LinkRow, name: str) -> bool:
    return getattr(was, name) not in (None, getattr(now, name))


def _layer_messages(tables: HostTables, link: Link, state: HostState) -> list[Message]:
    """The missing addresses, routes, rules, neighbours and nexthops; not yet what uses the nexthops."""
    have = tables.cidrs.get(link.index, set()) if state.addresses else set()
    missing = [address for address in state.addresses if address.cidr not in have]
    gone = [rule for row in state.rules if (rule := row.kernel()) not in tables.rules]
    token = [links.set_ipv6_token(link.index, state.link.ipv6_token)] if state.link.ipv6_token else []
    return [
        *address_messages(missing, link.index),
        *(route_messages(_routes(state, by_nexthop=False), state.link.index, link.index) if state.link.is_up else ()),
        *(rules.add(rule) for rule in gone),
        *neighbour_messages(state.neighbours, link.index),
        *token,
        *(nexthops.add(one) for one in _own_nexthops(link, state) if state.link.is_up),
    ]


def _routes(state: HostState, *, by_nexthop: bool) -> list[RouteRow]:
    return [row for row in state.routes if (row.kernel().nexthop_id is not None) is by_nexthop]


def _own_nexthops(link: Link, state: HostState) -> list[Nexthop]:
    own = (row.kernel() for row in state.nexthops if not row.members)
    return [msgspec.structs.replace(one, index=link.index) for one in own]


def _nexthop_messages(known: Sequence[Nexthop], link: Link, state: HostState) -> list[Message]:
    """Groups with the members that exist, and routes. A number that another nexthop has now is not used."""
    now = {one.id: one for one in known}
    own = {one.id: one for one in _own_nexthops(link, state)}
    ours = {id for id, one in own.items() if now.get(id) == one}
    groups = [_completed(row.kernel(), now, ours) for row in state.nexthops if row.members]
    usable = ours | {group.id for group in groups if group.members}
    rows = [row if row.kernel().nexthop_id in usable else row.by_itself() for row in _routes(state, by_nexthop=True)]
    return [
        *(nexthops.add(group) for group in groups if group.members),
        *route_messages(rows, state.link.index, link.index),
    ]


def _completed(group: Nexthop, now: Mapping[int, Nexthop], ours: Collection[int]) -> Nexthop:
    """The group as it is now, with the link's nexthops; other members may have changed or left meanwhile."""
    has = {member.id: member for member in now[group.id].members} if group.id in now else {}
    back = [m for m in group.members if m.id in ours or (not has and m.id in now)]
    kept = [has.get(m.id, m) for m in group.members if m.id in has or m in back]
    added = [m for id, m in has.items() if id not in {one.id for one in group.members}]
    return msgspec.structs.replace(group, members=(*kept, *added))


FEATURE = NetdevFeature()
