"""From what the user asked and what was found on the host to how the interface shall be in the pod.

Pure. Where the user said nothing, the card keeps what it had on the host; where the user said something, only those
host routes, rules and neighbours come along that still make sense beside it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from socket import AF_INET, AF_INET6

import msgspec
from msgspec import UNSET, UnsetType

from dranet.driver.records.kernel_rows import AddressRow, NeighbourRow, RouteRow, RuleRow
from dranet.driver.records.plan import Found, Wanted
from dranet.kernel import addresses, neighbours, routes, sysctl
from dranet.kernel.codec import mac_text
from dranet.model import netconfig
from dranet.model.netconfig import Interface, NetworkConfig

SIZES = ("gso_max_size", "gro_max_size", "gso_ipv4_max_size", "gro_ipv4_max_size")


def wanted(config: NetworkConfig, found: Found) -> Wanted:
    """The interface as the pod gets it; offload names and the VRF are filled in by their own parts."""
    link = config.link
    name = found.link.name if link.name is UNSET else link.name
    own = _addresses(link, found)
    asked = tuple(asked_route(route) for route in config.routes or ())
    copied = () if config.routes == [] else tuple(_fitting_routes(found.routes, own, asked))
    return Wanted(
        name=name,
        mtu=None if link.mtu is UNSET else link.mtu,
        mac=None if link.hardware_addr is UNSET else _mac(link.hardware_addr),
        sizes={size: getattr(link, size) for size in SIZES if getattr(link, size) is not UNSET},
        sysctls=_sysctls(name, link),
        addresses=own,
        routes=(*asked, *copied),
        rules=tuple(_rules(config, found, copied, name)),
        neighbours=tuple(_neighbours(config, found)),
        detach_bpf=link.disable_ebpf_programs is True,
        dhcp=link.uses_dhcp,
    )


def _mac(text: str) -> str:
    raw = netconfig.parse_hardware_address(text)
    assert raw is not None
    return mac_text(raw)


def _addresses(link: Interface, found: Found) -> tuple[AddressRow, ...]:
    if link.uses_dhcp:
        return ()
    if link.addresses is not UNSET:
        return tuple(AddressRow.of(addresses.from_cidr(cidr, 0)) for cidr in link.addresses)
    families = (AF_INET,) if link.addressing == netconfig.SLAAC else (AF_INET, AF_INET6)
    kept = (a for a in found.addresses if a.scope == addresses.SCOPE_UNIVERSE and a.family in families)
    return tuple(
        AddressRow(family=a.family, index=0, local=a.local, prefix=a.prefix, peer=a.peer, broadcast=a.broadcast)
        for a in kept
    )


def _sysctls(name: str, link: Interface) -> dict[str, str]:
    asked = (
        ("ipv4", "arp_ignore", link.arp_ignore),
        ("ipv4", "arp_announce", link.arp_announce),
        ("ipv4", "forwarding", link.forwarding),
        ("ipv6", "forwarding", link.forwarding),
        ("ipv6", "accept_ra", _accept_ra(link)),
    )
    return {
        sysctl.interface_path(family, name, key): str(int(value)) for family, key, value in asked if value is not UNSET
    }


def _accept_ra(link: Interface) -> int | UnsetType:
    """Autoconfiguration lives by router advertisements; 2 takes them even where the pod forwards."""
    return 2 if link.accept_ra is UNSET and link.addressing == netconfig.SLAAC else link.accept_ra


def asked_route(route: netconfig.Route) -> RouteRow:
    """A route of the parameters as the kernel takes it."""
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


def _fitting_routes(
    found: Sequence[RouteRow], own: Sequence[AddressRow], asked: Sequence[RouteRow]
) -> Iterable[RouteRow]:
    """Host routes whose source is an address of the pod and whose gateway the pod can reach."""
    if not found:
        return  # most cards have none, and working out what is near takes time
    taken = {(route.destination, route.table) for route in asked}
    locals_ = {address.local for address in own}
    near = [ipaddress.ip_network(a.cidr, strict=False) for a in own]
    near += [ipaddress.ip_network(r.destination) for r in asked if r.gateway is None]
    near += [ipaddress.ip_network(r.destination) for r in found if r.gateway is None and not r.is_default]
    for route in found:
        if (route.destination, route.table) in taken or route.next_hops:
            continue
        if route.preferred_source is not None and route.preferred_source not in locals_:
            continue
        if route.gateway is not None and not _reachable(route.gateway, near):
            continue
        yield msgspec.structs.replace(route, index=0)


def _reachable(gateway: str, near: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    address = ipaddress.ip_address(gateway)
    return (address.is_link_local and address.version == 6) or any(address in network for network in near)


def _rules(config: NetworkConfig, found: Found, copied: Sequence[RouteRow], name: str) -> Iterable[RuleRow]:
    asked = [_asked_rule(rule) for rule in config.rules or ()]
    yield from asked
    if config.rules == []:
        return
    tables = {route.table for route in copied}
    for rule in found.rules:
        renamed = msgspec.structs.replace(
            rule, incoming=_renamed(rule.incoming, found, name), outgoing=_renamed(rule.outgoing, found, name)
        )
        foreign = renamed.incoming not in ("", name) or renamed.outgoing not in ("", name)
        if rule.table in tables and not foreign and renamed not in asked:
            yield renamed


def _renamed(interface: str, found: Found, name: str) -> str:
    return name if interface == found.link.name else interface


def _asked_rule(rule: netconfig.Rule) -> RuleRow:
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


def _neighbours(config: NetworkConfig, found: Found) -> Iterable[NeighbourRow]:
    asked = {
        n.destination: NeighbourRow.of(neighbours.permanent(0, n.destination, _mac(n.hardware_addr)))
        for n in config.neighbors or ()
    }
    yield from asked.values()
    if config.neighbors != []:
        yield from (msgspec.structs.replace(n, index=0) for n in found.neighbours if n.destination not in asked)
