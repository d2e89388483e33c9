"""Plan the devices of a claim. Everything doubtful is resolved here, where there is time and errors reach the user.

Synchronous, on a worker thread, after everything that needs the network was fetched. The problems of all devices are
collected before the claim is refused, so that a user fixes a claim once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from dranet.core import attributes
from dranet.core.attributes import BANDWIDTH
from dranet.core.device import Device
from dranet.core.errors import DranetError, InvalidInput, Problem
from dranet.core.netconfig import IPVLAN, PASSTHROUGH, Interface, NetworkConfig
from dranet.core.netconfig_merge import merge
from dranet.core.netconfig_parse import check_merged, schema
from dranet.linux.stacked_links import can_be_checked, find_stacked
from dranet.linux.sysfs import Sysfs
from dranet.node.claims.allocation import AllocatedDevice
from dranet.node.features.base import NodeContext, RecoveryContext
from dranet.node.features.host_tables import HostTables
from dranet.node.features.registry import FEATURES, Features
from dranet.node.inventory.sharing import consumes_whole_device
from dranet.node.inventory.snapshot import NodeDevice
from dranet.node.namespaces import Host, PodNamespace
from dranet.node.records.plan import AttachMode, DevicePlan

_DEFAULT_SHARE = NetworkConfig(interface=Interface(type=IPVLAN))
"""For a share whose claim names no interface type: most clouds drop the unknown MAC addresses of a macvlan."""


class DeviceRequest(msgspec.Struct, frozen=True):
    """One allocated device of a claim, its state on this node, and the requested configuration."""

    allocated: AllocatedDevice
    device: NodeDevice
    config: NetworkConfig

    @property
    def mode(self) -> AttachMode:
        if self.allocated.admin:
            return AttachMode.ADMIN
        if self.device.rdma_only:
            return AttachMode.RDMA_ONLY
        return AttachMode.SHARED if self.config.link.is_child else AttachMode.MOVED


class Planner:
    """Creates device plans from the current state of the host."""

    def __init__(self, host: Host, sysfs: Sysfs, dev_root: str = "/", *, features: Features = FEATURES) -> None:
        self.host = host
        self.sysfs = sysfs
        self.dev_root = dev_root
        self.features = features

    def plan(self, requests: Sequence[DeviceRequest], *, others: Sequence[DevicePlan] = ()) -> list[DevicePlan]:
        """Plans in the order of the requests; raises InvalidInput with every problem of every device.

        `others` are the devices of other claims: the settings of a shared NIC have to fit all of them.
        """
        node = self._node([one.device.netdev.index for one in requests if one.device.netdev.index], others)
        plans: list[DevicePlan] = []
        problems: list[Problem] = []
        for request in requests:
            try:
                plans.append(self._plan_device(node, request))
                # A device that shares a NIC with an earlier device of this claim has to fit that one, too.
                node.tables.others = (*node.tables.others, plans[-1])
            except InvalidInput as error:
                problems += [Problem(_where(request, p.path), p.message) for p in error.problems]
            except DranetError as error:
                problems.append(Problem(_where(request), str(error)))
        problems += _name_clashes(plans)
        problems = problems or self._stacked_problems(node.tables, plans)
        if problems:
            raise InvalidInput(problems)
        return plans

    def _stacked_problems(self, tables: HostTables, plans: Sequence[DevicePlan]) -> list[Problem]:
        """A pod must not share its NIC with a link in another namespace, which an earlier pod may have left there."""
        moved = [plan for plan in plans if plan.mode is AttachMode.MOVED and plan.host_state]
        by_index = {plan.host_state.link.index: plan.name for plan in moved if plan.host_state}
        links = [link for index in by_index if (link := tables.link_at(index)) is not None]
        found = find_stacked(self.host.route, [link.index for link in links if can_be_checked(link)])
        return [Problem(f"device {by_index[index]}", message) for index, message in found.items()]

    def _node(self, expected: Sequence[int] = (), others: Sequence[DevicePlan] = ()) -> NodeContext:
        # A sysfs reader caches missing files, so each plan starts with a fresh one.
        return NodeContext(
            self.host, HostTables(self.host.route, expected, others), self.sysfs.without_cache(), self.dev_root
        )

    def _plan_device(self, node: NodeContext, request: DeviceRequest) -> DevicePlan:
        plan = new_device_plan(request.allocated, request.mode, request.config, request.device)
        if plan.mode is not AttachMode.ADMIN:
            problems = list(check_merged(request.config))
            problems += _netdev_settings(request.config) if plan.mode is AttachMode.RDMA_ONLY else []
            if problems:
                raise InvalidInput(problems)
        for feature in self.features:
            plan = feature.plan(node, request.device, request.config, plan)
        return plan

    def recover(
        self,
        pod: PodNamespace,
        item: AllocatedDevice,
        published: Device,
        config: NetworkConfig,
        recorded: NetworkConfig | None = None,
        taken: frozenset[int] = frozenset(),
    ) -> DevicePlan:
        """The plan of a device that is in a pod although the store has no plan; raises NotFound where it is not."""
        context = RecoveryContext(self._node(), pod, published, config, recorded, taken)
        plan = new_device_plan(item, _published_mode(item, published, config), config)
        for feature in self.features:
            plan = feature.recover(context, plan)
        return plan


def _published_mode(item: AllocatedDevice, published: Device, config: NetworkConfig) -> AttachMode:
    if item.admin:
        return AttachMode.ADMIN
    if attributes.IF_NAME not in published.attributes:
        return AttachMode.RDMA_ONLY
    return AttachMode.SHARED if config.link.is_child else AttachMode.MOVED


def new_device_plan(
    item: AllocatedDevice, mode: AttachMode, config: NetworkConfig, device: NodeDevice | None = None
) -> DevicePlan:
    """A plan before the features have added their records."""
    return DevicePlan(
        name=item.device,
        pool=item.pool,
        request=item.request,
        share_id=item.share_id,
        consumed=item.consumed,
        mode=mode,
        snapshot=device.to_record() if device else {},
        environment=tuple(dict.fromkeys(config.environment or ())) if mode is not AttachMode.ADMIN else (),
    )


def config_for_share(item: AllocatedDevice, device: NodeDevice, config: NetworkConfig) -> NetworkConfig:
    """The configuration of a device. A share is a child interface: a share of a NIC cannot be moved as a whole."""
    if item.admin or consumes_whole_device(device.device, item.consumed):
        return config
    if config.link.type == PASSTHROUGH:
        share = f"{item.consumed[BANDWIDTH]} of {device.device.capacity[BANDWIDTH]}"
        raise DranetError(
            f"device {item.device}: the claim has a share of the device ({share}), which interface.type: Passthrough "
            "does not support; request the whole device (no capacity request), or type IPVLAN or Macvlan"
        )
    return merge(config, _DEFAULT_SHARE)


def _where(request: DeviceRequest, path: str = "") -> str:
    device = f"device {request.allocated.device} (request {request.allocated.request})"
    return f"{device} {path}" if path else device


def _netdev_settings(config: NetworkConfig) -> list[Problem]:
    """The settings that need a netdev, which an RDMA-only device does not have."""
    paths: list[str] = []
    if config.interface is not UNSET:
        fields = schema(type(config.interface)).items()
        paths += [
            f"interface.{info.wire_name}" for name, info in fields if getattr(config.interface, name) is not UNSET
        ]
    paths += [name for name in ("routes", "rules", "neighbors", "ethtool") if getattr(config, name)]
    return [Problem(path, "cannot be set: this device is RDMA only and has no network interface") for path in paths]


def _name_clashes(plans: Sequence[DevicePlan]) -> list[Problem]:
    """Two interfaces of one claim cannot have one name in the pod."""
    seen: dict[str, str] = {}
    problems = []
    for plan in plans:
        if plan.pod_config is None:
            continue
        name = plan.pod_config.name
        if name in seen:
            message = f"{name} is also the name of {seen[name]} in the pod; give each request its own config"
            problems.append(Problem(f"device {plan.name} interface.name", message))
        seen[name] = plan.name
    return problems
