"""Which rail a card is on: cards of one rail reach each other, cards of different rails do not.

Nothing in the kernel says so. What does is, in this order: the interface's name where a cloud numbers its cards in it,
the network a cloud has put the card into, or, where the operator says that subnets are rails, the subnet. A subnet is
not always in the address: on GCE every address is a /32 and the subnet is a route. Where rails do not matter, or
nothing tells, there is no rail: a wrong one would keep pods apart that can talk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_interface, ip_network

import msgspec

from dranet.kernel.routes import TABLE_LOCAL, TYPE_UNICAST, Route
from dranet.model.device import AttributeValue
from dranet.model.errors import InvalidInput

SUBNET = "subnet"
SOURCES = ("auto", "off", "network", SUBNET)
_NUMBERED = {"": (re.compile(r"gpu(\d+)rdma\d+"),), "OKE": (re.compile(r"rdma(\d+)"),)}
"""Names in which a card's rail is written, by cloud. GKE's is nobody else's; OKE's could be anybody's."""
_NETWORK = "gce.dra.net/networkName"


class RailSource(msgspec.Struct, frozen=True):
    """Where rails are read from: one of `SOURCES`, or a pattern of interface names whose first group is the rail."""

    kind: str = "auto"
    pattern: re.Pattern[str] | None = None

    @classmethod
    def parse(cls, text: str) -> RailSource:
        """``auto``, ``off``, ``network``, ``subnet`` or ``interface:PATTERN``."""
        kind, _, pattern = text.partition(":")
        if text in SOURCES:
            return cls(text)
        if kind != "interface":
            raise InvalidInput(f"{text!r} is none of {', '.join(SOURCES)} and no interface:PATTERN")
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise InvalidInput(f"interface:{pattern} is no regular expression: {error}") from error
        if compiled.groups != 1:
            raise InvalidInput(f"interface:{pattern} needs one group in parentheses, the rail, as in eth([0-9]+)")
        return cls("interface", compiled)


def rail(
    source: RailSource,
    interface: str,
    cloud_name: str,
    cloud: Mapping[str, AttributeValue],
    addresses: Sequence[str],
    routes: Sequence[Route],
) -> str:
    """The rail of one card, or an empty string. Addresses and routes are needed only where subnets are rails."""
    if source.kind == "interface" and source.pattern is not None:
        match = source.pattern.fullmatch(interface)
        return match[1] or "" if match else ""
    if source.kind == "auto" and (numbered := _number(interface, cloud_name)):
        return numbered
    if source.kind in {"auto", "network"}:
        return str(cloud.get(_NETWORK, ""))
    return subnet(addresses, routes) if source.kind == SUBNET else ""


def subnet(addresses: Iterable[str], routes: Sequence[Route]) -> str:
    """The smallest network with more than one address that the card's first address lies in, by routes, then prefix."""
    for text in sorted(addresses, key=lambda one: (":" in one, one)):
        address = ip_interface(text)
        around = [
            ip_network(r.destination) for r in routes if _is_of_card(r) and (":" in r.destination) == (":" in text)
        ]
        near = [
            network for network in (*around, address.network) if network.num_addresses > 1 and address.ip in network
        ]
        if near:
            return str(max(near, key=lambda network: network.prefixlen))
    return ""


@lru_cache(maxsize=4096)
def _number(interface: str, cloud_name: str) -> str:
    patterns = (*_NUMBERED[""], *(_NUMBERED.get(cloud_name, ()) if cloud_name else ()))
    return next((match[1] for pattern in patterns if (match := pattern.fullmatch(interface))), "")


def _is_of_card(route: Route) -> bool:
    return route.type == TYPE_UNICAST and route.table != TABLE_LOCAL and not route.is_default
