"""Alibaba's eFLO network: which addresses children of a bond may have, and how their packets find the way.

Every bond of an eFLO node has an IPv6 network of its own, and in each the same sixteen addresses are set aside for
children. The way out is the bond's own, in a table that only packets from the child's address look up.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import IPv6Interface, IPv6Network
from typing import Any

from dranet.inventory.cloud.http import CloudError
from dranet.inventory.cloud.provider import ConfigJson, HostRoute
from dranet.model.netconfig import default_table

PROFILE = "alibaba-eflo-subinterface"
BOND_MODE = "802.3ad"
_SET_ASIDE = 0x0000_000F_0000_0C00
"""The low half of the addresses that are set aside; the bond's own prefix covers the rest."""
_RANGE_BITS = 124
_RULE_PRIORITY = 32000
_SCOPE_LINK = 253


def network_of(addresses: Iterable[str]) -> IPv6Network | None:
    """The network of a bond, by its first global address that leaves room for the range."""
    for found in map(ipaddress.ip_interface, addresses):
        if isinstance(found, IPv6Interface) and not found.ip.is_link_local and found.network.prefixlen <= _RANGE_BITS:
            return found.network
    return None


def child_range(network: IPv6Network) -> IPv6Network:
    """The sixteen addresses for children in a bond's network."""
    free = int(network.hostmask) & ~0xF
    return IPv6Network((int(network.network_address) | (_SET_ASIDE & free), _RANGE_BITS))


def first_free(network: IPv6Network, taken: Collection[str]) -> str:
    """An address of the range, as a single one; raises where all are taken."""
    used = {ipaddress.ip_interface(address).ip for address in taken}
    for address in child_range(network):
        if address not in used:
            return f"{address}/128"
    raise CloudError(f"all addresses of {child_range(network)} are in use by other claims on this node")


def routing(interface: str, addresses: Iterable[str], routes: Iterable[HostRoute]) -> ConfigJson:
    """The bond's way out for these addresses, in a table of its own."""
    table = default_table(interface)
    rules = [
        {"source": f"{ipaddress.ip_interface(address).ip}/128", "table": table, "priority": _RULE_PRIORITY}
        for address in addresses
    ]
    return {"routes": [{**route, "table": table} for route in _ways(interface, routes)], "rules": rules}


def _ways(interface: str, routes: Iterable[HostRoute]) -> Sequence[Mapping[str, Any]]:
    """Each gateway is first made reachable: a child with a single address has no network of its own."""
    found: dict[str, Mapping[str, Any]] = {}
    for route in routes:
        there = ipaddress.ip_network(route.destination)
        if route.interface != interface or there.version != 6 or there.is_multicast or there.is_link_local:
            continue
        if route.gateway:
            found.setdefault(f"{route.gateway}/128", {"destination": f"{route.gateway}/128", "scope": _SCOPE_LINK})
            found[route.destination] = {"destination": route.destination, "gateway": route.gateway}
        else:
            found.setdefault(route.destination, {"destination": route.destination, "scope": _SCOPE_LINK})
    if not found:
        raise CloudError(f"{interface} has no IPv6 routes that a child could use; is its network configured?")
    return list(found.values())
