"""A card that is in a pod although no plan is left: how it was on the host is taken from what was published.

That is less than a plan knows (no routes, no sysctls), but enough to bring the card home. Where the reference driver
brought it there, its record tells more: the host's routes, which it had copied for the pod.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

import msgspec

from dranet.driver.parts.base import Witness
from dranet.driver.parts.netdev_identity import NOWHERE, seen_from_host
from dranet.driver.parts.netdev_wanted import asked_route
from dranet.driver.records.kernel_rows import AddressRow, LinkRow, RouteRow
from dranet.driver.records.plan import Found
from dranet.kernel import addresses, links
from dranet.kernel.codec import mac_text
from dranet.kernel.links import Link
from dranet.kernel.sysfs import Sysfs
from dranet.model import attributes
from dranet.model.device import Device
from dranet.model.errors import NotFound
from dranet.model.netconfig import NetworkConfig, parse_hardware_address


def found_as_published(witness: Witness) -> Found:
    """The card in the pod, as it was published; raises NotFound where it is not in there."""
    said = witness.published.attributes
    name = str(witness.config.link.name or said[attributes.IF_NAME])
    asked = parse_hardware_address(witness.config.link.hardware_addr or "")
    macs = {str(said.get(attributes.MAC)), *([mac_text(asked)] if asked else [])}
    there = [link for link in links.list_links(witness.pod.route) if link.index not in witness.taken]
    inside = [link for link in there if not _is_the_pods_own(witness, link)]
    card = recognised(inside, witness.published, name, macs, witness.node.sysfs)
    if card is None:
        why = "it has neither its PCI function nor its MAC, or several links have that MAC and none its name"
        raise NotFound(f"{witness.published.name} is not in the pod, or cannot be told from others there: {why}")
    number = seen_from_host(witness.node.host, witness.pod, card)
    found = _as_published(msgspec.structs.replace(card, parent_netnsid=number), witness.published)
    copied = _copied_routes(witness.recorded, witness.config, found) if witness.recorded else ()
    return msgspec.structs.replace(found, routes=tuple(copied))


def recognised(inside: Sequence[Link], published: Device, name: str, macs: set[str], sysfs: Sysfs) -> Link | None:
    """Hardware by its PCI function, or by virtio's own device below that; a virtual link by its MAC, for two of them
    may have swapped their names. Where several have that MAC, and none the name, none is taken: it might be another
    card, which would come home as this one."""
    said = published.attributes
    if pci := said.get(attributes.PCI_ADDRESS):
        below = {child for child in sysfs.entries("bus/pci/devices", str(pci)) if child.startswith("virtio")}
        return next((link for link in inside if link.parent_device in {pci, *below}), None)
    kind = said.get(attributes.TYPE)
    by_mac = [link for link in inside if not link.parent_device and link.mac in macs and kind in (None, link.kind)]
    return next((link for link in by_mac if link.name == name or len(by_mac) == 1), None)


def _is_the_pods_own(witness: Witness, link: Link) -> bool:
    """A pair that the pod has made for itself: its other end is in the pod, or where the host has never been."""
    if link.kind != "veth":
        return link.is_loopback
    return link.parent_netnsid is None or seen_from_host(witness.node.host, witness.pod, link) == NOWHERE


def _as_published(card: Link, published: Device) -> Found:
    """What is not told in the publication is taken as it is now."""
    said = published.attributes
    was = msgspec.structs.replace(
        LinkRow.of(card),
        name=str(said[attributes.IF_NAME]),
        mtu=int(said.get(attributes.MTU, card.mtu)),
        mac=str(said.get(attributes.MAC) or card.mac),
        alias=str(said.get(attributes.ALIAS, "")),
        altnames=(),  # the pod may have given it the name of another card, which could then not come home
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
