"""The order of the features' steps on the way into a pod and back to the host.

Knows features by their interface only. Each phase first finds the links in the kernel, all in one netlink batch, and
does not trust remembered indexes: an index may change with the namespace, and a pod may rename its interface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from dranet.core.errors import DranetError
from dranet.kubernetes.api.claims import Condition
from dranet.linux.codec import Message
from dranet.linux.links import Link
from dranet.linux.netlink import NetlinkSocket
from dranet.node.faultpoints import paced, reach
from dranet.node.features import FEATURES, Answers, AnyFeature, AttachError, Features, HostTables, LinkProvider, Step
from dranet.node.namespaces import Host, PodNamespace
from dranet.node.records.plan import AttachMode, DevicePlan

T = TypeVar("T")
C = TypeVar("C")
_Find = Callable[[LinkProvider[Any], Sequence[DevicePlan]], list[Link | None]]
DeviceLinks = list[tuple[DevicePlan, Link | None]]
"""Devices with their links; None for a device without a network interface, or whose link was not found."""


class DeviceMissing(AttachError):
    """A device that is neither on the host nor in its pod: it was unplugged, deleted, or hidden."""


class FeatureSteps:
    """Runs the steps of all features for the devices of a claim or a pod."""

    def __init__(self, host: Host, features: Features = FEATURES) -> None:
        self.host = host
        self.features = features

    def has_saved_settings(self, devices: Sequence[DevicePlan]) -> bool:
        """Whether `save_settings` has nothing to add."""
        saving = self.features.implementing("save_settings")
        return all(feature.has_saved_settings(device) for feature in saving for device in devices)

    def find_on_host(self, devices: Sequence[DevicePlan]) -> DeviceLinks:
        """The devices with their links in the host network namespace."""
        return self._find(devices, self._find_on_host)

    def find_in_pod(self, pod: PodNamespace, devices: Sequence[DevicePlan]) -> DeviceLinks:
        """The devices with their links in the pod's network namespace."""
        return self._find(devices, partial(self._find_in_pod, pod))

    def save_settings(self, found: DeviceLinks) -> DeviceLinks:
        """The devices with the settings that only `restore` needs; reads those that are missing from the kernel."""
        saving = self.features.implementing("save_settings")
        tables = HostTables(self.host.route, [link.index for _, link in _with_links(found)])
        return [(self._saved(saving, tables, device, link) if link else device, link) for device, link in found]

    def _saved(self, saving: Sequence[AnyFeature], tables: HostTables, device: DevicePlan, link: Link) -> DevicePlan:
        for feature in saving:
            device = feature.save_settings(self.host, tables, device, link)
        return device

    def set_up_may_fail(self, devices: Sequence[DevicePlan]) -> bool:
        """Whether the kernel may refuse `set_up`."""
        return any(feature.set_up_may_fail(d) for feature in self.features.implementing("set_up") for d in devices)

    def set_up(self, found: DeviceLinks) -> None:
        """Do what is possible before the pod exists. Skips what is done already."""
        self._require(found, "not in the host network namespace")
        self._set_up(_with_links(found))

    def _set_up(self, found: Sequence[tuple[DevicePlan, Link]]) -> None:
        for feature in self.features.implementing("set_up"):
            _run(self.host.route, feature, found, partial(feature.set_up, self.host))

    def attach(
        self, pod: PodNamespace, devices: Sequence[DevicePlan], *, check: Callable[[], None]
    ) -> list[tuple[Link | None, tuple[Condition, ...]]]:
        """Attach devices to the pod and configure them; those that are inside already are only configured.

        Returns each device's link and conditions. `check` raises when time is up.
        """
        on_host = _with_links(self.find_on_host(devices))
        # Again, although prepare did it: a link may be up again, which makes its move slow. Costs no
        # request where nothing has changed.
        self._set_up(on_host)
        check()
        for feature in self.features.implementing("attach"):
            for some in paced(_of(feature, on_host)):
                _run(self.host.route, feature, some, partial(feature.attach, self.host, pod))
                reach("attach.one_moved")
        reach("attach.moved")
        check()
        inside = self.find_in_pod(pod, devices)
        self._require(inside, "neither on the host nor in the pod", DeviceMissing)
        for feature in self.features.implementing("configure"):
            _run(pod.route, feature, _with_links(inside), partial(feature.configure, self.host, pod))
        return self._bring_up(pod, inside, check)

    def repair(
        self, pod: PodNamespace, device: DevicePlan
    ) -> tuple[Link | None, tuple[Condition, ...], Exception | None]:
        """Attach one device by itself: its link, its conditions, and what failed. Nothing leaves the pod."""
        try:
            ((link, conditions),) = self.attach(pod, [device], check=lambda: None)
            return link, conditions, None
        except (DranetError, OSError) as error:
            ((_, link),) = self.find_in_pod(pod, [device])
            return link, (), error

    def _bring_up(
        self, pod: PodNamespace, inside: DeviceLinks, check: Callable[[], None]
    ) -> list[tuple[Link | None, tuple[Condition, ...]]]:
        conditions: dict[int, tuple[Condition, ...]] = {}
        implementing = self.features.implementing("bring_up")
        for feature in self.features:
            check()
            if feature in implementing:
                for number, own in _run(pod.route, feature, inside, partial(feature.bring_up, self.host, pod)):
                    conditions[number] = (*conditions.get(number, ()), *own)
            reach(f"attach.{feature.tag}")
        return [(link, conditions.get(number, ())) for number, (_, link) in enumerate(inside)]

    def detach(self, pod: PodNamespace, devices: Sequence[DevicePlan]) -> list[str]:
        """Move everything that is still in the pod out of it; returns the problems."""
        problems: list[str] = []
        inside = self.find_in_pod(pod, devices)
        implementing = self.features.implementing("detach")
        for feature in self.features.in_detach_order:
            own = _of(feature, inside) if feature in implementing else []
            for some in paced(own, detaching=True) if isinstance(feature, LinkProvider) else [own]:
                for _, found in _run(pod.route, feature, some, partial(feature.detach, self.host, pod)):
                    problems += found
            reach(f"detach.{feature.tag}")
        return problems

    def reclaim(self, devices: Sequence[DevicePlan], *, last_resort: bool) -> tuple[DeviceLinks, list[Exception]]:
        """Get links back that have left their pod for another namespace.

        Returns the links on the host, and an error for each link that is lost and must not be given up.
        """
        failures: list[Exception] = []
        find = partial(self._find_on_host, settings=True)
        on_host = self._find(devices, find)
        missing = [
            (device, provider)
            for device, link in on_host
            if link is None and (provider := self.features.link_provider(device))
        ]
        for device, provider in missing:
            try:
                provider.reclaim(self.host, device, last_resort=last_resort)
            except (DranetError, OSError) as error:
                failures.append(error)
        return self._find(devices, find) if missing else on_host, failures

    def restore(self, on_host: DeviceLinks, others: Sequence[DevicePlan] = ()) -> list[str]:
        """Restore the host state of links that `reclaim` returned; returns the problems."""
        problems: list[str] = []
        tables = HostTables(self.host.route, [link.index for _, link in _with_links(on_host)], others)
        implementing = self.features.implementing("restore")
        for feature in [feature for feature in self.features.in_detach_order if feature in implementing]:
            for _, found in _run(self.host.route, feature, on_host, partial(feature.restore, self.host, tables)):
                problems += found
        reach("detach.restored")
        return problems

    def has_any(self, pod: PodNamespace, devices: Sequence[DevicePlan]) -> bool:
        """Whether the pod has the interface of any of these devices."""
        return any(link is not None for _, link in self.find_in_pod(pod, devices))

    def is_attached(self, pod: PodNamespace, devices: Sequence[DevicePlan]) -> bool:
        """Whether every device with a network interface has it in the pod."""
        inside = self.find_in_pod(pod, devices)
        return all(link is not None for device, link in inside if self.features.link_provider(device))

    def displaced(self, pod: PodNamespace, devices: Sequence[DevicePlan]) -> dict[str, bool]:
        """The moved interfaces that are not in the pod, each with whether it is on the host."""
        inside = self.find_in_pod(pod, [device for device in devices if device.mode is AttachMode.MOVED])
        outside = [device for device, link in inside if link is None]
        return {device.name: link is not None for device, link in self.find_on_host(outside)} if outside else {}

    def is_elsewhere(self, device: DevicePlan) -> bool:
        """Whether the interface is in a network namespace other than its pod's and the host's. Slow."""
        provider = self.features.link_provider(device)
        return provider is not None and provider.is_elsewhere(self.host, device)

    def refresh_after_reboot(self, devices: Sequence[DevicePlan]) -> tuple[DevicePlan, ...]:
        """Plans from before a reboot, with the host state that the machine has set up since."""
        refreshed = list(devices)
        for provider, numbers in self._by_provider(devices):
            again = provider.refresh_after_reboot(self.host, [devices[number] for number in numbers])
            for number, device in zip(numbers, again, strict=True):
                refreshed[number] = device
        return tuple(refreshed)

    def _find_on_host(
        self, provider: LinkProvider[Any], devices: Sequence[DevicePlan], *, settings: bool = False
    ) -> list[Link | None]:
        return provider.find_on_host(self.host, devices, settings=settings)

    def _find_in_pod(
        self, pod: PodNamespace, provider: LinkProvider[Any], devices: Sequence[DevicePlan]
    ) -> list[Link | None]:
        return provider.find_in_pod(self.host, pod, devices)

    def _find(self, devices: Sequence[DevicePlan], find: _Find) -> DeviceLinks:
        links: list[Link | None] = [None] * len(devices)
        for provider, numbers in self._by_provider(devices):
            for number, link in zip(numbers, find(provider, [devices[number] for number in numbers]), strict=True):
                links[number] = link
        return list(zip(devices, links, strict=True))

    def _by_provider(self, devices: Sequence[DevicePlan]) -> Iterable[tuple[LinkProvider[Any], list[int]]]:
        """The positions of the devices of each link provider."""
        found: dict[str, tuple[LinkProvider[Any], list[int]]] = {}
        for number, device in enumerate(devices):
            if (provider := self.features.link_provider(device)) is not None:
                found.setdefault(provider.tag, (provider, []))[1].append(number)
        return found.values()

    def _require(self, found: DeviceLinks, otherwise: str, kind: type[AttachError] = AttachError) -> None:
        missing = [device for device, link in found if link is None and self.features.link_provider(device)]
        if missing:
            raise kind("; ".join(f"{_described(device)} is {otherwise}" for device in missing))


