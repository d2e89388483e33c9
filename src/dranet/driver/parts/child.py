"""A child of a card: the card stays on the node, and the pod gets an interface made on top of it.

The child is born in the pod's namespace and dies with it, so whatever happens to driver, runtime or pod, nothing has to
be brought home. What a card may notice is that it was raised: a child has no carrier while its card is down. It is
lowered again when the last child leaves.

The kernel keeps one mode for all IPVLAN children of a card and changes that of the others without a word, and a card
cannot have children of both kinds: both are checked at prepare against the children of other claims.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from dranet.driver.namespaces import Host, PodNamespace
from dranet.driver.parts.base import AttachError, Node, Problems, Witness, Work, raise_first, refusals
from dranet.driver.parts.host_tables import HostTables
from dranet.driver.parts.interface import InterfaceInPod, wanted_of
from dranet.driver.parts.lowering import lowering
from dranet.driver.parts.netdev_checks import check_asked
from dranet.driver.parts.netdev_wanted import wanted
from dranet.driver.records.plan import DevicePlan, Found, Record, Use
from dranet.inventory.snapshot import NodeDevice
from dranet.kernel import links, rules, virtual_links
from dranet.kernel.codec import Message
from dranet.kernel.links import Link
from dranet.model import attributes, netconfig
from dranet.model.errors import InvalidInput, NotFound, Problem
from dranet.model.netconfig import Interface, NetworkConfig

_KINDS = {netconfig.IPVLAN: "ipvlan", netconfig.MACVLAN: "macvlan"}


class ChildRecord(Record, frozen=True):
    """What is made, and on top of what."""

    parent: str
    """The card's interface on the node."""
    parent_index: int
    kind: str
    mode: str
    flag: str = ""
    mac: str | None = None
    """Of a macvlan: chosen once, so that a child that is made again is known again."""
    was_up: bool = True
    """Whether the card was up before it had children."""
    mac_was_asked: bool = False

    @property
    def is_only_one(self) -> bool:
        """Whether a second one like it cannot be made for another pod."""
        return self.mode == "passthru" or self.mac_was_asked


