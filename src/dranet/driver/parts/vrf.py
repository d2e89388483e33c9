"""A VRF in the pod that the interface joins: its routes are then in the VRF's table, and rules are not needed.

The VRF is the pod's, not the card's: several cards may share one, made by whichever comes first, and it goes with the
last of them where the namespace lives on.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from dranet.driver.namespaces import Host, PodNamespace
from dranet.driver.parts.base import AttachError, Node, Part, Problems, Witness, Work, raise_first, refusals
from dranet.driver.records.plan import DevicePlan, VrfRecord
from dranet.inventory.snapshot import NodeDevice
from dranet.kernel import links, virtual_links
from dranet.kernel.links import Link
from dranet.model import netconfig
from dranet.model.netconfig import NetworkConfig

_SYSCTLS = {"net/ipv4/tcp_l3mdev_accept": "1", "net/ipv4/udp_l3mdev_accept": "1"}
"""Servers that listen on no interface in particular are heard in the VRF too."""


class VrfPart(Part[VrfRecord]):
    """Puts an interface into a VRF."""

    tag, place, record = "vrf", 30, VrfRecord

    def of(self, device: DevicePlan) -> VrfRecord | None:
        return device.wanted.vrf if device.wanted else None

    def plan(self, node: Node, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        return _with_vrf(device, config)

    def adopt(self, witness: Witness, device: DevicePlan) -> DevicePlan:
        return _with_vrf(device, witness.config)

    def settle(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link) -> Work:
        """Before the addresses: joining a VRF makes the kernel forget those of IPv6."""
        vrf = self.of(device)
        assert vrf is not None
        if links.get_link(pod.route, vrf.name) is None:
            found = refusals((yield [virtual_links.create_vrf(vrf.name, vrf.table)]))  # another card may have made it
            raise_first(found)
        made = links.get_link(pod.route, vrf.name)
        if made is None or made.kind != "vrf" or virtual_links.vrf_table(made.info) != vrf.table:
            raise AttachError(f"{vrf.name} exists in the pod but is not a VRF of table {vrf.table}")
        raise_first((yield [links.change(made.index, up=True), links.change(card.index, master=made.index)]))

    def leave(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link | None) -> Problems:
        vrf = self.of(device)
        assert vrf is not None
        if card is not None:
            yield [links.change(card.index, up=False), links.change(card.index, master=0)]
        made = links.get_link(pod.route, vrf.name)
        if made is not None and made.kind == "vrf" and not _has_members(pod, made):
            yield [links.delete(made.index)]
        return []


def _has_members(pod: PodNamespace, vrf: Link) -> bool:
    return any(link.master == vrf.index for link in links.list_links(pod.route))


def _with_vrf(device: DevicePlan, config: NetworkConfig) -> DevicePlan:
    asked, want = config.link.vrf, device.wanted
    if asked is UNSET or want is None:
        return device
    vrf = VrfRecord(name=asked.name, table=netconfig.vrf_table(asked))
    changed = msgspec.structs.replace(
        want,
        vrf=vrf,
        routes=tuple(msgspec.structs.replace(route, table=vrf.table) for route in want.routes),
        rules=(),
        sysctls={**want.sysctls, **_SYSCTLS},
    )
    return msgspec.structs.replace(device, wanted=changed)


PART = VrfPart()
