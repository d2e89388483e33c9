"""Refuses addresses that belong to the node or to others on the same NIC. Keeps no record.

The driver announces the addresses of a pod. With an address of the node, the network would send the node's packets to
the pod. Other claims are compared on the same NIC only: tenants in networks of their own may use the same addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import msgspec

from dranet.core.errors import InvalidInput, Problem
from dranet.core.netconfig import NetworkConfig, parse_hardware_address
from dranet.linux.codec import mac_text
from dranet.node.features.base import Feature, NodeContext
from dranet.node.features.host_tables import HostTables
from dranet.node.inventory.snapshot import NodeDevice
from dranet.node.records.plan import AttachMode, DevicePlan


class AddressGuard(Feature[msgspec.Struct]):
    """Checks the addresses that a claim asks for."""

    tag, order, record_type = "address_guard", 14, msgspec.Struct

    def plan(self, node: NodeContext, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        if device.mode not in (AttachMode.MOVED, AttachMode.SHARED):
            return device
        # A NIC that is moved may keep its own addresses; a child may not take those of its parent.
        own = seen.netdev.index if device.mode is AttachMode.MOVED else 0
        problems = [
            *_address_problems(node.tables, own, config, device),
            *_mac_problems(node.tables, own, seen, config),
        ]
        if problems:
            raise InvalidInput(problems)
        return device


def _address_problems(tables: HostTables, own: int, config: NetworkConfig, device: DevicePlan) -> Iterator[Problem]:
    taken = _taken(tables, own, device) if config.link.addresses else {}
    for number, cidr in enumerate(config.link.addresses or ()):
        address = str(ipaddress.ip_interface(cidr).ip)
        if address in taken:
            yield Problem(f"interface.addresses[{number}]", f"{address} is {taken[address]}; choose another")


def _taken(tables: HostTables, own: int, device: DevicePlan) -> dict[str, str]:
    """Addresses in use, each with its user."""
    others = [other.pod_config for other in tables.others if other.name == device.name and other.pod_config]
    taken = {address.local: "an address of another claim on this NIC" for one in others for address in one.addresses}
    if device.mode is AttachMode.SHARED:
        taken |= dict.fromkeys(tables.gateways, "a gateway of this node")
    return taken | dict.fromkeys(tables.addresses_except(own), "an address of this node")


def _mac_problems(tables: HostTables, own: int, seen: NodeDevice, config: NetworkConfig) -> Iterator[Problem]:
    raw = parse_hardware_address(config.link.hardware_addr or "")
    if raw is None:
        return
    mac = mac_text(raw)
    users = tables.macs_near(seen.netdev.index, except_link=own)
    if mac in users:
        yield Problem("interface.hardwareAddr", f"{mac} is the address of {users[mac]}; choose another")


FEATURE = AddressGuard()
