"""What makes a card on the host as it was found: messages for what differs, and for nothing else.

Written to be repeated: everything is compared with what the kernel shows now, so it can run after a crash at any point,
after a namespace died, or on cards that never left.
"""

from __future__ import annotations

from typing import Any

from dranet.driver.parts.host_tables import HostTables
from dranet.driver.parts.netdev_identity import temporary_name
from dranet.driver.parts.netdev_wanted import SIZES
from dranet.driver.parts.network_layers import address_messages, neighbour_messages, route_messages
from dranet.driver.records.kernel_rows import LinkRow
from dranet.driver.records.plan import Found
from dranet.kernel import devconf, links, rules
from dranet.kernel.codec import Message
from dranet.kernel.links import Link

_SETTINGS = ("mtu", "mac", "broadcast", "alias", "txqlen", "group", "link_mode", "gso_max_segs")
_FLAGS = links.IFF_NOARP | links.IFF_PROMISC | links.IFF_ALLMULTI | links.IFF_MULTICAST


def names_to_free(card: Link, found: Found) -> list[Message]:
    """Names that are not the card's go first, on all cards: one may have another's, and they may have swapped them."""
    foreign = [name for name in card.altnames if name not in found.link.altnames]
    messages = [links.delete_altname(card.index, name) for name in foreign]
    if card.name not in (found.link.name, temporary_name(found)):
        messages += [links.change(card.index, up=False), links.change(card.index, name=temporary_name(found))]
    return messages


def settings_to_restore(card: Link, was: LinkRow) -> dict[str, str]:
    """The sysctls of the IP layers that differ, for a card that was read with its settings and has its name again."""
    now, then = ((link.ipv4_settings, link.ipv6_settings) for link in (card, was))
    return devconf.to_restore(was.name, now, then)


def link_messages(card: Link, was: LinkRow) -> list[Message]:
    """Settings, names, flags and master; it stays down."""
    changes = [links.change(card.index, **change) for change in _differences(card, was)]
    changes += [links.add_altname(card.index, name) for name in was.altnames if name not in card.altnames]
    messages = [links.change(card.index, up=False)] if changes and card.is_up else []
    messages += changes
    if flags := (card.flags ^ was.flags) & _FLAGS:
        messages.append(links.change_flags(card.index, flags, was.flags))
    if was.master and card.master != was.master:
        messages.append(links.change(card.index, master=was.master))
    return messages


def _differences(now: Link, was: LinkRow) -> list[dict[str, Any]]:
    """One change a message, so that one refusal costs one setting; the name last, when all else is in place.

    The kernel moves some of the sizes along with others, so all of them are set where one differs.
    """
    names = [name for name in _SETTINGS if _differs(now, was, name)]
    names += SIZES if any(_differs(now, was, name) for name in SIZES) else ()
    return [{name: getattr(was, name)} for name in (*names, *(["name"] if now.name != was.name else []))]


def _differs(now: Link, was: LinkRow, name: str) -> bool:
    return getattr(was, name) not in (None, getattr(now, name))


def layer_messages(tables: HostTables, card: Link, found: Found) -> list[Message]:
    """Addresses, routes, rules and neighbours, those that are missing."""
    have = tables.cidrs.get(card.index, set()) if found.addresses else set()
    missing = [address for address in found.addresses if address.cidr not in have]
    gone = [rule for row in found.rules if (rule := row.kernel()) not in tables.rules]
    return [
        *address_messages(missing, card.index),
        *(route_messages(found.routes, found.link.index, card.index) if found.link.is_up else ()),
        *(rules.add(rule) for rule in gone),
        *neighbour_messages(found.neighbours, card.index),
    ]
