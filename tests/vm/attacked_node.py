"""The machine's own NICs as the node of a campaign: what pods do to real drivers, and what returns those NICs.

Hardware cannot be destroyed by a pod: in every sequence each NIC is back in the end, by rebinding if need be.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dranet.linux import links
from dranet.linux.hardware import pci_function
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.sysfs import Sysfs
from tests import pictures
from tests.campaign.node import Node, comes_true, configure_link
from tests.vm.world import netdev_at, tool

BURNT_IN = "permanent address"
"""In pictures. The driver of a virtual function draws one at random whenever it is bound, and it cannot be set."""


class HardwareNode(Node):
    """NICs of the machine, dressed like those of a virtual node."""

    hardware = True

    def __init__(self, addresses: Sequence[str]) -> None:
        """By PCI address."""
        super().__init__()
        self.namespace, self.route = Namespace.current(), NetlinkSocket()
        self.addresses = {netdev_at(address): address for address in addresses}
        self.nics = tuple(self.addresses)
        self._burnt_in = {link.name: link.permanent_mac for link in links.list_links(self.route)}
        self.not_nics = frozenset(link.name for link in links.list_links(self.route)) - set(self.nics)
        for number, name in enumerate(self.nics):
            configure_link(self.namespace, self.route, name, number)
            comes_true(lambda name=name: self._is_settled(name))  # type: ignore[misc]

    def picture(self, nic: str) -> pictures.Picture:
        found = super().picture(nic)
        if Path("/sys/bus/pci/devices", self.addresses[nic], "physfn").exists():
            found.pop(BURNT_IN, None)
        return found

    def where(self, nic: str, pod: Namespace | None) -> str:
        """Asked of the PCI function and of the burnt-in address: a pod can change neither. A virtual function has a new
        address whenever it is bound, but its link names the function; that of a virtio NIC does not."""
        function = pci_function(Sysfs(), self.addresses[nic])
        if function is not None and function.netdevs:
            return "host"
        if pod is not None and pod.fd >= 0:
            known = {self.addresses[nic], self._burnt_in[nic]} - {""}
            with NetlinkSocket(namespace_fd=pod.fd) as route:
                if any(known & {link.parent_device, link.permanent_mac} for link in links.list_links(route)):
                    return "pod"
        return "elsewhere"

    def close(self) -> None:
        """As the machine was: bare and down."""
        for name in self.nics:
            tool("ip", "address", "flush", "dev", name)
            for altname in links.get_link(self.route, name).altnames:  # type: ignore[union-attr]
                tool("ip", "link", "property", "del", "dev", name, "altname", altname)
            tool("ip", "link", "set", name, "down")
        super().close()
