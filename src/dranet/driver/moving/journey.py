"""The way of devices into a pod and home: which steps of which parts, in which order.

Knows parts, not their insides. Before a phase the links are looked up, all in one conversation, because the kernel is
believed and not our memory: an index may have changed with the namespace, and a pod may have renamed its interface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from dranet.driver.faultpoints import paced, reach
from dranet.driver.moving.together import together
from dranet.driver.namespaces import Host, PodNamespace
from dranet.driver.parts.base import AttachError, Carrier, Step
from dranet.driver.parts.host_tables import HostTables
from dranet.driver.parts.registry import PARTS, AnyPart, Parts
from dranet.driver.records.plan import DevicePlan
from dranet.kernel.links import Link
from dranet.kernel.netlink import NetlinkSocket
from dranet.kube.claims import Condition
from dranet.model.errors import DranetError

T = TypeVar("T")
C = TypeVar("C")
Look = Callable[[Carrier[Any], Sequence[DevicePlan]], list[Link | None]]
Pairs = list[tuple[DevicePlan, Link | None]]
"""Devices with the links that are their interfaces now; None for one that has none, or none that can be seen."""


class Journey:
    """Moves devices. Who may, and until when, is decided elsewhere."""

    def __init__(self, host: Host, parts: Parts = PARTS) -> None:
        self.host = host
        self.parts = parts

    def is_noted(self, devices: Sequence[DevicePlan]) -> bool:
        """Whether `noted` has nothing more to add."""
        return all(part.is_noted(device) for part in self.parts.doing("note") for device in devices)

    def at_home(self, devices: Sequence[DevicePlan]) -> Pairs:
        """The devices with their interfaces on the host, as far as these are there."""
        return self._paired(devices, self._at_home)

    def noted(self, there: Pairs) -> Pairs:
        """With what only their way home needs; the kernel is asked about those that lack it."""
        noting = self.parts.doing("note")
        tables = HostTables(self.host.route, [card.index for _, card in _with_cards(there)])
        return [(self._noted(noting, tables, device, card) if card else device, card) for device, card in there]

    def _noted(self, noting: Sequence[AnyPart], tables: HostTables, device: DevicePlan, card: Link) -> DevicePlan:
        for part in noting:
            device = part.note(self.host, tables, device, card)
        return device

    def may_refuse(self, devices: Sequence[DevicePlan]) -> bool:
        """Whether the kernel may say no to `ready`."""
        return any(part.may_refuse(device) for part in self.parts.doing("ready") for device in devices)

    def ready(self, there: Pairs) -> None:
        """What may be done before the pod exists. Does nothing that is done already."""
        self._require(there, "not on this node")
        self._ready(_with_cards(there))

    def _ready(self, cards: Sequence[tuple[DevicePlan, Link]]) -> None:
        for part in self.parts.doing("ready"):
            _run(self.host.route, part, cards, partial(part.ready, self.host))

    def go_in(
        self, pod: PodNamespace, devices: Sequence[DevicePlan], *, check: Callable[[], None]
    ) -> list[tuple[Link | None, tuple[Condition, ...]]]:
        """Into the pod, in order, and configured there; what is inside already is only configured.

        For each device its interface and what can be said of it. `check` raises when time is up.
        """
        outside = _with_cards(self.at_home(devices))
        # Again, although prepare did it: minutes may have passed, and whoever raised the card meanwhile made it slow to
        # move. Nothing is asked of the kernel where nothing has changed.
        self._ready(outside)
        check()
        for part in self.parts.doing("enter"):
            for some in paced(_of(part, outside)):
                _run(self.host.route, part, some, partial(part.enter, self.host, pod))
                reach("attach.entered")
        reach("attach.moved")
        check()
        inside = self._paired(devices, partial(self._in_pod, pod))
        self._require(inside, "neither on the node nor in the pod")
        cards = _with_cards(inside)
        for part in self.parts.doing("settle"):
            _run(pod.route, part, cards, partial(part.settle, self.host, pod))
        return self._rise(pod, inside, check)

    def _rise(
        self, pod: PodNamespace, inside: Pairs, check: Callable[[], None]
    ) -> list[tuple[Link | None, tuple[Condition, ...]]]:
        said: dict[int, tuple[Condition, ...]] = {}
        rising = self.parts.doing("rise")
        for part in self.parts:
            check()
            if part in rising:
                for number, conditions in _run(pod.route, part, inside, partial(part.rise, self.host, pod)):
                    said[number] = (*said.get(number, ()), *conditions)
            reach(f"attach.{part.tag}")
        return [(card, said.get(number, ())) for number, (_, card) in enumerate(inside)]

    def leave(self, pod: PodNamespace, devices: Sequence[DevicePlan]) -> list[str]:
        """Out of the pod, whatever of it is still inside; problems in words."""
        problems: list[str] = []
        inside = self._paired(devices, partial(self._in_pod, pod))
        leaving = self.parts.doing("leave")
        for part in self.parts.homewards:
            mine = _of(part, inside) if part in leaving else []
            for some in paced(mine, homewards=True) if isinstance(part, Carrier) else [mine]:
                for _, found in _run(pod.route, part, some, partial(part.leave, self.host, pod)):
                    problems += found
            reach(f"detach.{part.tag}")
        return problems

    def fetch(self, devices: Sequence[DevicePlan], *, last_resort: bool) -> tuple[Pairs, list[Exception]]:
        """Get home what has left its pod for somewhere else. All that is at home then, and what must not be given up,
        as errors."""
        failures: list[Exception] = []
        look = partial(self._at_home, settings=True)
        home = self._paired(devices, look)
        away = [(device, carrier) for device, card in home if card is None and (carrier := self.parts.carrier(device))]
        for device, carrier in away:
            try:
                carrier.fetch(self.host, device, last_resort=last_resort)
            except (DranetError, OSError) as error:
                failures.append(error)
        return self._paired(devices, look) if away else home, failures

    def restore(self, home: Pairs, others: Sequence[DevicePlan] = ()) -> list[str]:
        """As it was found, from what `fetch` has seen. What could not be put back, in words; empty when all is well."""
        problems: list[str] = []
        tables = HostTables(self.host.route, [card.index for _, card in _with_cards(home)], others)
        restoring = self.parts.doing("restore")
        for part in [part for part in self.parts.homewards if part in restoring]:
            for _, found in _run(self.host.route, part, home, partial(part.restore, self.host, tables)):
                problems += found
        reach("detach.restored")
        return problems

    def is_inside(self, pod: PodNamespace, devices: Sequence[DevicePlan]) -> bool:
        """Whether every device that brings an interface has it in the pod."""
        inside = self._paired(devices, partial(self._in_pod, pod))
        return all(card is not None for device, card in inside if self.parts.carrier(device))

    def seen_again(self, devices: Sequence[DevicePlan]) -> tuple[DevicePlan, ...]:
        """Plans from before a reboot, with what is on the host as the machine has set it up now."""
        again = list(devices)
        for carrier, numbers in self._by_carrier(devices):
            anew = carrier.seen_again(self.host, [devices[number] for number in numbers])
            for number, device in zip(numbers, anew, strict=True):
                again[number] = device
        return tuple(again)

    def _at_home(
        self, carrier: Carrier[Any], devices: Sequence[DevicePlan], *, settings: bool = False
    ) -> list[Link | None]:
        return carrier.at_home(self.host, devices, settings=settings)

    def _in_pod(self, pod: PodNamespace, carrier: Carrier[Any], devices: Sequence[DevicePlan]) -> list[Link | None]:
        return carrier.in_pod(self.host, pod, devices)

    def _paired(self, devices: Sequence[DevicePlan], look: Look) -> Pairs:
        cards: list[Link | None] = [None] * len(devices)
        for carrier, numbers in self._by_carrier(devices):
            for number, card in zip(numbers, look(carrier, [devices[number] for number in numbers]), strict=True):
                cards[number] = card
        return list(zip(devices, cards, strict=True))

    def _by_carrier(self, devices: Sequence[DevicePlan]) -> Iterable[tuple[Carrier[Any], list[int]]]:
        """Positions of the devices of each carrier."""
        found: dict[str, tuple[Carrier[Any], list[int]]] = {}
        for number, device in enumerate(devices):
            if (carrier := self.parts.carrier(device)) is not None:
                found.setdefault(carrier.tag, (carrier, []))[1].append(number)
        return found.values()

    def _require(self, pairs: Pairs, otherwise: str) -> None:
        missing = [device for device, card in pairs if card is None and self.parts.carrier(device)]
        if missing:
            raise AttachError("; ".join(f"{_described(device)} is {otherwise}" for device in missing))


def _described(device: DevicePlan) -> str:
    return f"{device.name} ({device.found.link.name})" if device.found else device.name


def _of(part: AnyPart, pairs: Sequence[tuple[DevicePlan, C]]) -> list[tuple[DevicePlan, C]]:
    """The devices that have something of a part."""
    return [(device, card) for device, card in pairs if part.of(device) is not None]


def _with_cards(pairs: Pairs) -> list[tuple[DevicePlan, Link]]:
    return [(device, card) for device, card in pairs if card is not None]


def _run(
    route: NetlinkSocket,
    part: AnyPart,
    pairs: Sequence[tuple[DevicePlan, C]],
    step: Callable[[DevicePlan, C], Step[T]],
) -> list[tuple[int, T]]:
    """One step of a part for all devices that have something of it: positions and results."""
    mine = [number for number, (device, _) in enumerate(pairs) if part.of(device) is not None]
    if not mine:
        return []
    return list(zip(mine, together(route, [step(*pairs[number]) for number in mine]), strict=True))
