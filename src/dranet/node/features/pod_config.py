"""From the claim's NetworkConfig and the host state to the configuration of the interface in the pod.

What the claim does not set, the link keeps from the host. Where the claim sets addresses or routes, only those host
routes, rules and neighbours are copied that work with them. Prepare checks here what cannot be done.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from socket import AF_INET, AF_INET6

import msgspec
from msgspec import UNSET, UnsetType

from dranet.core import netconfig
from dranet.core.errors import DranetError, InvalidInput, Problem
from dranet.core.netconfig import Interface, NetworkConfig
from dranet.core.rail_routing import rail_routes
from dranet.linux import addresses, neighbours, routes, sysctl
from dranet.linux.codec import mac_text
from dranet.linux.links import Link
from dranet.node.features.base import NodeContext
from dranet.node.features.host_tables import HostTables
from dranet.node.inventory.infrastructure import AGGREGATE_KINDS, immovable_reason
from dranet.node.inventory.snapshot import NetdevLocation, NodeDevice
from dranet.node.records.kernel_rows import AddressRow, NeighbourRow, RouteRow, RuleRow
from dranet.node.records.plan import HostState, PodConfig

SIZES = ("gso_max_size", "gro_max_size", "gso_ipv4_max_size", "gro_ipv4_max_size")


def check_config(tables: HostTables, seen: NodeDevice, config: NetworkConfig) -> Link:
    """The link of a device; raises for a link that is not on the host, and for an impossible MTU."""
    link = _link(tables, seen)
    _check_vf_mtu(tables, seen, config)
    return link


def check_movable(node: NodeContext, seen: NodeDevice, link: Link) -> None:
    """Raise for a link that the kernel cannot move, or that the node has come to use since the last scan."""
    if why := immovable_reason(link):
        instead = (
            "; request a child of it with interface.type IPVLAN or Macvlan" if link.kind in AGGREGATE_KINDS else ""
        )
        raise DranetError(f"cannot move interface {link.name}: {why}{instead}")
    if why := node.tables.unrestorable_traffic_control(link.index):
        raise DranetError(
            f"cannot move interface {link.name}: the kernel would drop {why}, and the driver cannot restore it; "
            f"remove it with tc first"
        )
    if seen.offered_explicitly:
        return
    master = node.tables.link_at(link.master) if link.master else None
    if master is not None and master.kind != "vrf":
        raise DranetError(f"cannot move interface {link.name}: it is now a port of {master.name}")
    entries = node.sysfs.entries("class/net", link.name)
    upper = {name.removeprefix("upper_") for name in entries if name.startswith("upper_")}
    if upper := upper - {master.name if master else ""}:
        raise DranetError(f"cannot move interface {link.name}: {', '.join(sorted(upper))} now use it")
    if seen.pci and (node.sysfs.read_number("bus/pci/devices", str(seen.pci), "sriov_numvfs") or 0) > 0:
        raise DranetError(f"cannot move interface {link.name}: it now has virtual functions (sriov_numvfs)")


def _link(tables: HostTables, seen: NodeDevice) -> Link:
    if seen.netdev.location is NetdevLocation.OTHER_NETNS:
        raise DranetError(f"interface {seen.netdev.name} is in another network namespace; is a pod still using it?")
    link = tables.link(seen.netdev.name, seen.netdev.index)
    if link is None:
        raise DranetError(f"interface {seen.netdev.name} was removed since the last scan")
    return link


def _check_vf_mtu(tables: HostTables, seen: NodeDevice, config: NetworkConfig) -> None:
    mtu = config.link.mtu
    if mtu is UNSET or not seen.pf_interface:
        return
    pf = tables.link(seen.pf_interface)
    if pf is not None and mtu > pf.mtu:
        message = f"{mtu} is more than the {pf.mtu} of its physical function {pf.name}; increase that one first"
        raise InvalidInput([Problem("interface.mtu", message)])


def pod_config(config: NetworkConfig, state: HostState, rail: object = None) -> PodConfig:
    """The configuration in the pod; the features `tuning` and `vrf` add theirs."""
    link = config.link
    name = state.link.name if link.name is UNSET else link.name
    own = _addresses(link, state)
    config = _with_rail_routes(config, state, own, rail)
    requested = tuple(requested_route(route) for route in config.routes or ())
    unicast = [r for r in state.routes if r.type == routes.TYPE_UNICAST and r.table != routes.TABLE_LOCAL]
    # With railRouting only the connected route is in the main table: a second NIC could not have the same routes there.
    own_tables = config.rail_routing is not UNSET
    copied = () if own_tables or config.routes == [] else tuple(_copied_routes(unicast, own, requested))
    return PodConfig(
        name=name,
        mtu=None if link.mtu is UNSET else link.mtu,
        mac=None if link.hardware_addr is UNSET else _mac(link.hardware_addr),
        sizes={size: getattr(link, size) for size in SIZES if getattr(link, size) is not UNSET},
        sysctls=_sysctls(name, link),
        addresses=own,
        routes=(*requested, *copied),
        rules=tuple(_rules(config, state, copied, name)),
        neighbours=tuple(_neighbours(config, state)),
        detach_bpf=link.disable_ebpf_programs is True,
        dhcp=link.uses_dhcp,
        verify_routes=own_tables,
    )


def _with_rail_routes(
    config: NetworkConfig, state: HostState, own: Sequence[AddressRow], rail: object
) -> NetworkConfig:
    """The routes and rules of `railRouting`, before those that the claim writes; the NIC needs none of the host's."""
    if config.rail_routing is UNSET:
        return config  # a link may have thousands of routes, and most claims need none of this
    gateways = {6 if ":" in r.gateway else 4: r.gateway for r in reversed(state.routes) if r.gateway is not None}
    made = rail_routes(config, rail, [address.cidr for address in own], gateways)
    if made is None:
        return config
    return msgspec.structs.replace(
        config, routes=[*made.routes, *(config.routes or ())], rules=[*made.rules, *(config.rules or ())]
    )


