"""From a claim to its plan: every doubtful thing is resolved here, where there is time and words can be heard.

Synchronous and on a worker thread, after everything that needs the network was fetched. All problems of all devices are
collected before anything is refused, so a user mends a claim once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from dranet.driver.claims.allotment import Allotted
from dranet.driver.namespaces import Host, PodNamespace
from dranet.driver.parts.base import Node, Witness
from dranet.driver.parts.host_tables import HostTables
from dranet.driver.parts.registry import PARTS, Parts
from dranet.driver.records.plan import DevicePlan, Use
from dranet.inventory.snapshot import NodeDevice
from dranet.kernel.sysfs import Sysfs
from dranet.model import attributes
from dranet.model.device import Device
from dranet.model.errors import DranetError, InvalidInput, Problem
from dranet.model.netconfig import NetworkConfig
from dranet.model.netconfig_parse import cross_checks, schema


class Wish(msgspec.Struct, frozen=True):
    """One device of a claim, as it was seen on this node, with what was asked of it."""

    allotted: Allotted
    seen: NodeDevice
    config: NetworkConfig


class Planner:
    """Makes device plans from the host as it is now."""

    def __init__(self, host: Host, sysfs: Sysfs, dev_root: str = "/", *, parts: Parts = PARTS) -> None:
        self.host = host
        self.sysfs = sysfs
        self.dev_root = dev_root
        self.parts = parts

    def plan(self, wishes: Sequence[Wish], *, others: Sequence[DevicePlan] = ()) -> list[DevicePlan]:
        """Plans in the order of the wishes; raises InvalidInput with every problem of every device.

        `others` are the devices of other claims: a card that is shared with them has to fit all.
        """
        node = self._node([wish.seen.netdev.index for wish in wishes if wish.seen.netdev.index], others)
        plans: list[DevicePlan] = []
        problems: list[Problem] = []
        for wish in wishes:
            try:
                plans.append(self._device(node, wish))
                # What shares a card with the devices of this claim has to fit those before it, too.
                node.tables.others = (*node.tables.others, plans[-1])
            except InvalidInput as error:
                problems += [Problem(_where(wish, p.path), p.message) for p in error.problems]
            except DranetError as error:
                problems.append(Problem(_where(wish), str(error)))
        problems += _clashes(plans)
        if problems:
            raise InvalidInput(problems)
        return plans

    def _node(self, expected: Sequence[int] = (), others: Sequence[DevicePlan] = ()) -> Node:
        # A reader of sysfs remembers what was not there: each plan begins with one that does not.
        return Node(self.host, HostTables(self.host.route, expected, others), self.sysfs.anew(), self.dev_root)

    def _device(self, node: Node, wish: Wish) -> DevicePlan:
        device = blank(wish.allotted, use_of(wish), wish.config, wish.seen)
        if device.use is not Use.ADMIN:
            problems = list(cross_checks(wish.config))
            problems += _netdev_settings(wish.config) if device.use is Use.RDMA_ONLY else []
            if problems:
                raise InvalidInput(problems)
        for part in self.parts:
            device = part.plan(node, wish.seen, wish.config, device)
        return device

    def adopt(
        self,
        pod: PodNamespace,
        item: Allotted,
        published: Device,
        config: NetworkConfig,
        recorded: NetworkConfig | None = None,
        taken: frozenset[int] = frozenset(),
    ) -> DevicePlan:
        """The plan of a device that is in a pod although nobody remembers it; raises NotFound where it is not."""
        witness = Witness(self._node(), pod, published, config, recorded, taken)
        device = blank(item, _published_use(item, published, config), config)
        for part in self.parts:
            device = part.adopt(witness, device)
        return device


def _published_use(item: Allotted, published: Device, config: NetworkConfig) -> Use:
    if item.admin:
        return Use.ADMIN
    if attributes.IF_NAME not in published.attributes:
        return Use.RDMA_ONLY
    return Use.SHARED if config.link.is_child else Use.MOVED


def use_of(wish: Wish) -> Use:
    """What the claim will have of the device."""
    if wish.allotted.admin:
        return Use.ADMIN
    if wish.seen.rdma_only:
        return Use.RDMA_ONLY
    return Use.SHARED if wish.config.link.is_child else Use.MOVED


def blank(item: Allotted, use: Use, config: NetworkConfig, found: NodeDevice | None = None) -> DevicePlan:
    """A device before its parts have said what they need."""
    return DevicePlan(
        name=item.device,
        pool=item.pool,
        request=item.request,
        share_id=item.share_id,
        consumed=item.consumed,
        use=use,
        snapshot=found.to_record() if found else {},
        environment=tuple(dict.fromkeys(config.environment or ())) if use is not Use.ADMIN else (),
    )


def _where(wish: Wish, path: str = "") -> str:
    place = f"device {wish.allotted.device} (request {wish.allotted.request})"
    return f"{place} {path}" if path else place


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
        if plan.wanted is None:
            continue
        name = plan.wanted.name
        if name in seen:
            message = f"would be named {name} in the pod, as {seen[name]} is; give each request its own config"
            problems.append(Problem(f"device {plan.name} interface.name", message))
        seen[name] = plan.name
    return problems
