"""Offloads, private flags and BPF programs of a card: what ethtool and bpftool would do.

Names are resolved and old values noted at prepare, on the host; settings stay with a card when it moves. What the
kernel cannot do is said then, not in the hook.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec
from msgspec import UNSET

from dranet.driver.claims.plan import HostSide, PodSide
from dranet.driver.moving.host import Host
from dranet.kernel import bpf, links, tc
from dranet.kernel.errors import KernelError
from dranet.kernel.ethtool import Ethtool, Feature, resolve_feature
from dranet.kernel.links import Link
from dranet.model.errors import InvalidInput, Problem
from dranet.model.netconfig import NetworkConfig

BPFFS = "/sys/fs/bpf"


def resolve(at: Host, link: Link, config: NetworkConfig, host: HostSide, pod: PodSide) -> tuple[HostSide, PodSide]:
    """Both sides with kernel names and old values filled in; unknown names raise InvalidInput, all of them."""
    if config.ethtool is UNSET:
        return host, pod
    features, flags = config.ethtool.features or {}, config.ethtool.private_flags or {}
    with Ethtool(at.namespace.fd) as ethtool:
        known = ethtool.features(link.index) if features else {}
        own = ethtool.private_flags(link.index) if flags else {}
    wanted = _features(features, known)
    unknown = [Problem(f"ethtool.privateFlags.{name}", _no_such(name, own)) for name in flags if name not in own]
    if unknown:
        raise InvalidInput(unknown)
    was = {name: known[name].active for name in wanted}
    return (
        msgspec.structs.replace(host, features=was, private_flags={name: own[name] for name in flags}),
        msgspec.structs.replace(pod, features=wanted, private_flags=dict(flags)),
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


def apply(host: Host, card: Link, pod: PodSide) -> None:
    """Make the card as the pod wants it, on the host, where there is time."""
    _set(host, card.index, pod.features, pod.private_flags)


def restore(host: Host, card: Link, was: HostSide) -> list[str]:
    """Put old values back; what could not be, in words."""
    try:
        _set(host, card.index, was.features, was.private_flags)
    except KernelError as error:
        return [str(error)]
    return []


def _set(host: Host, index: int, features: Mapping[str, bool], flags: Mapping[str, bool]) -> None:
    if not features and not flags:
        return
    with Ethtool(host.namespace.fd) as ethtool:
        if features:
            now = ethtool.features(index)
            changes = {name: on for name, on in features.items() if name in now and now[name].active != on}
            if changes:
                ethtool.set_features(index, changes)
        if flags and ethtool.private_flags(index) != flags:
            ethtool.set_private_flags(index, flags)


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
