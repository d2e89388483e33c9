"""Offloads, private flags and BPF programs of a link: what ethtool and bpftool would do.

Prepare resolves names and records old values on the host, and refuses what the kernel cannot do. The settings stay with
a link when it moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from dranet.core.errors import InvalidInput, KernelError, Problem
from dranet.core.netconfig import NetworkConfig
from dranet.linux import links
from dranet.linux.ethtool import Feature as Offload
from dranet.linux.ethtool import resolve_feature
from dranet.linux.links import Link
from dranet.linux.traffic import bpf, tc
from dranet.node.features.base import Feature, NodeContext, Problems, Work
from dranet.node.features.host_tables import HostTables
from dranet.node.inventory.snapshot import NodeDevice
from dranet.node.namespaces import Host
from dranet.node.records.plan import DevicePlan, HostState, PodConfig

_BPFFS = "/sys/fs/bpf"


class TuningRecord(NamedTuple):
    """On disk it is `features` and `private_flags` of the host state and the pod config, as in the first version."""

    was: HostState
    want: PodConfig


class TuningFeature(Feature[TuningRecord]):
    """Sets offloads on the host before the link moves, and restores them after it is back."""

    tag, order = "tuning", 20

    def record_of(self, device: DevicePlan) -> TuningRecord | None:
        was, want = device.host_state, device.pod_config
        if was is None or want is None or not (want.features or want.private_flags or want.detach_bpf):
            return None
        return TuningRecord(was, want)

    def plan(self, node: NodeContext, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        if device.host_state is None or device.pod_config is None or config.ethtool is UNSET:
            return device
        found, wanted = _resolved(node.host, config, device.host_state, device.pod_config)
        return msgspec.structs.replace(device, host_state=found, pod_config=wanted)

    def set_up(self, host: Host, device: DevicePlan, link: Link) -> Work:
        record = self.require(device)
        _set(host, link.index, record.want.features, record.want.private_flags)
        if record.want.detach_bpf:
            detach_bpf(host, link)
        yield from ()

    def restore(self, host: Host, tables: HostTables, device: DevicePlan, link: Link | None) -> Problems:
        record = self.require(device)
        if link is None:
            return []
        try:
            _set(host, link.index, record.was.features, record.was.private_flags)
        except KernelError as error:
            return [str(error)]
        yield from ()
        return []


def _resolved(host: Host, config: NetworkConfig, found: HostState, wanted: PodConfig) -> tuple[HostState, PodConfig]:
    """Both with kernel names and old values filled in; raises InvalidInput with all unknown names."""
    assert config.ethtool is not UNSET
    features, flags = config.ethtool.features or {}, config.ethtool.private_flags or {}
    known = host.ethtool.features(found.link.index) if features else {}
    own = host.ethtool.private_flags(found.link.index) if flags else {}
    requested = _features(features, known)
    unknown = [Problem(f"ethtool.privateFlags.{name}", _no_such(name, own)) for name in flags if name not in own]
    if unknown:
        raise InvalidInput(unknown)
    was = {name: known[name].active for name in requested}
    return (
        msgspec.structs.replace(found, features=was, private_flags={name: own[name] for name in flags}),
        msgspec.structs.replace(wanted, features=requested, private_flags=dict(flags)),
    )


def _features(requested: Mapping[str, bool], known: Mapping[str, Offload]) -> dict[str, bool]:
    resolved = {name: resolve_feature(name, known) for name in requested}
    problems = [
        Problem(f"ethtool.features.{name}", "this device has no such feature; `ethtool -k` lists them")
        for name, found in resolved.items()
        if not found
    ]
    fixed = [
        Problem(f"ethtool.features.{name}", f"cannot be switched {'on' if requested[name] else 'off'} on this device")
        for name, found in resolved.items()
        for feature in found
        if not known[feature].changeable and known[feature].active != requested[name]
    ]
    if problems or fixed:
        raise InvalidInput([*problems, *fixed])
    return {feature: requested[name] for name, found in resolved.items() for feature in found}


def _no_such(name: str, own: Mapping[str, bool]) -> str:
    return f"this device has no private flag {name!r}; it has: {', '.join(sorted(own)) or 'none'}"


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


def detach_bpf(host: Host, link: Link) -> None:
    """Detach tc, TCX and XDP programs from a link on the host, and remove the pins that would keep them.

    Slow where something is pinned, because it walks the whole BPF file system: `set_up` does it at prepare, and again
    in the hook only if a program was attached in between.
    """
    for entry in tc.list_bpf_filters(host.route):
        if entry.index == link.index:
            host.route.request(tc.delete_bpf_filter(entry))
    attached = host.namespace.run(lambda: bpf.attachments([link.index]))
    held = {attachment.link_id for attachment in attached if attachment.link_id}
    held |= {one.id for one in bpf.list_links() if link.xdp_programs and _is_xdp_of(one, link)}
    for pinned in bpf.pinned_links(_BPFFS)[0] if held else []:
        if pinned.id in held:
            bpf.unpin(pinned)
    for attachment in attached:
        host.namespace.run(partial(bpf.detach, attachment))
    _detach_xdp(host, link)


def _detach_xdp(host: Host, link: Link) -> None:
    if not link.xdp_programs:
        return
    for bpf_link in bpf.list_links():
        if _is_xdp_of(bpf_link, link):
            bpf.detach_link(bpf_link.id)
    now = links.get_link(host.route, link.index)
    for program in now.xdp_programs if now else ():
        host.route.request(links.detach_xdp(link.index, program.mode))


def _is_xdp_of(bpf_link: bpf.BpfLink, link: Link) -> bool:
    """The program ID as well as the index, because indexes repeat between namespaces."""
    ids = {program.id for program in link.xdp_programs}
    return bpf_link.kind == "xdp" and bpf_link.index == link.index and bpf_link.program_id in ids


FEATURE = TuningFeature()
