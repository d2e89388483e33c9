"""The network between sandbox machines: cards plugged into a fabric, so that packets really flow between pods.

A card is a veth whose other end sits in a namespace that belongs to the fabric. Cards of the same name on different
machines share a rail, which is a bridge: that is how GPU clusters are wired, and it keeps eight cards of one machine
from answering for each other. Clouds give a card a /32 address and a route to its rail's subnet; so do we.
"""

from __future__ import annotations

import ipaddress

from dranet.kernel import addresses, links, routes, virtual_links
from dranet.kernel.links import Link
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket
from dranet.topology.shape_devices import ShapeLink

RAIL_PREFIX = 24


class Fabric:
    """All rails; the namespace lives as long as this object is open."""

    def __init__(self) -> None:
        self.namespace = Namespace.create()
        self._route = NetlinkSocket(namespace_fd=self.namespace.fd)
        self._rails: dict[str, int] = {}
        self._ports = 0

    def plug(self, machine: NetlinkSocket, card: ShapeLink) -> None:
        """Make a card in a machine's namespace and join it to its rail."""
        self._ports += 1
        port_name = f"port{self._ports}"
        machine.request(virtual_links.create_veth(card.name, port_name, peer_namespace_fd=self.namespace.fd))
        port, made = _found(self._route, port_name), _found(machine, card.name)
        self._route.request(links.change(port.index, mtu=card.mtu, master=self._rail(card), up=True))
        machine.request(links.change(made.index, mtu=card.mtu, mac=card.mac or None, up=True))
        for cidr in card.addresses:
            machine.request(addresses.add(addresses.from_cidr(cidr, made.index, flags=addresses.IFA_F_NODAD)))
            if (subnet := rail_subnet(cidr)) is not None:
                machine.request(routes.add(_rail_route(subnet, cidr, made.index)))

    def _rail(self, card: ShapeLink) -> int:
        """The index of the rail's bridge, made when its first card is plugged in."""
        if card.name not in self._rails:
            name = f"rail{len(self._rails)}"
            self._route.request(virtual_links.create_bridge(name))
            bridge = _found(self._route, name)
            self._route.request(links.change(bridge.index, mtu=card.mtu, up=True))
            self._rails[card.name] = bridge.index
        return self._rails[card.name]

    def close(self) -> None:
        self._route.close()
        self.namespace.close()


def rail_subnet(cidr: str) -> str | None:
    """The subnet behind a lone IPv4 address; None where the address brings its own."""
    interface = ipaddress.ip_interface(cidr)
    if interface.version != 4 or interface.network.prefixlen != 32:
        return None
    return str(ipaddress.ip_network(f"{interface.ip}/{RAIL_PREFIX}", strict=False))


def _rail_route(subnet: str, cidr: str, index: int) -> routes.Route:
    source = cidr.partition("/")[0]
    return routes.to(
        subnet,
        index=index,
        preferred_source=source,
        scope=routes.SCOPE_LINK,
        protocol=routes.PROTOCOL_STATIC,
    )


def _found(route: NetlinkSocket, name: str) -> Link:
    link = links.get_link(route, name)
    assert link is not None, f"{name} was just made"
    return link
