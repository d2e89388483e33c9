"""Finds the link of a plan: on the host, in its pod, in any other network namespace, and after the store was lost.

The kernel decides, not the record, and nothing that a pod can change. A pod with CAP_NET_ADMIN chooses names,
alternative names, MACs and even the indexes of links it creates. It cannot choose the PCI function behind a netdev, its
permanent MAC, and where the other end of a virtual link is. So hardware is identified by its function, a veth by its
peer, and other virtual links by their parent together with their index, or their name or MAC where the index was taken
in the other namespace. A veth with both ends on the node is identified by its own index and MAC, because the other end
may be a device too and move.

A pod may move its link into another namespace, and a process outside the pod may keep that one alive. The netdev of a
PCI function always is in some namespace, so it is never given up: it is found in a namespace that a process lives in or
holds open, or its namespace is being removed and the kernel moves it to the host, or the function is rebound to its
driver, which creates the netdev on the host. A virtual link that cannot be found was removed.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Callable, Iterator, Sequence

import msgspec

from dranet.core import attributes
from dranet.core.device import Device
from dranet.core.errors import DranetError, KernelError, NotFound
from dranet.core.logs import get_logger
from dranet.core.netconfig import NetworkConfig, parse_hardware_address
from dranet.linux import addresses, links, namespaces, pci
from dranet.linux.codec import mac_text
from dranet.linux.files import becomes_true
from dranet.linux.hardware import pci_function
from dranet.linux.links import Link
from dranet.linux.netlink import NetlinkError, NetlinkSocket
from dranet.linux.sysfs import Sysfs
from dranet.linux.virtual_links import vlan_id
from dranet.node.features.base import RecoveryContext
from dranet.node.features.pod_config import requested_route
from dranet.node.namespaces import Host, PodNamespace
from dranet.node.records.kernel_rows import AddressRow, LinkRow, RouteRow
from dranet.node.records.plan import HostState, PodConfig

log = get_logger(__name__)

Wanted = tuple[HostState, PodConfig | None]
_NetnsIds = Sequence[int | None]
"""The netns ID of each link's peer as seen from where we search; None for that namespace itself."""

_ANYWHERE, _NOWHERE = -1, -2
"""Netns IDs: the peer's namespace does not matter; the namespace where we search does not know it."""

_NAMESPACE_REMOVAL_SECONDS = 2.0
"""How long the kernel may take to return the hardware of a removed namespace, which it does in the background."""


class LinkNotFound(DranetError):
    """Hardware in a network namespace that cannot be found."""


def temporary_name(state: HostState) -> str:
    """The name of a link while it is moved to the host: unique on the node."""
    return f"dranet{state.link.index:x}"[:15]


def random_name() -> str:
    """For a link whose temporary name is taken: a pod can guess that one, but not this."""
    return f"dranet{random.SystemRandom().randrange(1 << 32):08x}"


def find_on_host(route: NetlinkSocket, wanted: Sequence[Wanted], *, settings: bool = False) -> list[Link | None]:
    """The links on the host, under any name; None for one that is not there. `settings` reads their sysctls too."""
    # Without the name in the pod: a user chose it, and may have chosen that of another link of the host.
    names = [[temporary_name(state), state.link.name] for state, _ in wanted]
    netns_ids = [_ANYWHERE if _peer_may_move(state.link) else state.link.parent_netnsid for state, _ in wanted]
    return _find_all(route, wanted, names, netns_ids, _by_index(route, wanted, settings), settings)


def find_in_pod(pod: PodNamespace, wanted: Sequence[Wanted], host: Host | None = None) -> list[Link | None]:
    """The links in their pod, also renamed ones; None for one that is not there.

    Without the host a veth is identified by the index of its peer alone: enough for reading, not for a move.
    """
    names = [[*([config.name] if config else []), temporary_name(state), state.link.name] for state, config in wanted]
    netns_ids: _NetnsIds = [_ANYWHERE for _ in wanted]
    by_index = _by_index(pod.route, wanted)
    if host is not None and any(_is_virtual(state.link) for state, _ in wanted):
        # The kernel assigns the netns ID of a peer when it reports the link: if not by index, then in a full dump.
        netns_ids = _peer_netns_ids(host, pod, wanted)
        if not all(map(_is_wanted, by_index, wanted, names, netns_ids)):
            links.list_links(pod.route)
            netns_ids = _peer_netns_ids(host, pod, wanted)
    return _find_all(pod.route, wanted, names, netns_ids, by_index)


