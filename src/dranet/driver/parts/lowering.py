"""Taking a card down that stays on the node, without costing it what somebody gave it.

The kernel takes IPv6 addresses and fixed neighbours from every link that goes down. A card that was down before it was
raised for others may have had some, and must have them afterwards.
"""

from __future__ import annotations

from socket import AF_INET6

from dranet.kernel import addresses, links, neighbours
from dranet.kernel.codec import Message
from dranet.kernel.netlink import NetlinkSocket


def lowering(route: NetlinkSocket, index: int) -> list[Message]:
    """To be sent as one batch: the kernel works through all of it even if the sender dies meanwhile."""
    given = [one for one in addresses.list_addresses(route, index) if _is_given(one)]
    fixed = [one for one in neighbours.list_neighbours(route, states=neighbours.NUD_PERMANENT) if one.index == index]
    return [
        links.change(index, up=False),
        *(addresses.add(one, replace=True) for one in given),
        *(neighbours.add(one, replace=True) for one in fixed if one.mac),
    ]


def _is_given(address: addresses.Address) -> bool:
    """By somebody: what a router announced has an end, and what the kernel made is for the link alone."""
    lasts = bool(address.flags & addresses.IFA_F_PERMANENT)
    return address.family == AF_INET6 and lasts and address.scope != addresses.SCOPE_LINK
