"""The rail of a NIC: NICs of one rail reach each other, NICs of different rails do not.

The kernel does not know rails. They are read from the interface name where the cloud numbers NICs in it, then from the
network that the cloud attached the NIC to, or from the subnet if the operator says so. On GCE every address is a /32
and the subnet is a route. Without a source there is no rail: a wrong one would separate pods that can communicate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_interface, ip_network

import msgspec

from dranet.core.device import AttributeValue
from dranet.core.errors import InvalidInput
from dranet.linux.routes import TABLE_LOCAL, TYPE_UNICAST, Route

SUBNET = "subnet"
_SOURCES = ("auto", "off", "network", SUBNET)
_NUMBERED = {"": (re.compile(r"gpu(\d+)rdma\d+"),), "OKE": (re.compile(r"rdma(\d+)"),)}
"""Interface names that contain the rail, by cloud. GKE's pattern is unique; OKE's could match other clouds' names."""
_NETWORK = "gce.dra.net/networkName"


class RailSource(msgspec.Struct, frozen=True):
    """Where rails are read from: a kind, and for ``interface`` the pattern whose only group is the rail."""

    kind: str = "auto"
    pattern: re.Pattern[str] | None = None

    @classmethod
    def parse(cls, text: str) -> RailSource:
        """``auto``, ``off``, ``network``, ``subnet`` or ``interface:PATTERN``."""
        kind, _, pattern = text.partition(":")
        if text in _SOURCES:
            return cls(text)
        if kind != "interface":
            raise InvalidInput(f"{text!r} is not valid; use one of {', '.join(_SOURCES)}, or interface:PATTERN")
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise InvalidInput(f"interface:{pattern} is not a valid regular expression: {error}") from error
        if compiled.groups != 1:
            raise InvalidInput(f"interface:{pattern} needs exactly one group, which is the rail, as in eth([0-9]+)")
        return cls("interface", compiled)


def rail(
    source: RailSource,
    interface: str,
    cloud_name: str,
    cloud: Mapping[str, AttributeValue],
    addresses: Sequence[str],
    routes: Sequence[Route],
) -> str:
    """The rail of one NIC, or an empty string. Addresses and routes matter only where subnets are rails."""
    if source.kind == "interface" and source.pattern is not None:
        match = source.pattern.fullmatch(interface)
        return match[1] or "" if match else ""
    if source.kind == "auto" and (numbered := _number(interface, cloud_name)):
        return numbered
    if source.kind in {"auto", "network"}:
        return str(cloud.get(_NETWORK, ""))
    return subnet(addresses, routes) if source.kind == SUBNET else ""


def subnet(addresses: Iterable[str], routes: Sequence[Route]) -> str:
    """The smallest network of more than one address that contains the NIC's first address, by route or prefix."""
    for text in sorted(addresses, key=lambda one: (":" in one, one)):
        address = ip_interface(text)
        routed = [
            ip_network(r.destination) for r in routes if _is_link_route(r) and (":" in r.destination) == (":" in text)
        ]
        containing = [
            network for network in (*routed, address.network) if network.num_addresses > 1 and address.ip in network
        ]
        if containing:
            return str(max(containing, key=lambda network: network.prefixlen))
    return ""


@lru_cache(maxsize=4096)
def _number(interface: str, cloud_name: str) -> str:
    patterns = (*_NUMBERED[""], *(_NUMBERED.get(cloud_name, ()) if cloud_name else ()))
    return next((match[1] for pattern in patterns if (match := pattern.fullmatch(interface))), "")


def _is_link_route(route: Route) -> bool:
    return route.type == TYPE_UNICAST and route.table != TABLE_LOCAL and not route.is_default
