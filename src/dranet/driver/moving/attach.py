"""Carrying out a plan in the pod's namespace: the runtime is waiting, so this decides nothing.

Everything doubtful was settled at prepare. Here a card is moved, addressed and raised with as few requests as the
kernel allows, in an order that does not change. The first refusal, or the end of the budget, stops it; the caller
brings home what was moved, so a pod never starts with half of its cards.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dranet.driver.claims.plan import DevicePlan, PodSide, VrfPart
from dranet.driver.moving import network_layers as layers
from dranet.driver.moving.faultpoints import reach
from dranet.driver.moving.host import Host, Pod, find_at_home, find_in_pod
from dranet.driver.parts import tuning
from dranet.kernel import links, rules, sysctl, virtual_links
from dranet.kernel.codec import Message
from dranet.kernel.links import Link
from dranet.model.errors import DranetError


class AttachError(DranetError):
    """A card could not be given to its pod; says which and why."""


def make_ready(host: Host, devices: Iterable[DevicePlan]) -> None:
    """What may be done before the pod exists: down, MTU, MAC, offloads. Does nothing that is done already."""
    wanted = [(device, device.pod) for device in devices if device.host and device.pod]
    cards = _all_found(find_at_home(host, [device for device, _ in wanted]), [d for d, _ in wanted], "not on this node")
    _make_ready(host, [(card, pod) for card, (_, pod) in zip(cards, wanted, strict=True)])


def _make_ready(host: Host, cards: Sequence[tuple[Link, PodSide]]) -> None:
    layers.raise_first(host.route.batch([message for card, pod in cards for message in _settings(card, pod)]))
    for card, pod in cards:
        tuning.apply(host, card, pod)
        if pod.detach_bpf:
            tuning.detach_bpf(host, card)


def _all_found(cards: Sequence[Link | None], devices: Sequence[DevicePlan], otherwise: str) -> list[Link]:
    missing = [device for card, device in zip(cards, devices, strict=True) if card is None]
    if missing:
        names = [f"{device.device} ({device.host.link.name})" for device in missing if device.host]
        raise AttachError("; ".join(f"{name} is {otherwise}" for name in names))
    return [card for card in cards if card is not None]


def _settings(card: Link, pod: PodSide) -> list[Message]:
    messages: list[Message] = [links.change(card.index, up=False)] if card.is_up else []
    if card.master:
        messages.append(links.change(card.index, master=0))
    if pod.mtu is not None and card.mtu != pod.mtu:
        messages.append(links.change(card.index, mtu=pod.mtu))
    if pod.mac is not None and card.mac != pod.mac:
        messages.append(links.change(card.index, mac=pod.mac))
    return messages


def bring_in(host: Host, pod: Pod, devices: Sequence[DevicePlan], *, check: Callable[[], None]) -> list[Link]:
    """Move the cards into the pod, in order, and configure them there. Cards that are inside already are configured.

    All moves are one conversation with the kernel, and so is all configuration: what we do between two cards would
    only make the runtime wait. `check` raises when time is up.
    """
    found = find_at_home(host, devices)
    outside = [(card, device) for card, device in zip(found, devices, strict=True) if card is not None]
    _make_ready(host, [(card, device.pod) for card, device in outside if device.pod])
    check()
    _move(host, pod, outside)
    reach("attach.moved")
    check()
    inside = _all_found(find_in_pod(pod, devices), devices, "neither on the node nor in the pod")
    _configure(host, pod, list(zip(inside, devices, strict=True)))
    reach("attach.configured")
    return inside


def _move(host: Host, pod: Pod, cards: Sequence[tuple[Link, DevicePlan]]) -> None:
    moves = [links.change(c.index, namespace_fd=pod.namespace.fd, name=d.pod.name) for c, d in cards if d.pod]
    for error, (_, device) in zip(host.route.batch(moves), cards, strict=True):
        if error is None or device.pod is None:
            continue
        if error.errno == errno.EEXIST:
            taken = f"the pod already has an interface named {device.pod.name}"
            raise AttachError(f"{taken}; give {device.device} another interface.name") from error
        raise AttachError(f"{device.device}: {error}") from error


def _configure(host: Host, pod: Pod, cards: Sequence[tuple[Link, DevicePlan]]) -> None:
    wanted = [(card, device, device.pod) for card, device in cards if device.pod]
    renames = [
        message
        for card, _, want in wanted
        if card.name != want.name
        for message in (links.change(card.index, up=False), links.change(card.index, name=want.name))
    ]
    layers.raise_first(pod.route.batch(renames))
    sysctls = {path: text for _, _, want in wanted for path, text in want.sysctls.items()}
    if sysctls:
        sysctl.write_all(pod.namespace.fd, sysctls, proc_root=host.proc_root)
    steps = [(device, message) for card, device, want in wanted for message in _steps(pod, card, want)]
    outcome = pod.route.batch([message for _, message in steps])
    refused = [(d, error) for (d, _), error in zip(steps, outcome, strict=True) if layers.is_failure(error)]
    if refused:
        raise AttachError("; ".join(f"{device.device}: {error}" for device, error in refused))


def _steps(pod: Pod, card: Link, want: PodSide) -> list[Message]:
    """What one card needs inside the pod: sizes, VRF and addresses before it is raised, the rest after."""
    sizes = [links.change(card.index, **dict[str, Any](want.sizes))] if want.sizes else []
    master = [links.change(card.index, master=_vrf(pod, want.vrf).index)] if want.vrf else []
    return [
        *sizes,
        *master,
        *layers.address_messages(want.addresses, card.index),
        links.change(card.index, up=True),
        *layers.route_messages(want.routes, 0, card.index),
        *(rules.add(rule) for rule in want.rules),
        *layers.neighbour_messages(want.neighbours, card.index),
    ]


def _vrf(pod: Pod, vrf: VrfPart) -> Link:
    """The pod's VRF device of that name, made if it is not there; it must look into the table that was asked for."""
    found = links.get_link(pod.route, vrf.name)
    if found is None:
        pod.route.request(virtual_links.create_vrf(vrf.name, vrf.table))
        found = links.get_link(pod.route, vrf.name)
    if found is None or found.kind != "vrf" or virtual_links.vrf_table(found.info) != vrf.table:
        raise AttachError(f"{vrf.name} exists in the pod but is not a VRF of table {vrf.table}")
    pod.route.request(links.change(found.index, up=True))
    return found


def undo_in_pod(pod: Pod, plan: DevicePlan) -> None:
    """Take back what outlives the card in a namespace that lives on: its rules and an empty VRF."""
    assert plan.pod is not None
    if not plan.pod.rules and not plan.pod.vrf:
        return
    messages = [rules.delete(rule) for rule in plan.pod.rules]
    vrf = links.get_link(pod.route, plan.pod.vrf.name) if plan.pod.vrf else None
    if vrf and not any(link.master == vrf.index for link in links.list_links(pod.route)):
        messages.append(links.delete(vrf.index))
    pod.route.batch(messages)
