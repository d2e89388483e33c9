"""Bringing cards home, and making them as they were found.

Written to be repeated: every step looks at what the kernel shows and does only what is missing, so it can run after a
crash at any point, after a namespace died, or on a card that never left. A card leaves its pod under a temporary name,
because its old name may be taken; then it gets its settings, its old name, and last its state, addresses and routes.
"""

from __future__ import annotations

from typing import Any

from dranet.driver import layers, tuning
from dranet.driver.faultpoints import reach
from dranet.driver.host import Host, Pod, find_at_home, find_in_pod, temporary_name
from dranet.driver.plan import DevicePlan, HostSide
from dranet.kernel import addresses, links, rules
from dranet.kernel.codec import Message
from dranet.kernel.links import Link

_SETTINGS = ("mtu", "mac", "alias", "txqlen", "group")
_SIZES = ("gso_max_size", "gro_max_size", "gso_ipv4_max_size", "gro_ipv4_max_size")


def leave_pod(host: Host, pod: Pod, plan: DevicePlan) -> bool:
    """Move the card out of the pod under its temporary name; False where it is not in there."""
    assert plan.host is not None
    card = find_in_pod(pod, plan)
    if card is None:
        return False
    away = links.change(card.index, namespace_fd=host.namespace.fd, name=temporary_name(plan))
    layers.raise_first(pod.route.batch([links.change(card.index, up=False), away]))
    reach("detach.moved")
    return True


def restore(host: Host, plan: DevicePlan) -> list[str]:
    """Make the card on the host as it was found. What could not be put back, in words; empty when all is well.

    A virtual card that died with its pod's namespace is not there any more: that is said, and nothing can be done.
    """
    assert plan.host is not None
    card = find_at_home(host, plan)
    if card is None:
        return [f"{plan.host.link.name} is not on this node any more: it was destroyed with the pod's namespace"]
    problems = _restore_link(host, card, plan.host)
    problems += tuning.restore(host, card, plan.host)
    problems += _restore_layers(host, card.index, plan.host)
    reach("detach.restored")
    return problems


def _restore_link(host: Host, card: Link, was: HostSide) -> list[str]:
    changes = [links.change(card.index, **change) for change in _differences(card, was.link)]
    messages: list[Message] = [links.change(card.index, up=False)] if changes and card.is_up else []
    messages += changes
    if was.link.master and card.master != was.link.master:
        messages.append(links.change(card.index, master=was.link.master))
    messages.append(links.change(card.index, up=was.link.is_up))
    return [str(error) for error in host.route.batch(messages) if error is not None]


def _differences(now: Link, was: Link) -> list[dict[str, Any]]:
    """One change a message, so that one refusal costs one setting; the name last, when all else is in place."""
    found = [{name: getattr(was, name)} for name in (*_SETTINGS, *_SIZES, "name") if _differs(now, was, name)]
    return [change for change in found if None not in change.values()]


def _differs(now: Link, was: Link, name: str) -> bool:
    return bool(getattr(now, name) != getattr(was, name))


def _restore_layers(host: Host, index: int, was: HostSide) -> list[str]:
    """Addresses, routes, rules and neighbours, those that are missing."""
    have = {a.cidr for a in addresses.list_addresses(host.route, index)} if was.addresses else set()
    messages = layers.address_messages([a for a in was.addresses if a.cidr not in have], index)
    if was.link.is_up:
        messages += layers.route_messages(was.routes, was.link.index, index)
    present = set(rules.list_rules(host.route)) if was.rules else set()
    messages += [rules.add(rule) for rule in was.rules if rule not in present]
    messages += layers.neighbour_messages(was.neighbours, index)
    return [str(error) for error in layers.failures(host.route.batch(messages))]
