"""Carrying out a plan in the pod's namespace: the runtime is waiting, so this decides nothing.

Everything doubtful was settled at prepare. Here a card is moved, addressed and raised with as few requests as the
kernel allows, in an order that does not change. The first refusal, or the end of the budget, stops it; the caller
brings home what was moved, so a pod never starts with half of its cards.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dranet.driver import layers, tuning
from dranet.driver.faultpoints import reach
from dranet.driver.host import Host, Pod, find_at_home, find_in_pod
from dranet.driver.plan import DevicePlan, PodSide, VrfPart
from dranet.kernel import links, rules, sysctl, virtual_links
from dranet.kernel.codec import Message
from dranet.kernel.links import Link
from dranet.kernel.netlink import NetlinkError
from dranet.model.errors import DranetError


class AttachError(DranetError):
    """A card could not be given to its pod; says which and why."""


def make_ready(host: Host, devices: Iterable[DevicePlan]) -> None:
    """What may be done before the pod exists: down, MTU, MAC, offloads. Does nothing that is done already."""
    _make_ready(host, [(_at_home(host, device), device.pod) for device in devices if device.host and device.pod])


def _make_ready(host: Host, cards: Sequence[tuple[Link, PodSide]]) -> None:
    layers.raise_first(host.route.batch([message for card, pod in cards for message in _settings(card, pod)]))
    for card, pod in cards:
        tuning.apply(host, card, pod)
        if pod.detach_bpf:
            tuning.detach_bpf(host, card)


def _at_home(host: Host, device: DevicePlan) -> Link:
    assert device.host is not None
    card = find_at_home(host, device)
    if card is None:
        raise AttachError(f"{device.device} ({device.host.link.name}) is not on this node")
    return card


def _settings(card: Link, pod: PodSide) -> list[Message]:
    messages: list[Message] = [links.change(card.index, up=False)] if card.is_up else []
    if card.master:
        messages.append(links.change(card.index, master=0))
    if pod.mtu is not None and card.mtu != pod.mtu:
        messages.append(links.change(card.index, mtu=pod.mtu))
    if pod.mac is not None and card.mac != pod.mac:
        messages.append(links.change(card.index, mac=pod.mac))
    return messages


def move_in(host: Host, pod: Pod, plan: DevicePlan, *, check: Callable[[], None]) -> Link:
    """Move the card into the pod and configure it there. A card that is inside already is only configured."""
    assert plan.host is not None and plan.pod is not None
    card = find_at_home(host, plan)
    if card is not None:
        _make_ready(host, [(card, plan.pod)])
        check()
        _move(host, pod, card, plan)
        reach("attach.moved")
    inside = find_in_pod(pod, plan)
    if inside is None:
        raise AttachError(f"{plan.device} ({plan.host.link.name}) is neither on the node nor in the pod")
    check()
    _configure(host, pod, inside, plan)
    reach("attach.configured")
    return inside


def _move(host: Host, pod: Pod, card: Link, plan: DevicePlan) -> None:
    assert plan.pod is not None
    try:
        host.route.request(links.change(card.index, namespace_fd=pod.namespace.fd, name=plan.pod.name))
    except NetlinkError as error:
        if error.errno == errno.EEXIST:
            raise AttachError(
                f"the pod already has an interface named {plan.pod.name}; give {plan.device} another interface.name"
            ) from error
        raise


def _configure(host: Host, pod: Pod, card: Link, plan: DevicePlan) -> None:
    want = plan.pod
    assert want is not None
    if card.name != want.name:
        layers.raise_first(
            pod.route.batch([links.change(card.index, up=False), links.change(card.index, name=want.name)])
        )
    if want.sysctls:
        wanted = {path.format(name=want.name): value for path, value in want.sysctls.items()}
        sysctl.write_all(pod.namespace.fd, wanted, proc_root=host.proc_root)
    master = [links.change(card.index, master=_vrf(pod, want.vrf).index)] if want.vrf else []
    sizes = [links.change(card.index, **dict[str, Any](want.sizes))] if want.sizes else []
    raised = [
        *sizes,
        *master,
        *layers.address_messages(want.addresses, card.index),
        links.change(card.index, up=True),
        *layers.route_messages(want.routes, 0, card.index),
        *(rules.add(rule) for rule in want.rules),
        *layers.neighbour_messages(want.neighbours, card.index),
    ]
    _refuse(plan, layers.failures(pod.route.batch(raised)))


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


def _refuse(plan: DevicePlan, refused: list[NetlinkError]) -> None:
    if refused:
        raise AttachError(f"{plan.device}: " + "; ".join(map(str, refused)))


def undo_in_pod(pod: Pod, plan: DevicePlan) -> None:
    """Take back what outlives the card in a namespace that lives on: its rules and an empty VRF."""
    assert plan.pod is not None
    messages = [rules.delete(rule) for rule in plan.pod.rules]
    vrf = links.get_link(pod.route, plan.pod.vrf.name) if plan.pod.vrf else None
    if vrf and not any(link.master == vrf.index for link in links.list_links(pod.route)):
        messages.append(links.delete(vrf.index))
    pod.route.batch(messages)
