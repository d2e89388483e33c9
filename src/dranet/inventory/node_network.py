"""The node's own network as cloud providers may ask about it, from the running kernel."""

from __future__ import annotations

from collections.abc import Mapping

from dranet.inventory.cloud.provider import HostRoute
from dranet.kernel import addresses, devconf, links, rdma, routes
from dranet.kernel.netlink import NetlinkSocket
from dranet.kernel.sysfs import Sysfs

_ARP = {"arpIgnore": devconf.IPV4.index("arp_ignore"), "arpAnnounce": devconf.IPV4.index("arp_announce")}


class LiveNetwork:
    """Asks at every call: providers do so when a claim is prepared, and then it is to be as it is now."""

    def __init__(self, sysfs_root: str = "/sys", namespace_fd: int | None = None) -> None:
        self._sysfs_root = sysfs_root
        self._namespace_fd = namespace_fd

    def _socket(self) -> NetlinkSocket:
        return NetlinkSocket(namespace_fd=self._namespace_fd)

    def addresses(self, interface: str) -> list[str]:
        with self._socket() as route:
            link = links.get_link(route, interface)
            if link is None:
                return []
            found = addresses.list_addresses(route, link.index)
            return [address.cidr for address in found if address.scope == addresses.SCOPE_UNIVERSE]

    def routes(self) -> list[HostRoute]:
        with self._socket() as route:
            names = {link.index: link.name for link in links.list_links(route)}
            return [
                HostRoute(found.destination, found.gateway or "", names.get(found.index or 0, ""))
                for found in routes.list_routes(route)
                if found.type == routes.TYPE_UNICAST and found.table != routes.TABLE_LOCAL
            ]

    def bond_mode(self, interface: str) -> str:
        words = (Sysfs(self._sysfs_root).read("class/net", interface, "bonding/mode") or "").split()
        return words[0] if words else ""

    def arp_settings(self, interface: str) -> Mapping[str, int]:
        with self._socket() as route:
            (link,) = links.get_links(route, [interface], settings=True)
        values = link.ipv4_settings if link is not None else ()
        return {name: values[place] for name, place in _ARP.items() if place < len(values)}

    def shares_rdma(self) -> bool:
        socket = rdma.open_socket(self._namespace_fd)
        if socket is None:
            return True
        with socket:
            return rdma.is_shared(socket)
