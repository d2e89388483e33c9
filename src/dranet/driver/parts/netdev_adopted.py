"""A card that is in a pod although no plan is left: how it was on the host is taken from what was published.

That is less than a plan knows (no routes, no sysctls), but enough to bring the card home. Where the reference driver
brought it there, its record tells more: the host's routes, which it had copied for the pod.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

import msgspec

from dranet.driver.parts.base import Witness
from dranet.driver.parts.netdev_identity import seen_from_host
from dranet.driver.parts.netdev_wanted import asked_route
from dranet.driver.records.kernel_rows import AddressRow, LinkRow, RouteRow
from dranet.driver.records.plan import Found
from dranet.kernel import addresses, links
from dranet.kernel.links import Link
from dranet.model import attributes
from dranet.model.device import Device
from dranet.model.errors import NotFound
from dranet.model.netconfig import NetworkConfig


def found_as_published(witness: Witness) -> Found:
    """The card in the pod, as it was published; raises NotFound where it is not in there."""
    said = witness.published.attributes
    name = str(witness.config.link.name or said[attributes.IF_NAME])
    card = _recognised(links.list_links(witness.pod.route), witness.published, name)
    if card is None:
        raise NotFound(f"{witness.published.name} is not in the pod: neither by its PCI function nor as {name}")
    number = seen_from_host(witness.node.host, witness.pod, card)
    found = _as_published(msgspec.structs.replace(card, parent_netnsid=number), witness.published)
    copied = _copied_routes(witness.recorded, witness.config, found) if witness.recorded else ()
    return msgspec.structs.replace(found, routes=tuple(copied))


def _recognised(inside: Sequence[Link], published: Device, name: str) -> Link | None:
    """Hardware by its PCI function; a virtual link by its MAC or its name, but none that the pod has made for itself:
    of those the other end is in the pod."""
    said = published.attributes
    if pci := said.get(attributes.PCI_ADDRESS):
        return next((link for link in inside if link.parent_device == pci), None)
    macs = {said.get(attributes.MAC)}
    ours = [link for link in inside if not link.parent_device and not link.is_loopback and not _has_its_peer_here(link)]
    by_mac = [link for link in ours if link.mac in macs]
    by_name = [link for link in ours if link.name == name]
    return next(iter([*(link for link in by_mac if link in by_name), *by_mac, *by_name]), None)


def _has_its_peer_here(link: Link) -> bool:
    return link.parent_index is not None and link.parent_netnsid is None


def _as_published(card: Link, published: Device) -> Found:
    """What is not told in the publication is taken as it is now."""
    said = published.attributes
    was = msgspec.structs.replace(
        LinkRow.of(card),
        name=str(said[attributes.IF_NAME]),
        mtu=int(said.get(attributes.MTU, card.mtu)),
        mac=str(said.get(attributes.MAC) or card.mac),
        alias=str(said.get(attributes.ALIAS, "")),
        master=0,
    )
    cidrs = [c for key in (attributes.IPV4, attributes.IPV6) for c in str(said.get(key, "")).split(",") if c]
    pci = said.get(attributes.PCI_ADDRESS)
    return Found(
        link=was,
        pci=str(pci) if pci else None,
        addresses=tuple(AddressRow.of(addresses.from_cidr(cidr, card.index)) for cidr in cidrs),
    )


def _copied_routes(recorded: NetworkConfig, asked: NetworkConfig, found: Found) -> Iterator[RouteRow]:
    """The routes that are not the claim's own. Those to an address's own network come back with the address."""
    own = {(route.destination, route.table or 0) for route in asked.routes or ()}
    connected = {str(ipaddress.ip_interface(f"{a.local}/{a.prefix}").network) for a in found.addresses}
    for route in recorded.routes or ():
        if (route.destination, route.table or 0) not in own and route.destination not in connected:
            row = asked_route(route)
            yield msgspec.structs.replace(row, index=found.link.index)
