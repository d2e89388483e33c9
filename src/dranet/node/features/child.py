"""A child link (ipvlan or macvlan): the parent stays on the host, and the pod gets a link on top of it.

The child is created in the pod's network namespace and removed with it, so nothing has to be moved back, whatever
happens to driver, runtime or pod. Only the parent may change: it is brought up, because a child has no carrier while
its parent is down, and taken down again with the last child.

The kernel keeps one mode for all ipvlan children of a parent and changes that of the others without an error, and a
parent cannot have children of both kinds. Prepare checks both against the children of other claims.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from dranet.core import attributes, netconfig
from dranet.core.attributes import RAIL
from dranet.core.errors import InvalidInput, NotFound, Problem
from dranet.core.netconfig import Interface, NetworkConfig
from dranet.linux import links, rules, virtual_links
from dranet.linux.codec import Message, mac_text
from dranet.linux.links import Link
from dranet.node.features.base import (
    AttachError,
    NodeContext,
    Problems,
    RecoveryContext,
    Work,
    name_taken,
    raise_first,
    refusals,
)
from dranet.node.features.host_tables import HostTables
from dranet.node.features.interface import InterfaceInPod, pod_config_of, take_down_messages
from dranet.node.features.pod_config import check_config, pod_config
from dranet.node.inventory.sharing import consumes_whole_device
from dranet.node.inventory.snapshot import NodeDevice
from dranet.node.namespaces import Host, PodNamespace
from dranet.node.records.plan import AttachMode, DevicePlan, HostState, Record


class ChildRecord(Record, frozen=True):
    """The child link and its parent."""

    parent: str
    """The name of the parent on the host."""
    parent_index: int
    kind: str
    mode: str
    flag: str = ""
    mac: str | None = None
    """Of a macvlan: chosen once, so that a child that is created again has the same."""
    was_up: bool = True
    """Whether the parent was up before it had children."""
    mac_was_asked: bool = False

    @property
    def is_only_one(self) -> bool:
        """Whether the claim cannot have a second such child for another pod."""
        return self.mode == "passthru" or self.mac_was_asked


class ChildFeature(InterfaceInPod[ChildRecord]):
    """Creates a child link in the pod."""

    tag, order, record_type, mode = "child", 11, ChildRecord, AttachMode.SHARED

    def plan(self, node: NodeContext, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        if device.mode is not AttachMode.SHARED:
            return device
        parent = check_config(node.tables, seen, config)
        siblings = [
            child for other in node.tables.others if other.name == device.name and (child := self.record_of(other))
        ]
        problems = [*_parent_problems(parent, config), *_config_problems(parent, config)]
        record = _record(parent, config.link, siblings)
        problems += [problem for sibling in siblings for problem in _conflicts(record, sibling)]
        if record.mode == "passthru" and not consumes_whole_device(seen.device, device.consumed):
            message = f"Passthru receives all packets of {parent.name}: it needs the whole device, not a share"
            problems.append(Problem("interface.macvlan.mode", message))
        if problems:
            raise InvalidInput(problems)
        state = node.tables.host_state(parent, str(seen.pci) if seen.pci else None)
        return self._with(device, record, config, state, seen.device.attributes.get(RAIL))

    def _with(
        self, device: DevicePlan, record: ChildRecord, config: NetworkConfig, host_state: HostState, rail: object
    ) -> DevicePlan:
        """A child inherits the permanent neighbours of its parent, and no addresses, routes and rules."""
        bare = msgspec.structs.replace(host_state, addresses=(), routes=(), rules=())
        own = msgspec.structs.replace(pod_config(config, bare, rail), mac=None)
        return self.with_record(msgspec.structs.replace(device, pod_config=own), record)

    def find_on_host(self, host: Host, devices: Sequence[DevicePlan], *, settings: bool = False) -> list[Link | None]:
        """The parents: a child itself is never on the host."""
        return links.get_links(host.route, [self.require(device).parent for device in devices], settings=settings)

    def find_in_pod(self, host: Host, pod: PodNamespace, devices: Sequence[DevicePlan]) -> list[Link | None]:
        there = links.list_links(pod.route)
        taken: set[int] = set()
        return [_pick(there, self.require(device), pod_config_of(device).name, taken) for device in devices]

    def set_up(self, host: Host, device: DevicePlan, parent: Link) -> Work:
        if not parent.is_up:
            raise_first((yield [links.change(parent.index, up=True)]))

    def attach(self, host: Host, pod: PodNamespace, device: DevicePlan, parent: Link) -> Work:
        (inside,) = self.find_in_pod(host, pod, [device])
        if inside is not None:
            return
        own = pod_config_of(device)
        (error,) = yield [_create(self.require(device), parent, own.name, own.mtu, pod.namespace.fd)]
        if error is None:
            return
        if error.errno == errno.EEXIST:
            raise name_taken(device, own.name) from error
        if error.errno == errno.EBUSY:
            busy = f"{parent.name} is in use: it is a port of a bridge or bond, or has children of another kind"
            raise AttachError(f"{device.name}: {busy} ({error})") from error
        raise AttachError(f"{device.name}: {error}") from error

    def detach(self, host: Host, pod: PodNamespace, device: DevicePlan, child: Link | None) -> Problems:
        if child is not None:
            raise_first((yield [links.delete(child.index)]))
        yield [rules.delete(rule.kernel()) for rule in pod_config_of(device).rules]
        return []

    def restore(self, host: Host, tables: HostTables, device: DevicePlan, parent: Link | None) -> Problems:
        record = self.require(device)
        is_parent_used = any(other.name == device.name and self.record_of(other) for other in tables.others)
        if parent is None or record.was_up or is_parent_used or not parent.is_up:
            return []
        return list(map(str, refusals((yield take_down_messages(host.route, parent.index)))))

    def recover(self, context: RecoveryContext, device: DevicePlan) -> DevicePlan:
        if device.mode is not AttachMode.SHARED:
            return device
        name = str(context.published.attributes[attributes.IF_NAME])
        parent = context.node.tables.link(name)
        if parent is None:
            raise NotFound(f"{name}, the parent of {device.name}, is not on this node")
        record = _record(parent, context.config.link, ())
        inside = _pick(links.list_links(context.pod.route), record, str(context.config.link.name or name), set())
        if inside is None:
            raise NotFound(f"the pod has no child link of {name}")
        record = msgspec.structs.replace(record, mac=inside.mac if record.mac else None)
        state = context.node.tables.host_state(parent, None)
        return self._with(device, record, context.config, state, context.published.attributes.get(RAIL))


def _record(parent: Link, requested: Interface, siblings: Sequence[ChildRecord]) -> ChildRecord:
    first = siblings[0] if siblings else None
    common: dict[str, Any] = {
        "parent": parent.name,
        "parent_index": parent.index,
        "was_up": first.was_up if first else parent.is_up,
    }
    if requested.type == netconfig.IPVLAN:
        block = netconfig.Ipvlan() if requested.ipvlan is UNSET else requested.ipvlan
        mode, flag = str(block.mode or "L2").lower(), str(block.flag or "Bridge").lower()
        return ChildRecord(kind="ipvlan", mode=mode, flag=flag, **common)
    block_mode = UNSET if requested.macvlan is UNSET else requested.macvlan.mode
    mode = str(block_mode or "Bridge").lower()
    asked = netconfig.parse_hardware_address(requested.hardware_addr or "")
    mac = None if mode == "passthru" else mac_text(asked) if asked else _local_mac()
    return ChildRecord(kind="macvlan", mode=mode, mac=mac, mac_was_asked=bool(requested.hardware_addr), **common)


def _local_mac() -> str:
    """A locally administered address."""
    return ":".join(f"{byte:02x}" for byte in (0x02, *random.randbytes(5)))


def _parent_problems(parent: Link, config: NetworkConfig) -> list[Problem]:
    kind = str(config.link.type)
    if parent.encapsulation != "ether":
        return [Problem("interface.type", f"{parent.name} is {parent.encapsulation}: {kind} needs an Ethernet link")]
    if parent.kind in ("ipvlan", "macvlan"):
        return [Problem("interface.type", f"{parent.name} is a child link ({parent.kind}) and cannot have children")]
    if parent.master:
        return [Problem("interface.type", f"{parent.name} is a port of another link; share that one instead")]
    return []


def _config_problems(parent: Link, config: NetworkConfig) -> list[Problem]:
    requested, problems = config.link, []
    if requested.mtu is not UNSET and requested.mtu > parent.mtu:
        problems.append(
            Problem("interface.mtu", f"{requested.mtu} is more than the {parent.mtu} of its parent {parent.name}")
        )
    if config.ethtool is not UNSET:
        problems.append(
            Problem("ethtool", f"offloads belong to {parent.name}, which other pods share; set them on the node")
        )
    if requested.disable_ebpf_programs is True:
        message = f"BPF programs belong to {parent.name}, which other pods share; a child link has none"
        problems.append(Problem("interface.disableEbpfPrograms", message))
    automatic = requested.addressing in (netconfig.UNNUMBERED, netconfig.SLAAC) or requested.uses_dhcp
    if not requested.addresses and not automatic:
        ways = "give interface.addresses, a profile that does, or addressing: SLAAC, DHCP (Macvlan) or Unnumbered"
        problems.append(Problem("interface.addresses", f"a child link does not inherit its parent's address; {ways}"))
    return problems


def _conflicts(record: ChildRecord, sibling: ChildRecord) -> list[Problem]:
    if record.kind != sibling.kind:
        message = f"{record.parent} has {sibling.kind} children of another claim; a parent cannot have both kinds"
        return [Problem("interface.type", message)]
    if record.kind == "ipvlan" and (record.mode, record.flag) != (sibling.mode, sibling.flag):
        how = f"mode {sibling.mode.upper()} and flag {sibling.flag}"
        return [
            Problem("interface.ipvlan", f"{record.parent} has children of another claim with {how}; all must agree")
        ]
    if "passthru" in (record.mode, sibling.mode):
        return [Problem("interface.macvlan.mode", f"Passthru allows one child, and {record.parent} has another")]
    if record.mac and record.mac == sibling.mac:
        return [Problem("interface.hardwareAddr", f"another child of {record.parent} already has {record.mac}")]
    return []


def _create(record: ChildRecord, parent: Link, name: str, mtu: int | None, namespace_fd: int) -> Message:
    if record.kind == "ipvlan":
        return virtual_links.create_ipvlan(
            name, parent.index, record.mode, record.flag, mtu=mtu, namespace_fd=namespace_fd
        )
    return virtual_links.create_macvlan(
        name, parent.index, record.mode, mac=record.mac, mtu=mtu, namespace_fd=namespace_fd
    )


def _pick(there: Sequence[Link], record: ChildRecord, name: str, taken: set[int]) -> Link | None:
    """This child among the pod's links: by parent, then by MAC or name, because the pod may rename it."""
    own = [
        link
        for link in there
        if link.kind == record.kind and link.parent_index == record.parent_index and link.index not in taken
    ]
    own.sort(key=lambda link: (link.mac != record.mac if record.mac else False, link.name != name))
    if not own:
        return None
    taken.add(own[0].index)
    return own[0]


FEATURE = ChildFeature()
