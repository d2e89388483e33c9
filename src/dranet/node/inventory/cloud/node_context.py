"""What cloud providers may ask about this node: its firmware, its RDMA devices and its network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dranet.linux import addresses, devconf, links, rdma, routes
from dranet.linux.hardware import rdma_devices
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.sysfs import Sysfs
from dranet.node.inventory.cloud.provider import CloudContext, Firmware, HostRoute, NodeNetwork

_DMI = "class/dmi/id"
_ARP = {"arpIgnore": devconf.IPV4.index("arp_ignore"), "arpAnnounce": devconf.IPV4.index("arp_announce")}


class LiveNetwork(NodeNetwork):
    """The node's network, read from the kernel at every call: claims need its current state."""

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


def cloud_context(sysfs: Sysfs, webhook_url: str = "", **known: Any) -> CloudContext:
    """The context for detecting the cloud provider, read once at start; `known` are further fields of it."""
    firmware = (sysfs.read(_DMI, name) or "" for name in ("sys_vendor", "product_name", "chassis_asset_tag"))
    return CloudContext(
        firmware=Firmware(*firmware),
        webhook_url=webhook_url,
        network=LiveNetwork(str(sysfs.root)),
        rdma_devices={device.name: device.pci_address for device in rdma_devices(sysfs) if device.pci_address},
        **known,
    )