def _peer_netns_ids(host: Host, pod: PodNamespace, wanted: Sequence[Wanted]) -> _NetnsIds:
    on_host = {state.link.parent_netnsid for state, _ in wanted if state.link.parent_index is not None}
    in_pod = {netns_id: _netns_id_in_pod(host, pod, netns_id) for netns_id in on_host}
    return [None if state.link.parent_index is None else in_pod[state.link.parent_netnsid] for state, _ in wanted]


def _is_virtual(was: LinkRow) -> bool:
    return not was.parent_device and not was.permanent_mac


def _peer_may_move(was: LinkRow) -> bool:
    """Whether the other end of a veth was on the host too."""
    return was.kind == "veth" and was.parent_index is not None and was.parent_netnsid is None


def _netns_id_in_pod(host: Host, pod: PodNamespace, netns_id: int | None) -> int:
    """The pod's netns ID of a peer's namespace, from the host's; None there is the host itself."""
    if netns_id is None:
        return links.ensure_nsid(pod.route, host.namespace.fd)
    return _translated(host.route, netns_id, pod.number_on(host))


def _netns_id_on_host(host: Host, pod: PodNamespace, link: Link) -> int | None:
    """The host's netns ID of the namespace of a peer, for a link in a pod."""
    host_id = links.ensure_nsid(pod.route, host.namespace.fd)
    if link.parent_netnsid is None or link.parent_netnsid == host_id:
        return None
    return _translated(pod.route, link.parent_netnsid, host_id)


def _translated(route: NetlinkSocket, netns_id: int, target: int) -> int:
    try:
        found = links.translate_nsid(route, netns_id, target)
    except NetlinkError:  # the peer's namespace is gone, and the peer with it
        return _NOWHERE
    return _NOWHERE if found is None else found


def _by_index(route: NetlinkSocket, wanted: Sequence[Wanted], settings: bool = False) -> list[Link | None]:
    """The links with the recorded indexes, read in one batch: an index usually survives a move."""
    return links.get_links(route, [state.link.index for state, _ in wanted], settings=settings)


def _find_all(
    route: NetlinkSocket,
    wanted: Sequence[Wanted],
    names: Sequence[list[str]],
    netns_ids: _NetnsIds,
    by_index: Sequence[Link | None],
    settings: bool = False,
) -> list[Link | None]:
    return [
        link if _is_wanted(link, one, known, netns_id) else _search(route, one, known, netns_id, settings)
        for link, one, known, netns_id in zip(by_index, wanted, names, netns_ids, strict=True)
    ]


def _is_wanted(link: Link | None, wanted: Wanted, names: list[str], netns_id: int | None) -> bool:
    return link is not None and is_same_link(link, wanted, names, netns_id)


def _search(
    route: NetlinkSocket, wanted: Wanted, names: list[str], netns_id: int | None, settings: bool
) -> Link | None:
    for link in links.get_links(route, names, settings=settings):
        if _is_wanted(link, wanted, names, netns_id):
            return link
    found = next((link for link in links.list_links(route) if is_same_link(link, wanted, names, netns_id)), None)
    if found is None or not settings:
        return found
    return links.get_links(route, [found.index], settings=True)[0]  # a dump has no settings


