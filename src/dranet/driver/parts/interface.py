"""An interface once it is in the pod: its name, its settings, its addresses. The same for every way it came there."""

from __future__ import annotations

import logging
from typing import Any, TypeVar

from dranet.driver.namespaces import Host, PodNamespace
from dranet.driver.parts.base import AttachError, Carrier, Said, Work, raise_first, refusals
from dranet.driver.parts.network_layers import address_messages, neighbour_messages, route_messages
from dranet.driver.records.plan import DevicePlan, Wanted
from dranet.kernel import links, routes, rules, sysctl
from dranet.kernel.codec import Message
from dranet.kernel.links import Link
from dranet.kube.claims import NETWORK_READY, READY, Condition

log = logging.getLogger(__name__)

R = TypeVar("R")


class InterfaceInPod(Carrier[R]):
    """The steps inside the pod, for a part that has brought an interface there."""

    def settle(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link) -> Work:
        """Its name, where the pod had it under another one, and the settings that go by that name."""
        want = wanted_of(device)
        if card.name != want.name:
            raise_first((yield [links.change(card.index, up=False), links.change(card.index, name=want.name)]))
        if want.sysctls:
            sysctl.write_all(pod.namespace.fd, want.sysctls, proc_root=host.proc_root)

    def rise(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link | None) -> Said:
        """Sizes and addresses before it is raised, the rest after."""
        assert card is not None
        want = wanted_of(device)
        messages = _rising(card, want)
        answers = yield messages
        refused = refusals(answers)
        if refused:
            raise AttachError("; ".join(f"{device.name}: {error}" for error in refused))
        return Condition(READY, True, "NetworkDeviceReady"), _network_ready(pod, device, card, any(answers))


def _network_ready(pod: PodNamespace, device: DevicePlan, card: Link, something_was_there: bool) -> Condition:
    """Whether the interface is as asked. A route that the pod has by another interface is not replaced, for somebody
    needs it; it is said."""
    if something_was_there:
        there = routes.list_routes(pod.route)
        own = {(route.destination, route.table) for route in there if route.leaves_by(card.index)}
        taken = [r for r in wanted_of(device).routes if (r.destination, r.table) not in own]
        if taken:
            names = ", ".join(f"{route.destination} (table {route.table})" for route in taken)
            words = f"the pod already has a route to {names} by another interface: not added; use routes[].table"
            log.warning("%s: %s", device.name, words)
            return Condition(NETWORK_READY, True, "RoutesTaken", words)
    return Condition(NETWORK_READY, True, "NetworkReady")


def wanted_of(device: DevicePlan) -> Wanted:
    """How the pod wants it; every device that brings an interface says so."""
    assert device.wanted is not None, f"{device.name} has no network interface"
    return device.wanted


def _rising(card: Link, want: Wanted) -> list[Message]:
    sizes = [links.change(card.index, **dict[str, Any](want.sizes))] if want.sizes else []
    return [
        *sizes,
        *address_messages(want.addresses, card.index),
        links.change(card.index, up=True),
        *route_messages(want.routes, 0, card.index),
        *(rules.add(rule.kernel()) for rule in want.rules),
        *neighbour_messages(want.neighbours, card.index),
    ]