class ChildPart(InterfaceInPod[ChildRecord]):
    """Makes an interface on top of a card."""

    tag, place, record, use = "child", 11, ChildRecord, Use.SHARED

    def plan(self, node: Node, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        if device.use is not Use.SHARED:
            return device
        card = check_asked(node.tables, seen, config)
        siblings = [child for other in node.tables.others if other.name == device.name and (child := self.of(other))]
        problems = [*_problems_of_card(card, config), *_problems_of_wish(card, config)]
        made = _record(card, config.link, siblings)
        problems += [problem for sibling in siblings for problem in _clashes(made, sibling)]
        if problems:
            raise InvalidInput(problems)
        return self._with(device, made, config, node.tables.found(card, str(seen.pci) if seen.pci else None))

    def _with(self, device: DevicePlan, made: ChildRecord, config: NetworkConfig, found: Found) -> DevicePlan:
        """Nothing of the card's addresses, routes and rules comes along; its permanent neighbours do."""
        bare = msgspec.structs.replace(found, addresses=(), routes=(), rules=())
        want = msgspec.structs.replace(wanted(config, bare), mac=None)
        return self.keep(msgspec.structs.replace(device, wanted=want), made)

    def _made(self, device: DevicePlan) -> ChildRecord:
        record = self.of(device)
        assert record is not None, f"{device.name} has no child"
        return record

    def at_home(self, host: Host, devices: Sequence[DevicePlan], *, settings: bool = False) -> list[Link | None]:
        """The cards below: a child itself is never on the node."""
        return links.get_links(host.route, [self._made(device).parent for device in devices], settings=settings)

    def in_pod(self, host: Host, pod: PodNamespace, devices: Sequence[DevicePlan]) -> list[Link | None]:
        there = links.list_links(pod.route)
        taken: set[int] = set()
        return [_pick(there, self._made(device), wanted_of(device).name, taken) for device in devices]

    def ready(self, host: Host, device: DevicePlan, card: Link) -> Work:
        if not card.is_up:
            raise_first((yield [links.change(card.index, up=True)]))

    def enter(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link) -> Work:
        (inside,) = self.in_pod(host, pod, [device])
        if inside is not None:
            return
        want = wanted_of(device)
        (error,) = yield [_create(self._made(device), card, want.name, want.mtu, pod.namespace.fd)]
        if error is None:
            return
        if error.errno == errno.EEXIST:
            taken = f"the pod already has an interface named {want.name}"
            raise AttachError(f"{taken}; give {device.name} another interface.name") from error
        if error.errno == errno.EBUSY:
            busy = f"{card.name} is used in another way: it is a port of a bridge or bond, or has other children"
            raise AttachError(f"{device.name}: {busy} ({error})") from error
        raise AttachError(f"{device.name}: {error}") from error

    def leave(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link | None) -> Problems:
        if card is not None:
            raise_first((yield [links.delete(card.index)]))
        yield [rules.delete(rule.kernel()) for rule in wanted_of(device).rules]
        return []

    def restore(self, host: Host, tables: HostTables, device: DevicePlan, card: Link | None) -> Problems:
        record = self._made(device)
        shared = any(other.name == device.name and self.of(other) for other in tables.others)
        if card is None or record.was_up or shared or not card.is_up:
            return []
        return list(map(str, refusals((yield lowering(host.route, card.index)))))

    def adopt(self, witness: Witness, device: DevicePlan) -> DevicePlan:
        if device.use is not Use.SHARED:
            return device
        parent = str(witness.published.attributes[attributes.IF_NAME])
        card = witness.node.tables.link(parent)
        if card is None:
            raise NotFound(f"{parent}, which {device.name} is made of, is not on this node")
        made = _record(card, witness.config.link, ())
        inside = _pick(links.list_links(witness.pod.route), made, str(witness.config.link.name or parent), set())
        if inside is None:
            raise NotFound(f"no child of {parent} is in the pod")
        made = msgspec.structs.replace(made, mac=inside.mac if made.mac else None)
        return self._with(device, made, witness.config, witness.node.tables.found(card, None))


def _record(card: Link, asked: Interface, siblings: Sequence[ChildRecord]) -> ChildRecord:
    first = siblings[0] if siblings else None
    common: dict[str, Any] = {
        "parent": card.name,
        "parent_index": card.index,
        "was_up": first.was_up if first else card.is_up,
    }
    if asked.type == netconfig.IPVLAN:
        block = netconfig.Ipvlan() if asked.ipvlan is UNSET else asked.ipvlan
        mode, flag = str(block.mode or "L2").lower(), str(block.flag or "Bridge").lower()
        return ChildRecord(kind="ipvlan", mode=mode, flag=flag, **common)
    block_mode = UNSET if asked.macvlan is UNSET else asked.macvlan.mode
    mode = str(block_mode or "Bridge").lower()
    mac = None if mode == "passthru" else str(asked.hardware_addr or _local_mac())
    return ChildRecord(kind="macvlan", mode=mode, mac=mac, mac_was_asked=bool(asked.hardware_addr), **common)


def _local_mac() -> str:
    """A locally administered address."""
    return ":".join(f"{byte:02x}" for byte in (0x02, *random.randbytes(5)))


def _problems_of_card(card: Link, config: NetworkConfig) -> list[Problem]:
    kind = str(config.link.type)
    if card.encapsulation != "ether":
        return [Problem("interface.type", f"{card.name} is {card.encapsulation}: {kind} needs an Ethernet card")]
    if card.kind in ("ipvlan", "macvlan"):
        return [Problem("interface.type", f"{card.name} is itself a child ({card.kind}); children have no children")]
    if card.master:
        return [Problem("interface.type", f"{card.name} is a port of another device; share that one instead")]
    return []


def _problems_of_wish(card: Link, config: NetworkConfig) -> list[Problem]:
    asked, problems = config.link, []
    if asked.mtu is not UNSET and asked.mtu > card.mtu:
        problems.append(Problem("interface.mtu", f"{asked.mtu} is more than the {card.mtu} of {card.name} below it"))
    if config.ethtool is not UNSET:
        problems.append(Problem("ethtool", f"offloads belong to {card.name}, which others share; set them on the node"))
    if asked.disable_ebpf_programs is True:
        message = f"programs of {card.name} serve all who share it; a child has none of its own"
        problems.append(Problem("interface.disableEbpfPrograms", message))
    automatic = asked.addressing in (netconfig.UNNUMBERED, netconfig.SLAAC) or asked.uses_dhcp
    if not asked.addresses and not automatic:
        ways = "give interface.addresses, a profile that does, or addressing: SLAAC, DHCP (Macvlan) or Unnumbered"
        problems.append(Problem("interface.addresses", f"a child inherits no address of its card; {ways}"))
    return problems


def _clashes(made: ChildRecord, sibling: ChildRecord) -> list[Problem]:
    if made.kind != sibling.kind:
        message = f"{made.parent} has {sibling.kind} children of another claim; one card cannot have both kinds"
        return [Problem("interface.type", message)]
    if made.kind == "ipvlan" and (made.mode, made.flag) != (sibling.mode, sibling.flag):
        how = f"mode {sibling.mode.upper()} and flag {sibling.flag}"
        return [Problem("interface.ipvlan", f"{made.parent} has children of another claim with {how}; all must agree")]
    if "passthru" in (made.mode, sibling.mode):
        return [Problem("interface.macvlan.mode", f"Passthru is for one child alone, and {made.parent} has another")]
    if made.mac and made.mac == sibling.mac:
        return [Problem("interface.hardwareAddr", f"another child of {made.parent} has {made.mac} already")]
    return []


def _create(made: ChildRecord, card: Link, name: str, mtu: int | None, namespace_fd: int) -> Message:
    if made.kind == "ipvlan":
        return virtual_links.create_ipvlan(name, card.index, made.mode, made.flag, mtu=mtu, namespace_fd=namespace_fd)
    return virtual_links.create_macvlan(name, card.index, made.mode, mac=made.mac, mtu=mtu, namespace_fd=namespace_fd)


def _pick(there: Sequence[Link], made: ChildRecord, name: str, taken: set[int]) -> Link | None:
    """This child among the pod's links: by what it is made of, then by address or name, for the pod may rename it."""
    mine = [
        link
        for link in there
        if link.kind == made.kind and link.parent_index == made.parent_index and link.index not in taken
    ]
    mine.sort(key=lambda link: (link.mac != made.mac if made.mac else False, link.name != name))
    if not mine:
        return None
    taken.add(mine[0].index)
    return mine[0]


PART = ChildPart()
