"""Routes and rules that `railRouting` stands for: one table for each NIC, chosen by the source address.

RDMA looks up a route by the local address and its interface. Without a route through that interface the kernel takes
the peer for a neighbour and asks for it on the wrong rail. UCX compares prefix lengths over all tables, so networks of
other rails are written with their own length; a default route alone is not enough.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import UNSET

from dranet.core.attributes import RAIL
from dranet.core.errors import InvalidInput, Problem
from dranet.core.netconfig import (
    FIRST,
    GATEWAY,
    HOST,
    LINK,
    NO,
    SCOPE_LINK,
    NetworkConfig,
    RailRouting,
    Route,
    Rule,
)

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_TABLES, _PRIORITY = 100, 32000
_DEFAULTS = {4: "0.0.0.0/0", 6: "::/0"}
_RESERVED = (*range(253, 256), *range(1000, 2000))
"""Tables of the kernel, and those that VRFs get by their name."""


class RailRoutes(NamedTuple):
    """What a NIC needs so that its addresses send through it."""

    table: int
    routes: list[Route]
    rules: list[Rule]


def rail_routes(
    config: NetworkConfig, rail: object, addresses: Sequence[str], host_gateways: Mapping[int, str]
) -> RailRoutes | None:
    """The routes and rules of a NIC with these addresses; None without `railRouting`. Raises InvalidInput.

    `host_gateways` are the gateways of the node's own routes through the NIC, by IP version.
    """
    routing = config.rail_routing
    if routing is UNSET:
        return None
    if not addresses:
        raise _problem("railRouting", "the NIC has no address to route by; set interface.addresses")
    table = rail_table(config, rail)
    in_vrf = config.link.vrf is not UNSET
    routes: dict[str, Route] = {}
    rules: list[Rule] = []
    for text in addresses:
        own = ipaddress.ip_interface(text)
        gateway = _gateway(routing, own, host_gateways)
        for route in _routes(config, routing, str(rail), own.network, gateway):
            routes.setdefault(route.destination, _in_table(route, None if in_vrf else table))
        if not in_vrf:  # the kernel adds the rule of a VRF itself
            rules.append(_rule(routing, own, table))
    return RailRoutes(table, list(routes.values()), rules)


def rail_table(config: NetworkConfig, rail: object) -> int:
    """The table of a NIC on this rail; raises InvalidInput if the rail is unknown or the table reserved."""
    routing = config.rail_routing
    assert routing is not UNSET
    if rail is None or rail == "":
        raise _problem("railRouting", f"the device does not publish {RAIL}; see --rail-source")
    first = _TABLES if routing.tables is UNSET else routing.tables
    known = sorted(config.rails or {})
    if str(rail).isdecimal():
        number = int(str(rail))
    elif rail in known:
        number = known.index(str(rail))
    else:
        raise _problem("rails", f"rail {rail!r} is not a number and is not listed here, so it has no table")
    if first + number in _RESERVED:
        raise _problem("railRouting.tables", f"table {first + number} of rail {rail} is reserved; choose another start")
    return first + number


def _gateway(
    routing: RailRouting, own: ipaddress.IPv4Interface | ipaddress.IPv6Interface, host_gateways: Mapping[int, str]
) -> str | None:
    wanted = FIRST if routing.gateway is UNSET else routing.gateway
    if wanted == NO:
        return None
    if wanted == HOST:
        if own.version not in host_gateways:
            message = f"host: the node has no IPv{own.version} route with a gateway through this NIC"
            raise _problem("railRouting.gateway", message)
        return host_gateways[own.version]
    if wanted != FIRST:
        return wanted if ipaddress.ip_address(wanted).version == own.version else None
    if own.network.num_addresses <= 2:
        message = f"first: {own} has no network with a first address; write the gateway's address, or host"
        raise _problem("railRouting.gateway", message)
    return str(own.network[1])


def _routes(
    config: NetworkConfig, routing: RailRouting, rail: str, own: _Network, gateway: str | None
) -> Iterator[Route]:
    """Routes on the link come first: the kernel refuses a gateway that it cannot reach yet."""
    same = [own, *(network for network in _networks(config, rail) if network.version == own.version)]
    direct = routing.same_rail in (UNSET, LINK) or gateway is None
    if gateway is not None and not (direct and any(ipaddress.ip_address(gateway) in network for network in same)):
        yield Route(destination=f"{gateway}/{own.max_prefixlen}", scope=SCOPE_LINK)
    for network in same:
        if network.num_addresses > 1:
            yield _to(network, None if direct else gateway)
    if gateway is None:
        return
    if routing.cross_rail in (UNSET, GATEWAY):
        for other in sorted(config.rails or {}):
            for network in _networks(config, other) if other != rail else ():
                if network.version == own.version:
                    yield _to(network, gateway)
    yield Route(destination=_DEFAULTS[own.version], gateway=gateway)


def _networks(config: NetworkConfig, rail: str) -> list[_Network]:
    return [ipaddress.ip_network(text, strict=False) for text in (config.rails or {}).get(rail, ())]


def _to(network: _Network, gateway: str | None) -> Route:
    if gateway is None:
        return Route(destination=str(network), scope=SCOPE_LINK)
    return Route(destination=str(network), gateway=gateway)


def _in_table(route: Route, table: int | None) -> Route:
    if table is None:
        return route
    return Route(destination=route.destination, gateway=route.gateway, scope=route.scope, table=table)


def _rule(routing: RailRouting, own: ipaddress.IPv4Interface | ipaddress.IPv6Interface, table: int) -> Rule:
    """By address, not by network: a rule for the network would also match the pod's other NICs of that rail."""
    priority = _PRIORITY if routing.priority is UNSET else routing.priority
    return Rule(priority=priority, source=f"{own.ip}/{own.max_prefixlen}", table=table)


def _problem(path: str, message: str) -> InvalidInput:
    return InvalidInput([Problem(path, message)])
