"""A card that is in a pod although no plan is left: how it was on the host is taken from what was published.

That is less than a plan knows (no routes, no sysctls), but enough to bring the card home.
"""

from __future__ import annotations

import msgspec

from dranet.driver.parts.base import Witness
from dranet.driver.records.kernel_rows import AddressRow, LinkRow
from dranet.driver.records.plan import Found
from dranet.kernel import addresses, links
from dranet.kernel.links import Link
from dranet.model import attributes
from dranet.model.device import Device
from dranet.model.errors import NotFound


def found_as_published(witness: Witness) -> Found:
    """The card in the pod, as it was published; raises NotFound where it is not in there."""
    said = witness.published.attributes
    name = witness.config.link.name or str(said[attributes.IF_NAME])
    card = links.get_link(witness.pod.route, str(name))
    if card is None:
        raise NotFound(f"{witness.published.name} is not in the pod under the name {name}")
    return _as_published(card, witness.published)


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
