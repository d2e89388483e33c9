"""The cards of this pod, from the metadata files mounted into it and from its kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dranet import podinfo
from dranet.kernel.ethtool import Ethtool
from dranet.kernel.links import list_links
from dranet.kernel.netlink import NetlinkSocket
from dranet.model.errors import NotFound
from dranet.pairing.values import Card, Member


def cards_of_pod(base: str = podinfo.BASE) -> tuple[list[Card], list[str]]:
    """Cards with an address, and in words those without, which cannot be measured."""
    found = [device for device in podinfo.devices(base) if device["interface"] or device["rdmaDevice"]]
    if not found:
        raise NotFound(f"no card in the metadata files below {base}; does the container name its claim?")
    links = _links()
    cards = [_card(device, *links.get(device["interface"], (1500, None))) for device in found if _is_measured(device)]
    without = [device["device"] for device in found if not _is_measured(device)]
    return cards, [f"{device} has no interface with an address, so it is not measured" for device in without]


def _is_measured(device: dict[str, Any]) -> bool:
    return bool(device["interface"] and device["addresses"])


def _links() -> dict[str, tuple[int, int | None]]:
    """MTU and speed in megabits of every link here; an interface that is not there fails when it is used."""
    with NetlinkSocket() as route, Ethtool() as ethtool:
        speeds = ethtool.speeds()
        return {link.name: (link.mtu, speeds.get(link.index)) for link in list_links(route)}


def _card(device: dict[str, Any], mtu: int, speed: int | None) -> Card:
    return Card(
        name=device["interface"],
        address=device["addresses"][0].partition("/")[0],
        mtu=mtu,
        rail=str(device["attributes"].get("rail") or ""),
        gbits=speed / 1000 if speed else None,
        rdma=device["rdmaDevice"],
        rdma_port=device["rdmaPort"],
        gid=device["gidIndex"],
    )


def named_apart(members: Sequence[Member]) -> list[Member]:
    """Pods that share a node get their number behind its name: the name stands for the pod everywhere."""
    nodes = [member.node for member in members]
    return [
        msgspec.structs.replace(member, node=f"{member.node}#{member.rank}") if nodes.count(member.node) > 1 else member
        for member in members
    ]


def on_rails(members: Sequence[Member]) -> tuple[list[Member], str]:
    """Members whose cards all have a rail, and what it was taken from.

    The published rail where every card has one of its own; else the interface's name where all pods have the same
    names; else the place in the pod's list, which is right where all claims are alike.
    """
    published = all(card.rail for member in members for card in member.cards)
    if published and all(len({card.rail for card in member.cards}) == len(member.cards) for member in members):
        return list(members), "published rail"
    if len({frozenset(card.name for card in member.cards) for member in members}) == 1:
        return [_renamed(member, [card.name for card in member.cards]) for member in members], "interface name"
    return [_renamed(member, [str(at) for at in range(len(member.cards))]) for member in members], "place in the claim"


def _renamed(member: Member, rails: Sequence[str]) -> Member:
    cards = zip(member.cards, rails, strict=True)
    return msgspec.structs.replace(
        member, cards=tuple(msgspec.structs.replace(card, rail=rail) for card, rail in cards)
    )
