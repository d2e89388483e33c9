"""Alibaba's eFLO network: addresses and routes of child interfaces on a bond.

Every bond of an eFLO node has its own IPv6 network, and in each the same sixteen addresses are reserved for children.
Packets from a child's address use the bond's routes, in a table of their own.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import IPv6Interface, IPv6Network
from typing import Any

from dranet.core.netconfig import default_table
from dranet.node.inventory.cloud.http import CloudError
from dranet.node.inventory.cloud.provider import ConfigJson, HostRoute

PROFILE = "alibaba-eflo-subinterface"
BOND_MODE = "802.3ad"
_RESERVED = 0x0000_000F_0000_0C00
"""The low half of the reserved addresses; the bond's prefix is the rest."""
_RANGE_BITS = 124
_RULE_PRIORITY = 32000
_SCOPE_LINK = 253


def network_of(addresses: Iterable[str]) -> IPv6Network | None:
    """The network of a bond: that of its first global address whose prefix leaves room for the range."""
    for found in map(ipaddress.ip_interface, addresses):
        if isinstance(found, IPv6Interface) and not found.ip.is_link_local and found.network.prefixlen <= _RANGE_BITS:
            return found.network
    return None


def child_range(network: IPv6Network) -> IPv6Network:
    """The sixteen addresses for children in a bond's network."""
    free = int(network.hostmask) & ~0xF
    return IPv6Network((int(network.network_address) | (_RESERVED & free), _RANGE_BITS))


def first_free(network: IPv6Network, in_use: Collection[str]) -> str:
    """A free address of the range, with prefix length 128; raises if none is free."""
    used = {ipaddress.ip_interface(address).ip for address in in_use}
    for address in child_range(network):
        if address not in used:
            return f"{address}/128"
    raise CloudError(f"all addresses of {child_range(network)} are in use by other claims on this node")


def routing(interface: str, addresses: Iterable[str], routes: Iterable[HostRoute]) -> ConfigJson:
    """The bond's routes for these addresses, in a table of their own."""
    table = default_table(interface)
    rules = [
        {"source": f"{ipaddress.ip_interface(address).ip}/128", "table": table, "priority": _RULE_PRIORITY}
        for address in addresses
    ]
    return {"routes": [{**route, "table": table} for route in _child_routes(interface, routes)], "rules": rules}


def _child_routes(interface: str, routes: Iterable[HostRoute]) -> Sequence[Mapping[str, Any]]:
    """Each gateway gets a link route first: a child with a /128 address has no on-link network."""
    found: dict[str, Mapping[str, Any]] = {}
    for route in routes:
        destination = ipaddress.ip_network(route.destination)
        if (
            route.interface != interface
            or destination.version != 6
            or destination.is_multicast
            or destination.is_link_local
        ):
            continue
        if route.gateway:
            found.setdefault(f"{route.gateway}/128", {"destination": f"{route.gateway}/128", "scope": _SCOPE_LINK})
            found[route.destination] = {"destination": route.destination, "gateway": route.gateway}
        else:
            found.setdefault(route.destination, {"destination": route.destination, "scope": _SCOPE_LINK})
    if not found:
        raise CloudError(
            f"{interface} has no IPv6 routes for child interfaces; check the network configuration of the bond"
        )
    return list(found.values())
