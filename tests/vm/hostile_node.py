"""The machine's own cards as the node of a campaign: what pods do to real drivers, and what brings those cards home.

Hardware cannot be destroyed by a pod: in every sequence each card must be home in the end, by rebinding if need be.
"""

from __future__ import annotations

from collections.abc import Sequence

from dranet.kernel import links
from dranet.kernel.hardware import pci_function
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket
from dranet.kernel.sysfs import Sysfs
from tests.adversary.node import Node, dress, until
from tests.vm.machine import Card
from tests.vm.world import netdev_of, tool


class HardwareNode(Node):
    """Cards of the machine, dressed like those of a virtual node."""

    hardware = True

    def __init__(self, cards: Sequence[Card]) -> None:
        super().__init__()
        self.namespace, self.route = Namespace.current(), NetlinkSocket()
        self.addresses = {netdev_of(card): card.address for card in cards}
        self.cards = tuple(self.addresses)
        self._burnt_in = {netdev_of(card): card.mac for card in cards}
        self.not_cards = frozenset(link.name for link in links.list_links(self.route)) - set(self.cards)
        for number, name in enumerate(self.cards):
            dress(self.namespace, self.route, name, number)
            until(lambda name=name: self._is_settled(name))  # type: ignore[misc]

    def where(self, card: str, pod: Namespace | None) -> str:
        """Asked of the PCI function, and of the burnt-in address: a pod can change neither."""
        function = pci_function(Sysfs(), self.addresses[card])
        if function is not None and function.netdevs:
            return "home"
        if pod is not None and pod.fd >= 0:
            with NetlinkSocket(namespace_fd=pod.fd) as route:
                if any(link.permanent_mac == self._burnt_in[card] for link in links.list_links(route)):
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
