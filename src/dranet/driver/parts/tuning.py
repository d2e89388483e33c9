"""Offloads, private flags and BPF programs of a card: what ethtool and bpftool would do.

Names are resolved and old values noted at prepare, on the host; settings stay with a card when it moves. What the
kernel cannot do is said then, not in the hook.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from dranet.driver.namespaces import Host
from dranet.driver.parts.base import Node, Part, Problems, Work
from dranet.driver.parts.host_tables import HostTables
from dranet.driver.records.plan import DevicePlan, Found, Wanted
from dranet.inventory.snapshot import NodeDevice
from dranet.kernel import links
from dranet.kernel.errors import KernelError
from dranet.kernel.ethtool import Feature, resolve_feature
from dranet.kernel.links import Link
from dranet.kernel.traffic import bpf, tc
from dranet.model.errors import InvalidInput, Problem
from dranet.model.netconfig import NetworkConfig

BPFFS = "/sys/fs/bpf"


class TuningRecord(NamedTuple):
    """Kept in both sides of the card, as in the first version: `features` and `private_flags` of each."""

    was: Found
    want: Wanted


class TuningPart(Part[TuningRecord]):
    """Tunes a card on the host before it moves, and back when it is home."""

    tag, place = "tuning", 20

    def of(self, device: DevicePlan) -> TuningRecord | None:
        was, want = device.found, device.wanted
        if was is None or want is None or not (want.features or want.private_flags or want.detach_bpf):
            return None
        return TuningRecord(was, want)

    def plan(self, node: Node, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        if device.found is None or device.wanted is None or config.ethtool is UNSET:
            return device
        found, wanted = _resolved(node.host, config, device.found, device.wanted)
        return msgspec.structs.replace(device, found=found, wanted=wanted)

    def ready(self, host: Host, device: DevicePlan, card: Link) -> Work:
        record = self.of(device)
        assert record is not None
        _set(host, card.index, record.want.features, record.want.private_flags)
        if record.want.detach_bpf:
            detach_bpf(host, card)
        yield from ()

    def restore(self, host: Host, tables: HostTables, device: DevicePlan, card: Link | None) -> Problems:
        record = self.of(device)
        assert record is not None
        if card is None:
            return []
        try:
            _set(host, card.index, record.was.features, record.was.private_flags)
        except KernelError as error:
            return [str(error)]
        yield from ()
        return []


def _resolved(host: Host, config: NetworkConfig, found: Found, wanted: Wanted) -> tuple[Found, Wanted]:
    """Both sides with kernel names and old values filled in; unknown names raise InvalidInput, all of them."""
    assert config.ethtool is not UNSET
    features, flags = config.ethtool.features or {}, config.ethtool.private_flags or {}
    known = host.ethtool.features(found.link.index) if features else {}
    own = host.ethtool.private_flags(found.link.index) if flags else {}
    asked = _features(features, known)
    unknown = [Problem(f"ethtool.privateFlags.{name}", _no_such(name, own)) for name in flags if name not in own]
    if unknown:
        raise InvalidInput(unknown)
    was = {name: known[name].active for name in asked}
    return (
        msgspec.structs.replace(found, features=was, private_flags={name: own[name] for name in flags}),
        msgspec.structs.replace(wanted, features=asked, private_flags=dict(flags)),
    )


def _features(asked: Mapping[str, bool], known: Mapping[str, Feature]) -> dict[str, bool]:
    resolved = {name: resolve_feature(name, known) for name in asked}
    problems = [
        Problem(f"ethtool.features.{name}", "this card has no such feature; `ethtool -k` lists them")
        for name, found in resolved.items()
        if not found
    ]
    fixed = [
        Problem(f"ethtool.features.{name}", f"cannot be switched {'on' if asked[name] else 'off'} on this card")
        for name, found in resolved.items()
        for feature in found
        if not known[feature].changeable and known[feature].active != asked[name]
    ]
    if problems or fixed:
        raise InvalidInput([*problems, *fixed])
    return {feature: asked[name] for name, found in resolved.items() for feature in found}


def _no_such(name: str, own: Mapping[str, bool]) -> str:
    return f"this card has no private flag {name!r}; it has: {', '.join(sorted(own)) or 'none'}"


def _set(host: Host, index: int, features: Mapping[str, bool], flags: Mapping[str, bool]) -> None:
    if not features and not flags:
        return
    if features:
        now = host.ethtool.features(index)
        changes = {name: on for name, on in features.items() if name in now and now[name].active != on}
        if changes:
            host.ethtool.set_features(index, changes)
    if flags and host.ethtool.private_flags(index) != flags:
        host.ethtool.set_private_flags(index, flags)


def detach_bpf(host: Host, card: Link) -> None:
    """Take tc, TCX and XDP programs off a card while it is on the host, and remove the pins that would keep them.

    Slow where something is pinned, because the whole BPF file system is walked: so it is done at prepare, and again
    before the move only if somebody attached something in between.
    """
    for entry in tc.list_bpf_filters(host.route):
        if entry.index == card.index:
            host.route.request(tc.delete(entry))
    attached = host.namespace.run(lambda: bpf.attachments([card.index]))
    held = {attachment.link_id for attachment in attached if attachment.link_id}
    held |= {link.id for link in bpf.list_links() if card.xdp_programs and _is_xdp_of(link, card)}
    for pinned in bpf.pinned_links(BPFFS)[0] if held else []:
        if pinned.id in held:
            bpf.unpin(pinned)
    for attachment in attached:
        host.namespace.run(partial(bpf.detach, attachment))
    _detach_xdp(host, card)


def _detach_xdp(host: Host, card: Link) -> None:
    if not card.xdp_programs:
        return
    for link in bpf.list_links():
        if _is_xdp_of(link, card):
            bpf.detach_link(link.id)
    now = links.get_link(host.route, card.index)
    for program in now.xdp_programs if now else ():
        host.route.request(links.detach_xdp(card.index, program.mode))


def _is_xdp_of(link: bpf.BpfLink, card: Link) -> bool:
    """Indexes repeat between namespaces; the program's id makes it certain."""
    ids = {program.id for program in card.xdp_programs}
    return link.kind == "xdp" and link.index == card.index and link.program_id in ids


PART = TuningPart()
