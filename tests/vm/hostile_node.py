"""The machine's own cards as the node of a campaign: what pods do to real drivers, and what brings those cards home.

Hardware cannot be destroyed by a pod: in every sequence each card must be home in the end, by rebinding if need be.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dranet.kernel import links
from dranet.kernel.hardware import pci_function
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket
from dranet.kernel.sysfs import Sysfs
from tests import pictures
from tests.adversary.node import Node, dress, until
from tests.vm.world import netdev_at, tool

BURNT_IN = "permanent address"
"""In pictures. The driver of a virtual function draws one at random whenever it is bound, and nobody can set it."""


class HardwareNode(Node):
    """Cards of the machine, dressed like those of a virtual node."""

    hardware = True

    def __init__(self, addresses: Sequence[str]) -> None:
        """By PCI address."""
        super().__init__()
        self.namespace, self.route = Namespace.current(), NetlinkSocket()
        self.addresses = {netdev_at(address): address for address in addresses}
        self.cards = tuple(self.addresses)
        self._burnt_in = {link.name: link.permanent_mac for link in links.list_links(self.route)}
        self.not_cards = frozenset(link.name for link in links.list_links(self.route)) - set(self.cards)
        for number, name in enumerate(self.cards):
            dress(self.namespace, self.route, name, number)
            until(lambda name=name: self._is_settled(name))  # type: ignore[misc]

    def picture(self, card: str) -> pictures.Picture:
        found = super().picture(card)
        if Path("/sys/bus/pci/devices", self.addresses[card], "physfn").exists():
            found.pop(BURNT_IN, None)
        return found

    def where(self, card: str, pod: Namespace | None) -> str:
        """Asked of the PCI function and of the burnt-in address: a pod can change neither. A virtual function has a new
        address whenever it is bound, but its link names the function; that of a virtio card does not."""
        function = pci_function(Sysfs(), self.addresses[card])
        if function is not None and function.netdevs:
            return "home"
        if pod is not None and pod.fd >= 0:
            known = {self.addresses[card], self._burnt_in[card]} - {""}
            with NetlinkSocket(namespace_fd=pod.fd) as route:
                if any(known & {link.parent_device, link.permanent_mac} for link in links.list_links(route)):
                    return "pod"
        return "elsewhere"

    def close(self) -> None:
        """As the machine was: bare and down."""
        for name in self.cards:
            tool("ip", "address", "flush", "dev", name)
            for altname in links.get_link(self.route, name).altnames:  # type: ignore[union-attr]
                tool("ip", "link", "property", "del", "dev", name, "altname", altname)
            tool("ip", "link", "set", name, "down")
        super().close()
