"""A network interface in the pod: its name, sysctls, addresses, routes. The same for moved links and for children.

Rows come from another time or another namespace. Here they get the link's present index, and an order that the kernel
accepts: routes on the link before routes through a gateway.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from itertools import islice
from socket import AF_INET6
from typing import Any, TypeVar

import msgspec

from dranet.core.logs import get_logger
from dranet.kubernetes.api.claims import NETWORK_READY, READY, Condition
from dranet.linux import addresses, links, neighbours, routes, rules, sysctl
from dranet.linux.addresses import IFA_F_NODAD, IFA_F_TENTATIVE
from dranet.linux.codec import Message
from dranet.linux.links import Link
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.routes import Route
from dranet.node.features.base import AttachError, Conditions, LinkProvider, Work, raise_first, refusals
from dranet.node.namespaces import Host, PodNamespace
from dranet.node.records.kernel_rows import AddressRow, NeighbourRow, RouteRow
from dranet.node.records.plan import DevicePlan, PodConfig

log = get_logger(__name__)

R = TypeVar("R")


class InterfaceInPod(LinkProvider[R]):
    """The steps inside the pod, for a feature that has attached an interface."""

    def configure(self, host: Host, pod: PodNamespace, device: DevicePlan, link: Link) -> Work:
        """Restore the name, which the pod may have changed, before the sysctls that are found by it."""
        config = pod_config_of(device)
        if link.name != config.name:
            raise_first((yield [links.change(link.index, up=False), links.change(link.index, name=config.name)]))
        if config.sysctls:
            sysctl.write_all(pod.namespace.fd, config.sysctls, proc_root=host.proc_root)

    def bring_up(self, host: Host, pod: PodNamespace, device: DevicePlan, link: Link | None) -> Conditions:
        assert link is not None
        answers = yield _bring_up_messages(link, pod_config_of(device))
        refused = refusals(answers)
        if refused:
            raise AttachError("; ".join(f"{device.name}: {error}" for error in refused))
        if pod_config_of(device).verify_routes:
            _verify_routes(pod, device, link)
        return Condition(READY, True, "NetworkDeviceReady"), _network_ready(pod, device, link, any(answers))


def _network_ready(pod: PodNamespace, device: DevicePlan, link: Link, something_existed: bool) -> Condition:
    """A route that the pod has by another interface is not replaced, because the pod may need it; it is reported."""
    if something_existed:
        existing = routes.list_routes(pod.route)
        own = {(route.destination, route.table) for route in existing if route.leaves_by(link.index)}
        taken = [r for r in pod_config_of(device).routes if (r.destination, r.table) not in own]
        if taken:
            names = ", ".join(f"{route.destination} (table {route.table})" for route in taken)
            message = f"routes to {names} are not added: the pod has them by another interface; use routes[].table"
            log.warning("Skipped routes that the pod has by another interface", device=device.name, routes=names)
            return Condition(NETWORK_READY, True, "RoutesTaken", message)
    return Condition(NETWORK_READY, True, "NetworkReady")


def _verify_routes(pod: PodNamespace, device: DevicePlan, link: Link) -> None:
    """Ask as RDMA does, by source and interface: the kernel would take a peer without a route for a neighbour."""
    config = pod_config_of(device)
    for address in config.addresses:
        for route in config.routes:
            target = _address_in(route, {address.local, route.gateway})
            if route.is_default or route.family != address.family or target is None:
                continue
            found = routes.lookup_route(pod.route, target, source=address.local, index=link.index)
            if found is None or (found.index, found.gateway) != (link.index, route.gateway):
                way = f"via {found.gateway}" if found and found.gateway else "directly" if found else "not at all"
                wanted = f"via {route.gateway}" if route.gateway else "directly"
                message = (
                    f"{address.local} reaches {target} {way} instead of {wanted}; check rules and routes of the pod"
                )
                raise AttachError(f"{device.name}: railRouting: {message}")


def _address_in(route: RouteRow, taken: Collection[str | None]) -> str | None:
    """An address that this route leads to, other than these."""
    hosts = islice(ipaddress.ip_network(route.destination).hosts(), 4)
    return next((str(host) for host in hosts if str(host) not in taken), None)


def pod_config_of(device: DevicePlan) -> PodConfig:
    """The configuration in the pod, of a device with a network interface."""
    assert device.pod_config is not None, f"{device.name} has no network interface"
    return device.pod_config


def _bring_up_messages(link: Link, config: PodConfig) -> list[Message]:
    sizes = [links.change(link.index, **dict[str, Any](config.sizes))] if config.sizes else []
    return [
        *sizes,
        *address_messages(config.addresses, link.index),
        links.change(link.index, up=True),
        *route_messages(config.routes, 0, link.index),
        *(rules.add(rule.kernel()) for rule in config.rules),
        *neighbour_messages(config.neighbours, link.index),
    ]


def address_messages(rows: Iterable[AddressRow], index: int) -> list[Message]:
    """Add addresses without duplicate address detection: the container uses them at once."""
    return [addresses.add(_usable_at_once(row, index), replace=True) for row in rows]


def _usable_at_once(row: AddressRow, index: int) -> addresses.Address:
    flags = row.flags & ~IFA_F_TENTATIVE
    if row.family == AF_INET6:
        flags |= IFA_F_NODAD
    return msgspec.structs.replace(row.kernel(), index=index, flags=flags)


def route_messages(rows: Iterable[RouteRow], old_index: int, index: int) -> list[Message]:
    """Add routes, those on the link first (a higher scope number is nearer)."""
    ordered = sorted(rows, key=lambda route: (-route.scope, route.gateway is not None))
    return [routes.add(_through(row.kernel(), old_index, index), replace=bool(row.next_hops)) for row in ordered]


def _through(route: Route, old_index: int, index: int) -> Route:
    hops = tuple(msgspec.structs.replace(h, index=index) if h.index == old_index else h for h in route.next_hops)
    out = index if route.index is not None else None
    return msgspec.structs.replace(route, index=out, next_hops=hops)


def neighbour_messages(rows: Iterable[NeighbourRow], index: int) -> list[Message]:
    return [neighbours.add(msgspec.structs.replace(row.kernel(), index=index), replace=True) for row in rows]


def take_down_messages(route: NetlinkSocket, index: int) -> list[Message]:
    """Take a link down that stays on the host, and add again what the kernel removes from it then.

    The kernel removes IPv6 addresses and permanent neighbours of a link that goes down. Send the messages as one batch:
    the kernel works through all of it even if the driver crashes.
    """
    configured = [one for one in addresses.list_addresses(route, index) if _is_configured(one)]
    fixed = [one for one in neighbours.list_neighbours(route, states=neighbours.NUD_PERMANENT) if one.index == index]
    return [
        links.change(index, up=False),
        *(addresses.add(one, replace=True) for one in configured),
        *(neighbours.add(one, replace=True) for one in fixed if one.mac),
    ]


def _is_configured(address: addresses.Address) -> bool:
    """Not from a router advertisement, which expires, and not a link-local address, which the kernel adds again."""
    lasts = bool(address.flags & addresses.IFA_F_PERMANENT)
    return address.family == AF_INET6 and lasts and address.scope != addresses.SCOPE_LINK
