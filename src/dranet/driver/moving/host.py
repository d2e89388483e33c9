"""The node's own network namespace and the doors into pods: what attach and restore stand on.

One route socket lives as long as the daemon, and one for each pod as long as it has cards: closing a socket is work
that the kernel's next move of a card would wait for. Looking a card up trusts the kernel, not the record: a card may
have been renamed inside its pod, or come home under another name by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dranet.driver.claims.plan import DevicePlan
from dranet.kernel import links
from dranet.kernel.links import Link
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket


@dataclass(slots=True)
class Host:
    """The driver's own namespace, with where the host's /proc is to be seen."""

    namespace: Namespace
    route: NetlinkSocket
    proc_root: str = "/proc"
    boot: str = ""
    """Which boot of the machine this is."""

    @classmethod
    def open(cls, proc_root: str = "/proc") -> Host:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return cls(Namespace.current(), NetlinkSocket(), proc_root, boot)

    def close(self) -> None:
        self.route.close()
        self.namespace.close()


class Pod:
    """An open pod namespace. Its socket is opened when first used: moving cards in needs none."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self._route: NetlinkSocket | None = None

    @classmethod
    def open(cls, path: str) -> Pod:
        """A pod's namespace by the path the runtime gave; raises NamespaceError where it is gone."""
        return cls(Namespace.open(path))

    @property
    def route(self) -> NetlinkSocket:
        if self._route is None:
            self._route = NetlinkSocket(namespace_fd=self.namespace.fd)
        return self._route

    def close(self) -> None:
        if self._route is not None:
            self._route.close()
        self.namespace.close()

    def __enter__(self) -> Pod:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def temporary_name(device: DevicePlan) -> str:
    """The name a card travels home under: unique on the node, so it cannot collide with anything there."""
    assert device.host is not None
    return f"dranet{device.host.link.index:x}"[:15]


def find_at_home(host: Host, devices: Sequence[DevicePlan]) -> list[Link | None]:
    """The cards on the host, wherever their names have got to; None for one that is not there.

    The name it has in the pod is no hint here: a user chose it, and might have chosen another card's.
    """
    return _find_all(host.route, devices, [_names(device) for device in devices])


def find_in_pod(pod: Pod, devices: Sequence[DevicePlan]) -> list[Link | None]:
    """The cards in their pod, also where the pod has renamed them; None for one that is not there."""
    inside = [[device.pod.name] if device.pod else [] for device in devices]
    return _find_all(pod.route, devices, [[*own, *_names(d)] for own, d in zip(inside, devices, strict=True)])


def _names(device: DevicePlan) -> list[str]:
    assert device.host is not None
    return [temporary_name(device), device.host.link.name]


def _find_all(route: NetlinkSocket, devices: Sequence[DevicePlan], names: Sequence[list[str]]) -> list[Link | None]:
    """By index first, all in one conversation: an index usually survives a move."""
    hinted = links.get_links(route, [device.host.link.index for device in devices if device.host])
    return [
        link if link is not None and _same_card(link, device, known) else _search(route, device, known)
        for link, device, known in zip(hinted, devices, names, strict=True)
    ]


def _search(route: NetlinkSocket, device: DevicePlan, names: list[str]) -> Link | None:
    was = device.host
    assert was is not None
    for found in links.get_links(route, names):
        if found is not None and _same_card(found, device, names):
            return found
    if was.link.kind != "device":
        return None
    return next((link for link in links.list_links(route) if _same_card(link, device, names)), None)


def _same_card(link: Link, device: DevicePlan, names: list[str]) -> bool:
    """Hardware is known by its PCI function and burnt-in address; a virtual link by its address, since users may set
    that only to what the plan says, or by index and name together."""
    assert device.host is not None
    was = device.host.link
    if link.kind != was.kind or link.encapsulation != was.encapsulation:
        return False
    if was.parent_device:
        return link.parent_device == was.parent_device and link.permanent_mac == was.permanent_mac
    if was.permanent_mac:
        return link.permanent_mac == was.permanent_mac
    known = {was.mac} | ({device.pod.mac} if device.pod and device.pod.mac else set())
    return link.mac in known or (link.index == was.index and link.name in names)