def _described(device: DevicePlan) -> str:
    return f"{device.name} ({device.host_state.link.name})" if device.host_state else device.name


def _of(feature: AnyFeature, found: Sequence[tuple[DevicePlan, C]]) -> list[tuple[DevicePlan, C]]:
    """The devices that have the feature."""
    return [(device, link) for device, link in found if feature.record_of(device) is not None]


def _with_links(found: DeviceLinks) -> list[tuple[DevicePlan, Link]]:
    return [(device, link) for device, link in found if link is not None]


def _run(
    route: NetlinkSocket,
    feature: AnyFeature,
    found: Sequence[tuple[DevicePlan, C]],
    step: Callable[[DevicePlan, C], Step[T]],
) -> list[tuple[int, T]]:
    """Run one step of a feature for all devices that have it: positions and results."""
    own = [number for number, (device, _) in enumerate(found) if feature.record_of(device) is not None]
    if not own:
        return []
    return list(zip(own, run_batched(route, [step(*found[number]) for number in own]), strict=True))


def run_batched(route: NetlinkSocket, steps: Sequence[Step[T]]) -> list[T]:
    """Run steps to their ends, with one netlink batch for the messages of all of them in each round.

    One step that fails lets the others finish, then its error is raised. The kernel's own work dominates (17 ms for a
    move between namespaces), and threads would wait for the same kernel lock.
    """
    results: dict[int, T] = {}
    failures: list[Exception] = []
    answers: dict[int, Answers] = {}
    waiting = dict(enumerate(steps))
    while waiting:
        requests: dict[int, Sequence[Message]] = {}
        for number, step in waiting.items():
            try:
                requests[number] = step.send(answers[number]) if answers else next(step)
            except StopIteration as end:
                results[number] = end.value
            except (DranetError, OSError) as error:
                # The others run to their ends: stopped here, each would be at another point, and undoing the attach
                # would have to know at which.
                failures.append(error)
        waiting = {number: waiting[number] for number in requests}
        answers = _send(route, requests)
    if failures:
        raise _combined(failures)
    return [results[number] for number in sorted(results)]


def _send(route: NetlinkSocket, requests: dict[int, Sequence[Message]]) -> dict[int, Answers]:
    outcome = route.batch([message for messages in requests.values() for message in messages])
    answers: dict[int, Answers] = {}
    start = 0
    for number, messages in requests.items():
        answers[number] = outcome[start : start + len(messages)]
        start += len(messages)
    return answers


def _combined(failures: Sequence[Exception]) -> Exception:
    first = failures[0]
    if len(failures) == 1 or not isinstance(first, AttachError):
        return first  # unchanged: callers decide by the type of a kernel or system error
    return type(first)("; ".join(map(str, failures)))
