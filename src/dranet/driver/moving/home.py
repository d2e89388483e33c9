"""Bringing cards home, and making them as they were found.

Written to be repeated: every step looks at what the kernel shows and does only what is missing, so it can run after a
crash at any point, after a namespace died, or on cards that never left. A card leaves its pod under a temporary name,
because its old name may be taken; then it gets its settings, its old name, and last its state, addresses and routes.
The cards of a claim travel together: one conversation with the kernel for each of these steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from dranet.driver.claims.plan import DevicePlan, HostSide
from dranet.driver.moving import attach
from dranet.driver.moving import network_layers as layers
from dranet.driver.moving.faultpoints import reach
from dranet.driver.moving.host import Host, Pod, find_at_home, find_in_pod, temporary_name
from dranet.driver.parts import tuning
from dranet.kernel import addresses, devconf, links, rules, sysctl
from dranet.kernel.codec import Message
from dranet.kernel.links import Link
from dranet.kernel.netlink import NetlinkSocket

_SETTINGS = ("mtu", "mac", "alias", "txqlen", "group")
_FLAGS = links.IFF_NOARP | links.IFF_PROMISC | links.IFF_ALLMULTI | links.IFF_MULTICAST
_SIZES = ("gso_max_size", "gro_max_size", "gso_ipv4_max_size", "gro_ipv4_max_size")


def leave_pod(host: Host, pod: Pod, devices: Sequence[DevicePlan]) -> None:
    """Move those cards that are in the pod out of it, each under its temporary name."""
    found = zip(find_in_pod(pod, devices), devices, strict=True)
    inside = [(card, device) for card, device in found if card is not None]
    downs = [links.change(card.index, up=False) for card, _ in inside]
    moves = [
        links.change(card.index, namespace_fd=host.namespace.fd, name=temporary_name(device)) for card, device in inside
    ]
    # All down before the first move: a link that goes down leaves the kernel work which the next move waits for.
    layers.raise_first(pod.route.batch([*downs, *moves]))
    reach("detach.moved")
    for _, device in inside:
        attach.undo_in_pod(pod, device)


def restore(host: Host, devices: Sequence[DevicePlan]) -> list[str]:
    """Make the cards on the host as they were found. What could not be put back, in words; empty when all is well.

    A virtual card that died with its pod's namespace is not there any more: that is said, and nothing can be done.
    """
    problems: list[str] = []
    cards: list[tuple[Link, HostSide]] = []
    for card, device in zip(find_at_home(host, devices), devices, strict=True):
        if device.host is not None and card is not None:
            cards.append((card, device.host))
        elif device.host is not None:
            name = device.host.link.name
            problems.append(f"{name} is not on this node any more: it was destroyed with the pod's namespace")
    problems += _restore_settings(host, cards)
    problems += _refusals(host.route, [message for card, was in cards for message in _link_messages(card, was.link)])
    for card, was in cards:
        problems += tuning.restore(host, card, was)
    problems += [str(error) for error in layers.failures(host.route.batch(_layer_messages(host, cards)))]
    reach("detach.restored")
    return problems


def _restore_settings(host: Host, cards: Sequence[tuple[Link, HostSide]]) -> list[str]:
    """The settings of the IP layers, which the kernel forgets with every move; before the card is raised."""
    wanted: dict[str, str] = {}
    told = links.get_links(host.route, [card.index for card, _ in cards], settings=True)
    for card, (_, was) in zip(told, cards, strict=True):
        if card is not None:
            now, then = ((link.ipv4_settings, link.ipv6_settings) for link in (card, was.link))
            wanted |= devconf.to_restore(card.name, now, then)
    return sysctl.write_each(host.namespace.fd, wanted, proc_root=host.proc_root) if wanted else []


def _refusals(route: NetlinkSocket, messages: Sequence[Message]) -> list[str]:
    return [str(error) for error in route.batch(messages) if error is not None]


def _link_messages(card: Link, was: Link) -> list[Message]:
    changes = [links.change(card.index, **change) for change in _differences(card, was)]
    messages = [links.change(card.index, up=False)] if changes and card.is_up else []
    messages += changes
    if flags := (card.flags ^ was.flags) & _FLAGS:
        messages.append(links.change_flags(card.index, flags, was.flags))
    if was.master and card.master != was.master:
        messages.append(links.change(card.index, master=was.master))
    return [*messages, links.change(card.index, up=was.is_up)]


def _differences(now: Link, was: Link) -> list[dict[str, Any]]:
    """One change a message, so that one refusal costs one setting; the name last, when all else is in place."""
    names = (*_SETTINGS, *_SIZES, "name")
    found = [{name: getattr(was, name)} for name in names if getattr(now, name) != getattr(was, name)]
    return [change for change in found if None not in change.values()]


def _layer_messages(host: Host, cards: Sequence[tuple[Link, HostSide]]) -> list[Message]:
    """Addresses, routes, rules and neighbours, those that are missing."""
    have: defaultdict[int, set[str]] = defaultdict(set)
    for address in addresses.list_addresses(host.route) if any(was.addresses for _, was in cards) else ():
        have[address.index].add(address.cidr)
    present = set(rules.list_rules(host.route)) if any(was.rules for _, was in cards) else set()
    messages: list[Message] = []
    for card, was in cards:
        missing = [address for address in was.addresses if address.cidr not in have[card.index]]
        messages += layers.address_messages(missing, card.index)
        if was.link.is_up:
            messages += layers.route_messages(was.routes, was.link.index, card.index)
        messages += [rules.add(rule) for rule in was.rules if rule not in present]
        messages += layers.neighbour_messages(was.neighbours, card.index)
    return messages