def _mac(text: str) -> str:
    raw = netconfig.parse_hardware_address(text)
    assert raw is not None
    return mac_text(raw)


def _addresses(link: Interface, state: HostState) -> tuple[AddressRow, ...]:
    if link.uses_dhcp:
        return ()
    if link.addresses is not UNSET:
        return tuple(AddressRow.of(addresses.from_cidr(cidr, 0)) for cidr in link.addresses)
    families = (AF_INET,) if link.addressing == netconfig.SLAAC else (AF_INET, AF_INET6)
    kept = (a for a in state.addresses if a.scope == addresses.SCOPE_UNIVERSE and a.family in families)
    return tuple(
        AddressRow(family=a.family, index=0, local=a.local, prefix=a.prefix, peer=a.peer, broadcast=a.broadcast)
        for a in kept
    )


def _sysctls(name: str, link: Interface) -> dict[str, str]:
    requested = (
        ("ipv4", "arp_ignore", link.arp_ignore),
        ("ipv4", "arp_announce", link.arp_announce),
        ("ipv4", "rp_filter", link.rp_filter),
        ("ipv4", "forwarding", link.forwarding),
        ("ipv6", "forwarding", link.forwarding),
        ("ipv6", "accept_ra", _accept_ra(link)),
    )
    return {
        sysctl.interface_path(family, name, key): str(int(value))
        for family, key, value in requested
        if value is not UNSET
    }


def _accept_ra(link: Interface) -> int | UnsetType:
    """SLAAC needs router advertisements; 2 accepts them even if the pod forwards."""
    return 2 if link.accept_ra is UNSET and link.addressing == netconfig.SLAAC else link.accept_ra


def requested_route(route: netconfig.Route) -> RouteRow:
    """A route of the NetworkConfig as the kernel takes it."""
    made = routes.to(
        str(ipaddress.ip_network(route.destination, strict=False)),
        index=0,
        gateway=None if route.gateway is UNSET else route.gateway,
        preferred_source=None if route.source is UNSET else route.source,
        scope=0 if route.scope is UNSET else route.scope,
        table=route.table or routes.TABLE_MAIN,
        protocol=routes.PROTOCOL_STATIC,
    )
    return RouteRow.of(made)


def _copied_routes(
    found: Sequence[RouteRow], own: Sequence[AddressRow], requested: Sequence[RouteRow]
) -> Iterable[RouteRow]:
    """The host routes whose source is an address of the pod and whose gateway the pod can reach."""
    if not found:
        return  # most links have none, and the work below takes time in prepare
    taken = {(route.destination, route.table) for route in requested}
    locals_ = {address.local for address in own}
    near = [ipaddress.ip_network(a.cidr, strict=False) for a in own]
    near += [ipaddress.ip_network(r.destination) for r in requested if r.gateway is None]
    near += [ipaddress.ip_network(r.destination) for r in found if r.gateway is None and not r.is_default]
    for route in found:
        if (route.destination, route.table) in taken or route.next_hops:
            continue
        if route.preferred_source is not None and route.preferred_source not in locals_:
            continue
        if route.gateway is not None and not _reachable(route.gateway, near):
            continue
        yield msgspec.structs.replace(route.by_itself(), index=0)  # nexthop objects stay on the host


def _reachable(gateway: str, near: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    address = ipaddress.ip_address(gateway)
    return (address.is_link_local and address.version == 6) or any(address in network for network in near)


def _rules(config: NetworkConfig, state: HostState, copied: Sequence[RouteRow], name: str) -> Iterable[RuleRow]:
    requested = [_requested_rule(rule) for rule in config.rules or ()]
    yield from requested
    if config.rules == []:
        return
    tables = {route.table for route in copied}
    for rule in state.rules:
        renamed = msgspec.structs.replace(
            rule, incoming=_renamed(rule.incoming, state, name), outgoing=_renamed(rule.outgoing, state, name)
        )
        foreign = renamed.incoming not in ("", name) or renamed.outgoing not in ("", name)
        if rule.table in tables and not foreign and renamed not in requested:
            yield renamed


def _renamed(interface: str, state: HostState, name: str) -> str:
    return name if interface == state.link.name else interface


def _requested_rule(rule: netconfig.Rule) -> RuleRow:
    prefix = rule.source or rule.destination
    family = AF_INET6 if prefix and ":" in prefix else AF_INET
    return RuleRow(
        family=family,
        priority=None if rule.priority is UNSET else rule.priority,
        table=rule.table or routes.TABLE_MAIN,
        source=_network(rule.source),
        destination=_network(rule.destination),
    )


def _network(text: str | msgspec.UnsetType) -> str | None:
    return None if text is UNSET else str(ipaddress.ip_network(text, strict=False))


def _neighbours(config: NetworkConfig, state: HostState) -> Iterable[NeighbourRow]:
    requested = {
        n.destination: NeighbourRow.of(neighbours.permanent(0, n.destination, _mac(n.hardware_addr)))
        for n in config.neighbors or ()
    }
    yield from requested.values()
    if config.neighbors != []:
        others = (n for n in state.neighbours if n.destination not in requested and not n.flags & neighbours.NTF_PROXY)
        yield from (msgspec.structs.replace(n, index=0) for n in others)