def is_same_link(link: Link, wanted: Wanted, names: list[str], netns_id: int | None) -> bool:
    """Whether a link of the kernel is the link of the plan."""
    was, config = wanted[0].link, wanted[1]
    if link.kind != was.kind or link.encapsulation != was.encapsulation:
        return False
    if was.parent_device:
        return link.parent_device == was.parent_device and was.permanent_mac in ("", link.permanent_mac)
    if was.permanent_mac:
        return link.permanent_mac == was.permanent_mac
    macs = {was.mac} | ({config.mac} if config and config.mac else set())
    if _peer_may_move(was):
        return link.mac in macs or (link.index == was.index and link.name in names)
    if link.parent_index != was.parent_index or (netns_id != _ANYWHERE and link.parent_netnsid != netns_id):
        return False
    if was.kind == "veth":
        return True  # no two links have the same peer
    if was.kind == "vlan" and vlan_id(link.info) != vlan_id(was.info):
        return False
    return link.index == was.index or link.mac in macs or link.name in names


def reclaim(host: Host, wanted: Wanted, *, last_resort: bool) -> None:
    """Move a link to the host that is neither there nor in its pod; raises LinkNotFound for lost hardware."""
    state = wanted[0]
    if _is_unmistakable(state.link) and _take_from_anywhere(host, wanted):
        log.warning("Moved a link to the host from a namespace outside its pod", interface=state.link.name)
        return
    if not last_resort or state.link.kind != "device" or not _has_driver(host, state.pci):
        return
    if becomes_true(lambda: find_on_host(host.route, [wanted])[0] is not None, _NAMESPACE_REMOVAL_SECONDS):
        return
    lost = f"cannot find the network namespace of {state.link.name} ({state.pci or state.link.parent_device})"
    if not host.may_rebind or state.pci is None:
        advice = "end the process that keeps that namespace alive"
        raise LinkNotFound(f"{lost}, and the driver may not rebind it (--rebind-lost-cards): {advice}")
    log.warning("Rebinding a PCI function to get its link back", interface=state.link.name, pci_address=state.pci)
    try:
        pci.rebind(host.sysfs_root, state.pci)
    except KernelError as error:
        raise LinkNotFound(f"{lost}: {error}") from error


def _is_unmistakable(was: LinkRow) -> bool:
    """Namespaces outside the pod belong to others: take only what is identified beyond doubt."""
    return not _is_virtual(was) or was.kind == "veth"


def is_elsewhere(host: Host, wanted: Wanted) -> bool:
    """Whether a link that is neither in its pod nor on the host is in the namespace of any process."""

    def has_link(other: PodNamespace) -> bool:
        try:
            return find_in_pod(other, [wanted], host)[0] is not None
        except (KernelError, OSError):
            return False

    return _is_unmistakable(wanted[0].link) and _in_any_namespace(host, has_link)


def _take_from_anywhere(host: Host, wanted: Wanted) -> bool:
    return _in_any_namespace(host, lambda other: _take_from(host, other, wanted))


def _in_any_namespace(host: Host, check: Callable[[PodNamespace], bool]) -> bool:
    """Whether the check succeeds in any namespace of a process except the host's."""
    own = host.namespace.identity()
    for namespace in namespaces.find_namespaces(host.proc_root):
        with PodNamespace(namespace) as other:
            if namespace.identity() != own and check(other):
                return True
    return False


def _take_from(host: Host, other: PodNamespace, wanted: Wanted) -> bool:
    try:
        (link,) = find_in_pod(other, [wanted], host)
        if link is None:
            return False
        other.route.batch(
            [links.change(link.index, up=False), *(links.delete_altname(link.index, name) for name in link.altnames)]
        )
        for name in (temporary_name(wanted[0]), random_name()):
            (error,) = other.route.batch([links.change(link.index, namespace_fd=host.namespace.fd, name=name)])
            if error is None:
                return True
        return False
    except (KernelError, OSError) as error:
        log.info("Cannot search a network namespace", error=error)
        return False


def _has_driver(host: Host, pci: str | None) -> bool:
    """A function that was unplugged, or unbound from its driver, has no netdev anywhere."""
    if pci is None:
        return True
    function = pci_function(Sysfs(host.sysfs_root), pci)
    return function is not None and function.driver is not None


