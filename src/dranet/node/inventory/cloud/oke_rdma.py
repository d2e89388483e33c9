"""Oracle's profile ``oke-rdma``: address and routes of a child interface on an Ethernet RDMA NIC.

Oracle's agent on the node gives NIC number n an address in the n-th block of its RDMA network. Each block is as large
as the subnet of the node's primary VNIC, and the address has the same offset in it. A child has the same offset in the
same block of a second network, so no two children of a cluster collide and no allocation is stored. All nodes must use
the same range.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Any, NamedTuple

from dranet.node.inventory.cloud.http import CloudError
from dranet.node.inventory.cloud.provider import ConfigJson, HostRoute

PROFILE = "oke-rdma"
AGENT_NETWORK = IPv4Network("10.224.0.0/12")
"""The network of the agent's addresses, unless the image configures another."""
DEFAULT_RANGE = "10.208.0.0/12"
_NICS = 16
_FIRST_TABLE, _RULE_PRIORITY = 100, 32000
_SCOPE_LINK = 253
_SPECIAL = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4")))


class Vnic(NamedTuple):
    """A network interface of the node, as the metadata describes it."""

    address: IPv4Address
    subnet: IPv4Network

    @property
    def offset(self) -> int:
        """The offset of its address in its subnet."""
        return int(self.address) - int(self.subnet.network_address)


def vnics(answer: Any) -> tuple[Vnic, ...]:
    """The VNICs in the metadata, the primary one first, without those that have no IPv4 address."""
    found = []
    for item in answer if isinstance(answer, list) else ():
        try:
            found.append(Vnic(IPv4Address(item["privateIp"]), IPv4Network(item["subnetCidrBlock"])))
        except (TypeError, KeyError, ValueError):
            continue
    return tuple(found)


def child_range(text: str) -> IPv4Network:
    """The network of the option; raises ValueError with a message."""
    network = IPv4Network(text, strict=False)
    if not 8 <= network.prefixlen <= 30:
        raise ValueError(f"{text} has a prefix length of {network.prefixlen}; it must be 8 to 30")
    for special in (*_SPECIAL, AGENT_NETWORK):
        if network.overlaps(special):
            raise ValueError(f"{text} overlaps {special}, which is reserved; choose another range")
    return network


def check_supported(config: Mapping[str, Any]) -> None:
    """Reject what the profile cannot do: a claim may bring its own routes, but not its own address."""
    link = config.get("interface") or {}
    if link.get("type") != "IPVLAN":
        raise CloudError(f"profile {PROFILE} supports interface.type IPVLAN, not {link.get('type') or 'Passthrough'}")
    if link.get("dhcp") or link.get("addressing") in ("DHCP", "Unnumbered", "SLAAC"):
        raise CloudError(f"profile {PROFILE} assigns the address; remove interface.addressing and interface.dhcp")
    if link.get("addresses"):
        raise CloudError(f"profile {PROFILE} assigns the address; remove interface.addresses")


def child(interface: str, addresses: Iterable[str], primary: Vnic, children: IPv4Network) -> tuple[int, IPv4Interface]:
    """The number of the NIC and the address of its child interface."""
    number = _number(interface, addresses, primary)
    size = primary.subnet.num_addresses
    if (number + 1) * size > children.num_addresses:
        enough = max(primary.subnet.prefixlen - 4, 0)
        raise CloudError(
            f"{interface} is RDMA NIC {number}, and {children} is too small for it: with the subnet {primary.subnet}, "
            f"{_NICS} NICs need a /{enough}; set --cloud-provider-options=oke.rdma-child-ipv4-cidr"
        )
    address = children.network_address + number * size + primary.offset
    return number, IPv4Interface((address, children.prefixlen))


def _number(interface: str, addresses: Iterable[str], primary: Vnic) -> int:
    mine = [a for a in map(ipaddress.ip_interface, addresses) if a.version == 4 and a.ip in AGENT_NETWORK]
    if not mine:
        raise CloudError(f"{interface} has no address in {AGENT_NETWORK} yet; Oracle's agent on the node assigns it")
    position = int(mine[0].ip) - int(AGENT_NETWORK.network_address)
    number, host = divmod(position, primary.subnet.num_addresses)
    if host != primary.offset or number >= _NICS:
        raise CloudError(
            f"{interface} has {mine[0].ip}, but Oracle's agent assigns offset {primary.offset} in one of "
            f"{_NICS} blocks of {primary.subnet.num_addresses} addresses; use --profile-provider=webhook or none"
        )
    return number


def check_free(children: IPv4Network, nodes: Sequence[Vnic], routes: Iterable[HostRoute], service: str) -> None:
    """Raise if this node sees other uses of the range."""
    for vnic in nodes:
        if vnic.subnet.overlaps(children):
            raise CloudError(f"the range {children} overlaps the subnet {vnic.subnet} of this node; choose another")
    for route in routes:
        destination = ipaddress.ip_network(route.destination, strict=False)
        if isinstance(destination, IPv4Network) and destination.prefixlen and destination.overlaps(children):
            raise CloudError(f"the range {children} overlaps a route of this node to {destination}; choose another")
    if service and ":" not in service and IPv4Address(service) in children:
        raise CloudError(f"the range {children} contains the cluster's service address {service}; choose another")


def configuration(
    number: int, address: IPv4Interface, arp: Mapping[str, int], requested: Mapping[str, Any]
) -> ConfigJson:
    """The child's configuration; its own routes, rules or VRF take precedence."""
    found: ConfigJson = {"interface": {"addresses": [str(address)], **arp}}
    own_routing = requested.get("routes") or requested.get("rules") or (requested.get("interface") or {}).get("vrf")
    if own_routing:
        return found
    table = _FIRST_TABLE + number
    network, source = str(address.network), str(address.ip)
    found["routes"] = [{"destination": network, "scope": _SCOPE_LINK, "source": source, "table": table}]
    found["rules"] = [{"source": f"{source}/32", "table": table, "priority": _RULE_PRIORITY}]
    return found
