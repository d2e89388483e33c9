"""The network between sandbox machines, through which pods really send packets.

A NIC is a veth whose peer is in the fabric's namespace. NICs of the same name on different machines share a rail, which
is a bridge: GPU clusters are wired like that, and the eight NICs of one machine do not answer ARP for each other. As in
clouds, a NIC has a /32 address and a route to its rail's subnet.
"""

from __future__ import annotations

import ipaddress

from dranet.linux import addresses, links, routes, virtual_links
from dranet.linux.links import Link
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.machines.shape_devices import ShapeLink

_RAIL_PREFIX = 24


class Fabric:
    """All rails, in a namespace that exists until this object is closed."""

    def __init__(self) -> None:
        self.namespace = Namespace.create()
        self._route = NetlinkSocket(namespace_fd=self.namespace.fd)
        self._rails: dict[str, int] = {}
        self._ports = 0

    def plug(self, machine: NetlinkSocket, nic: ShapeLink) -> None:
        """Create a NIC in a machine's namespace and connect it to its rail."""
        self._ports += 1
        port_name = f"port{self._ports}"
        machine.request(virtual_links.create_veth(nic.name, port_name, peer_namespace_fd=self.namespace.fd))
        port, made = _found(self._route, port_name), _found(machine, nic.name)
        self._route.request(links.change(port.index, mtu=nic.mtu, master=self._rail(nic), up=True))
        machine.request(links.change(made.index, mtu=nic.mtu, mac=nic.mac or None, up=True))
        for cidr in nic.addresses:
            machine.request(addresses.add(addresses.from_cidr(cidr, made.index, flags=addresses.IFA_F_NODAD)))
            if (subnet := rail_subnet(cidr)) is not None:
                machine.request(routes.add(_rail_route(subnet, cidr, made.index)))

    def _rail(self, nic: ShapeLink) -> int:
        """The index of the rail's bridge, which the first NIC creates."""
        if nic.name not in self._rails:
            name = f"rail{len(self._rails)}"
            self._route.request(virtual_links.create_bridge(name))
            bridge = _found(self._route, name)
            self._route.request(links.change(bridge.index, mtu=nic.mtu, up=True))
            self._rails[nic.name] = bridge.index
        return self._rails[nic.name]

    def close(self) -> None:
        self._route.close()
        self.namespace.close()


def rail_subnet(cidr: str) -> str | None:
    """The rail's subnet for a /32 IPv4 address; None for other addresses."""
    interface = ipaddress.ip_interface(cidr)
    if interface.version != 4 or interface.network.prefixlen != 32:
        return None
    return str(ipaddress.ip_network(f"{interface.ip}/{_RAIL_PREFIX}", strict=False))


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
    assert link is not None, f"{name} was just created"
    return link