def recover_host_state(context: RecoveryContext) -> HostState:
    """The host state of a link in a pod without a plan, from the published device; raises NotFound without the link.

    It has no sysctls, and routes only where the reference driver attached the device: that one copies the host's routes
    into its record of the pod.
    """
    published = context.published.attributes
    name = str(context.config.link.name or published[attributes.IF_NAME])
    mac = parse_hardware_address(context.config.link.hardware_addr or "")
    macs = {str(published.get(attributes.MAC)), *([mac_text(mac)] if mac else [])}
    free = [link for link in links.list_links(context.pod.route) if link.index not in context.taken]
    inside = [link for link in free if not _is_created_by_pod(context, link)]
    link = identify_published(inside, context.published, name, macs, context.node.sysfs)
    if link is None:
        why = "no link has its PCI function or its MAC, or several links have its MAC and none its name"
        raise NotFound(f"cannot find {context.published.name} in the pod: {why}")
    netns_id = _netns_id_on_host(context.node.host, context.pod, link)
    state = _state_as_published(msgspec.structs.replace(link, parent_netnsid=netns_id), context.published)
    copied = _routes_of_host(context.recorded, context.config, state) if context.recorded else ()
    return msgspec.structs.replace(state, routes=tuple(copied))


def identify_published(
    inside: Sequence[Link], published: Device, name: str, macs: set[str], sysfs: Sysfs
) -> Link | None:
    """Hardware by its PCI function, or by the virtio device below it; a virtual link by its MAC.

    Two virtual links may have swapped their names. None if several have the MAC and none the name: the wrong one would
    be restored as this device.
    """
    if pci := published.attributes.get(attributes.PCI_ADDRESS):
        below = {child for child in sysfs.entries("bus/pci/devices", str(pci)) if child.startswith("virtio")}
        return next((link for link in inside if link.parent_device in {pci, *below}), None)
    kind = published.attributes.get(attributes.TYPE)
    by_mac = [link for link in inside if not link.parent_device and link.mac in macs and kind in (None, link.kind)]
    return next((link for link in by_mac if link.name == name or len(by_mac) == 1), None)


def _is_created_by_pod(context: RecoveryContext, link: Link) -> bool:
    """Loopback, or a veth whose peer is in the pod or in a namespace that the host does not know."""
    if link.kind != "veth":
        return link.is_loopback
    return link.parent_netnsid is None or _netns_id_on_host(context.node.host, context.pod, link) == _NOWHERE


def _state_as_published(link: Link, device: Device) -> HostState:
    """What is not published is taken as it is now."""
    published = device.attributes
    was = msgspec.structs.replace(
        LinkRow.of(link),
        name=str(published[attributes.IF_NAME]),
        mtu=int(published.get(attributes.MTU, link.mtu)),
        mac=str(published.get(attributes.MAC) or link.mac),
        alias=str(published.get(attributes.ALIAS, "")),
        altnames=(),  # the pod may have given it the name of another link, which blocks that one
        master=0,
    )
    cidrs = [c for key in (attributes.IPV4, attributes.IPV6) for c in str(published.get(key, "")).split(",") if c]
    pci = published.get(attributes.PCI_ADDRESS)
    return HostState(
        link=was,
        pci=str(pci) if pci else None,
        addresses=tuple(AddressRow.of(addresses.from_cidr(cidr, link.index)) for cidr in cidrs),
    )


def _routes_of_host(recorded: NetworkConfig, requested: NetworkConfig, state: HostState) -> Iterator[RouteRow]:
    """The recorded routes that are not the claim's own; a route to an address's network comes with the address."""
    own = {(route.destination, route.table or 0) for route in requested.routes or ()}
    connected = {str(ipaddress.ip_interface(f"{a.local}/{a.prefix}").network) for a in state.addresses}
    for route in recorded.routes or ():
        if (route.destination, route.table or 0) not in own and route.destination not in connected:
            yield msgspec.structs.replace(requested_route(route), index=state.link.index)
