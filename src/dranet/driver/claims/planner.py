"""From a claim to its plan: every doubtful thing is resolved here, where there is time and words can be heard.

Synchronous and on a worker thread, after everything that needs the network was fetched. All problems of all devices are
collected before anything is refused, so a user mends a claim once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from dranet.driver.claims.allotment import Allotted
from dranet.driver.claims.host_tables import HostView
from dranet.driver.claims.plan import CharDevice, DevicePlan, RdmaPart
from dranet.driver.claims.pod_side import pod_side
from dranet.driver.moving.host import Host
from dranet.driver.parts import tuning
from dranet.inventory.snapshot import NodeDevice, Place
from dranet.kernel import chardev, hardware
from dranet.kernel.links import Link
from dranet.kernel.sysfs import Sysfs
from dranet.model.errors import DranetError, InvalidInput, Problem
from dranet.model.netconfig import NetworkConfig
from dranet.model.netconfig_parse import cross_checks, schema


@dataclass(frozen=True, slots=True)
class Wish:
    """One device of a claim, found on this node, with what was asked of it."""

    allotted: Allotted
    found: NodeDevice
    config: NetworkConfig


class Planner:
    """Makes device plans from the host as it is now."""

    def __init__(self, host: Host, sysfs: Sysfs, dev_root: str = "/") -> None:
        self.host = host
        self.sysfs = sysfs
        self.dev_root = dev_root

    def plan(self, wishes: Sequence[Wish]) -> list[DevicePlan]:
        """Plans in the order of the wishes; raises InvalidInput with every problem of every device."""
        view = HostView(self.host.route, [wish.found.netdev.index for wish in wishes if wish.found.netdev.index])
        plans: list[DevicePlan] = []
        problems: list[Problem] = []
        for wish in wishes:
            try:
                plans.append(self._device(wish, view))
            except InvalidInput as error:
                problems += [Problem(_where(wish, p.path), p.message) for p in error.problems]
            except DranetError as error:
                problems.append(Problem(_where(wish), str(error)))
        problems += _clashes(plans)
        if problems:
            raise InvalidInput(problems)
        return plans

    def _device(self, wish: Wish, view: HostView) -> DevicePlan:
        found, given = wish.found, wish.allotted
        plan = DevicePlan(
            device=given.device,
            pool=given.pool,
            request=given.request,
            share_id=given.share_id,
            rdma=self.rdma_part(found.rdma_device),
            snapshot=found.to_record(),
        )
        if given.admin:
            return plan
        problems = list(cross_checks(wish.config))
        if found.rdma_only:
            problems += _netdev_settings(wish.config)
        if problems:
            raise InvalidInput(problems)
        if found.rdma_only:
            return plan
        link = _link(found, view)
        _check_vf_mtu(wish, view)
        side = view.side(link, str(found.pci) if found.pci else None)
        host, pod = tuning.resolve(self.host, link, wish.config, side, pod_side(wish.config, side))
        return msgspec.structs.replace(plan, host=host, pod=pod)

    def rdma_part(self, name: str | None) -> RdmaPart | None:
        """An RDMA device with the character devices that belong to it."""
        if name is None:
            return None
        # A reader of its own: one remembers what was not there, and RDMA devices may come after the driver.
        names = hardware.rdma_char_devices(Sysfs(self.sysfs.root)).get(name, ())
        nodes = chardev.rdma_devices(names, root=self.dev_root)
        devices = tuple(CharDevice(path=node.path, major=node.major, minor=node.minor) for node in nodes)
        return RdmaPart(device=name, char_devices=devices)


def _where(wish: Wish, path: str = "") -> str:
    place = f"device {wish.allotted.device} (request {wish.allotted.request})"
    return f"{place} {path}" if path else place


def _link(found: NodeDevice, view: HostView) -> Link:
    if found.netdev.place is Place.ELSEWHERE:
        raise DranetError(
            f"its interface {found.netdev.name} is in another network namespace; is a pod still using it?"
        )
    link = view.link(found.netdev.name, found.netdev.index)
    if link is None:
        raise DranetError(f"its interface {found.netdev.name} has gone since the node was last looked at")
    return link


def _check_vf_mtu(wish: Wish, view: HostView) -> None:
    mtu = wish.config.link.mtu
    if mtu is UNSET or not wish.found.pf_interface:
        return
    pf = view.link(wish.found.pf_interface)
    if pf is not None and mtu > pf.mtu:
        message = f"{mtu} is more than the {pf.mtu} of its physical function {pf.name}; raise that one first"
        raise InvalidInput([Problem("interface.mtu", message)])


def _netdev_settings(config: NetworkConfig) -> list[Problem]:
    """Everything said that needs a netdev, which an RDMA-only device does not have."""
    said: list[str] = []
    if config.interface is not UNSET:
        parts = schema(type(config.interface)).items()
        said += [f"interface.{info.wire_name}" for name, info in parts if getattr(config.interface, name) is not UNSET]
    for name in ("routes", "rules", "neighbors", "ethtool"):
        if getattr(config, name):
            said.append(name)
    return [Problem(path, "cannot be set: this device is RDMA only and has no network interface") for path in said]


def _clashes(plans: Sequence[DevicePlan]) -> list[Problem]:
    """Two cards of one claim cannot have one name in the pod."""
    seen: dict[str, str] = {}
    problems = []
    for plan in plans:
        if plan.pod is None:
            continue
        if plan.pod.name in seen:
            other = seen[plan.pod.name]
            message = f"would be named {plan.pod.name} in the pod, as {other} is; give each request its own config"
            problems.append(Problem(f"device {plan.device} interface.name", message))
        seen[plan.pod.name] = plan.device
    return problems
