"""A VRF in the pod that the interface joins: its routes are then in the VRF's table, and rules are not needed.

The VRF belongs to the pod: several devices may share one. The first of them creates it, and the last one to be detached
removes it if the namespace lives on.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from dranet.core import netconfig
from dranet.core.netconfig import NetworkConfig
from dranet.linux import links, virtual_links
from dranet.linux.links import Link
from dranet.node.features.base import (
    AttachError,
    Feature,
    NodeContext,
    Problems,
    RecoveryContext,
    Work,
    raise_first,
    refusals,
)
from dranet.node.inventory.snapshot import NodeDevice
from dranet.node.namespaces import Host, PodNamespace
from dranet.node.records.plan import DevicePlan, VrfRecord

_SYSCTLS = {"net/ipv4/tcp_l3mdev_accept": "1", "net/ipv4/udp_l3mdev_accept": "1"}
"""Servers that listen on all interfaces accept connections in the VRF too."""


class VrfFeature(Feature[VrfRecord]):
    """Adds an interface to a VRF."""

    tag, order, record_type = "vrf", 30, VrfRecord

    def record_of(self, device: DevicePlan) -> VrfRecord | None:
        return device.pod_config.vrf if device.pod_config else None

    def plan(self, node: NodeContext, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        return _with_vrf(device, config)

    def recover(self, context: RecoveryContext, device: DevicePlan) -> DevicePlan:
        return _with_vrf(device, context.config)

    def configure(self, host: Host, pod: PodNamespace, device: DevicePlan, link: Link) -> Work:
        """Before the addresses: the kernel removes IPv6 addresses from a link that joins a VRF."""
        vrf = self.require(device)
        if links.get_link(pod.route, vrf.name) is None:
            # EEXIST is fine: another device of the pod may have created it in the same round.
            raise_first(refusals((yield [virtual_links.create_vrf(vrf.name, vrf.table)])))
        master = links.get_link(pod.route, vrf.name)
        if master is None or master.kind != "vrf" or virtual_links.vrf_table(master.info) != vrf.table:
            raise AttachError(f"{vrf.name} exists in the pod but is not a VRF of table {vrf.table}")
        raise_first((yield [links.change(master.index, up=True), links.change(link.index, master=master.index)]))

    def detach(self, host: Host, pod: PodNamespace, device: DevicePlan, link: Link | None) -> Problems:
        vrf = self.require(device)
        if link is not None:
            yield [links.change(link.index, up=False), links.change(link.index, master=0)]
        master = links.get_link(pod.route, vrf.name)
        if master is not None and master.kind == "vrf" and not _has_members(pod, master):
            yield [links.delete(master.index)]
        return []


def _has_members(pod: PodNamespace, vrf: Link) -> bool:
    return any(link.master == vrf.index for link in links.list_links(pod.route))


def _with_vrf(device: DevicePlan, config: NetworkConfig) -> DevicePlan:
    requested, own = config.link.vrf, device.pod_config
    if requested is UNSET or own is None:
        return device
    vrf = VrfRecord(name=requested.name, table=netconfig.vrf_table(requested))
    changed = msgspec.structs.replace(
        own,
        vrf=vrf,
        routes=tuple(msgspec.structs.replace(route, table=vrf.table) for route in own.routes),
        rules=(),
        sysctls={**own.sysctls, **_SYSCTLS},
    )
    return msgspec.structs.replace(device, pod_config=changed)


FEATURE = VrfFeature()
