"""Oracle's profile ``oke-rdma``: the address and routing of a child of an Ethernet RDMA card.

Oracle's agent on the node gives card number n the n-th block of its RDMA network, each block as large as the subnet of
the node's primary VNIC, and in it the node's own place. A child stands at the same place of the same block in a second
network, so no two children of a cluster collide and nobody has to keep a list. All nodes must use the same range.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Any, NamedTuple

from dranet.inventory.cloud.http import CloudError
from dranet.inventory.cloud.provider import ConfigJson, HostRoute

PROFILE = "oke-rdma"
AGENT_NETWORK = IPv4Network("10.224.0.0/12")
"""Where the agent's addresses are, unless the image was made otherwise."""
DEFAULT_RANGE = "10.208.0.0/12"
_CARDS = 16
_FIRST_TABLE, _RULE_PRIORITY = 100, 32000
_SCOPE_LINK = 253
_SPECIAL = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4")))


class Vnic(NamedTuple):
    """One of the node's own network cards, as the metadata tells it."""

    address: IPv4Address
    subnet: IPv4Network

    @property
    def place(self) -> int:
        """Which address of its subnet it has."""
        return int(self.address) - int(self.subnet.network_address)


def vnics(answer: Any) -> tuple[Vnic, ...]:
    """The VNICs of a metadata answer, the primary one first; what has no IPv4 address is left out."""
    found = []
    for item in answer if isinstance(answer, list) else ():
        try:
            found.append(Vnic(IPv4Address(item["privateIp"]), IPv4Network(item["subnetCidrBlock"])))
        except (TypeError, KeyError, ValueError):
            continue
    return tuple(found)


def child_range(text: str) -> IPv4Network:
    """The option's network; raises ValueError in words."""
    network = IPv4Network(text, strict=False)
    if not 8 <= network.prefixlen <= 30:
        raise ValueError(f"{text} has a prefix length of {network.prefixlen}; it must be 8 to 30")
    for special in (*_SPECIAL, AGENT_NETWORK):
        if network.overlaps(special):
            raise ValueError(f"{text} overlaps {special}, which is not free; choose another range")
    return network


def refuse_what_it_cannot(config: Mapping[str, Any]) -> None:
    """A claim may ask for its own routing, but not for another way to an address."""
    link = config.get("interface") or {}
    if link.get("type") != "IPVLAN":
        raise CloudError(f"profile {PROFILE} makes IPVLAN children, not {link.get('type') or 'Passthrough'}")
    if link.get("dhcp") or link.get("addressing") in ("DHCP", "Unnumbered", "SLAAC"):
        raise CloudError(f"profile {PROFILE} gives the address itself; leave interface.addressing and dhcp out")
    if link.get("addresses"):
        raise CloudError(f"profile {PROFILE} gives the address itself; leave interface.addresses out")


def child(interface: str, addresses: Iterable[str], primary: Vnic, children: IPv4Network) -> tuple[int, IPv4Interface]:
    """The number of the card and the address of its child."""
    number = _number(interface, addresses, primary)
    size = primary.subnet.num_addresses
    if (number + 1) * size > children.num_addresses:
        enough = max(primary.subnet.prefixlen - 4, 0)
        raise CloudError(
            f"{interface} is RDMA card {number}, for which {children} has no room: with the subnet {primary.subnet} "
            f"{_CARDS} cards need a /{enough} (--cloud-provider-options=oke.rdma-child-ipv4-cidr)"
        )
    address = children.network_address + number * size + primary.place
    return number, IPv4Interface((address, children.prefixlen))


def _number(interface: str, addresses: Iterable[str], primary: Vnic) -> int:
    mine = [a for a in map(ipaddress.ip_interface, addresses) if a.version == 4 and a.ip in AGENT_NETWORK]
    if not mine:
        raise CloudError(f"{interface} has no address in {AGENT_NETWORK} yet; Oracle's agent on the node gives it one")
    place = int(mine[0].ip) - int(AGENT_NETWORK.network_address)
    number, host = divmod(place, primary.subnet.num_addresses)
    if host != primary.place or number >= _CARDS:
        raise CloudError(
            f"{interface} has {mine[0].ip}, which is not where Oracle's agent puts it: place {primary.place} of one of "
            f"{_CARDS} blocks of {primary.subnet.num_addresses} addresses; use --profile-provider=webhook or none"
        )
    return number


def check_free(children: IPv4Network, nodes: Sequence[Vnic], routes: Iterable[HostRoute], service: str) -> None:
    """Raise where something else has addresses of the range, as far as this node can see."""
    for vnic in nodes:
        if vnic.subnet.overlaps(children):
            raise CloudError(f"the range {children} overlaps the subnet {vnic.subnet} of this node; choose another")
    for route in routes:
        there = ipaddress.ip_network(route.destination, strict=False)
        if isinstance(there, IPv4Network) and there.prefixlen and there.overlaps(children):
            raise CloudError(f"the range {children} overlaps a route of this node to {there}; choose another")
    if service and ":" not in service and IPv4Address(service) in children:
        raise CloudError(f"the range {children} holds the cluster's service address {service}; choose another")


def configuration(number: int, address: IPv4Interface, arp: Mapping[str, int], asked: Mapping[str, Any]) -> ConfigJson:
    """What the child gets; one that brings its own routing keeps it."""
    found: ConfigJson = {"interface": {"addresses": [str(address)], **arp}}
    own_routing = asked.get("routes") or asked.get("rules") or (asked.get("interface") or {}).get("vrf")
    if own_routing:
        return found
    table = _FIRST_TABLE + number
    network, source = str(address.network), str(address.ip)
    found["routes"] = [{"destination": network, "scope": _SCOPE_LINK, "source": source, "table": table}]
    found["rules"] = [{"source": f"{source}/32", "table": table, "priority": _RULE_PRIORITY}]
    return found
