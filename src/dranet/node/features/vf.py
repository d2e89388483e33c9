"""A virtual function that the driver created (`--sriov-vfs`), and its settings at the physical function.

The interface moves into the pod like any other. The settings here stay at the physical function, out of the pod's
reach: the VLAN of its packets, its rates, whether it may use other MACs. A MAC in the claim is set here as well, so
that the pod cannot change it unless it is trusted. `restore` sets everything back, so the next claim finds a virtual
function as it was created.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET

from dranet.core import attributes
from dranet.core.errors import DranetError, InvalidInput, Problem
from dranet.core.names import vf_number
from dranet.core.netconfig import NetworkConfig, VirtualFunction, parse_hardware_address
from dranet.linux import links, sriov
from dranet.linux.codec import mac_text
from dranet.linux.hardware import pci_function
from dranet.linux.links import Link
from dranet.linux.sriov import VfSettings
from dranet.linux.sysfs import Sysfs
from dranet.node.features.base import AttachError, Feature, NodeContext, Problems, RecoveryContext, Work
from dranet.node.features.host_tables import HostTables
from dranet.node.inventory.snapshot import NodeDevice
from dranet.node.namespaces import Host
from dranet.node.records.plan import AttachMode, DevicePlan, Record


class VfRecord(Record, frozen=True):
    """Which virtual function it is, and its settings."""

    pf: str
    """PCI address of the physical function."""
    number: int
    was_up: bool = True
    """Whether the physical function was up before it had virtual functions."""
    found: VfSettings | None = None
    """None before `plan`: then nothing was set."""
    wanted: VfSettings | None = None


class VfFeature(Feature[VfRecord]):
    """Sets what the physical function decides. Runs after the interface's own settings, because it locks the MAC."""

    tag, order, record_type = "vf", 13, VfRecord

    def plan(self, node: NodeContext, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        if device.mode is AttachMode.ADMIN:
            return device
        if seen.vf is None or seen.pf is None:
            if config.vf is not UNSET:
                raise InvalidInput([Problem("vf", "this device is not a virtual function that the driver created")])
            return device
        pf = str(seen.pf)
        found = self._found(node.host, pf, seen.vf)
        was_up = all(
            known.was_up for other in node.tables.others if (known := self.record_of(other)) and known.pf == pf
        )
        wanted = wanted_settings(found, config, moved=device.mode is AttachMode.MOVED)
        return self.with_record(device, VfRecord(pf=pf, number=seen.vf, was_up=was_up, found=found, wanted=wanted))

    def _found(self, host: Host, pf: str, number: int) -> VfSettings:
        link = physical_link(host, pf)
        found = sriov.read_settings(host.route, link.index).get(number) if link else None
        if found is None:
            raise DranetError(f"virtual function {number} of {pf} does not exist")
        return found

    def set_up(self, host: Host, device: DevicePlan, link: Link) -> Work:
        record = self.record_of(device)
        if record is None or record.found == record.wanted:
            return
        pf, now = _now(host, record)
        if pf is None or now is None or record.wanted is None:
            raise AttachError(f"{device.name}: virtual function {record.number} of {record.pf} does not exist")
        refused = [error for error in (yield sriov.change(pf.index, record.number, now, record.wanted)) if error]
        if refused:
            raise AttachError(f"{device.name}: {pf.name} rejected the settings under vf: {refused[0]}")

    def restore(self, host: Host, tables: HostTables, device: DevicePlan, link: Link | None) -> Problems:
        record = self.record_of(device)
        if record is None or record.found is None:
            return []
        pf, now = _now(host, record)
        if pf is None or now is None:
            return []  # its settings were removed with it
        answers = yield sriov.change(pf.index, record.number, now, record.found)
        return [str(error) for error in answers if error is not None]

    def recover(self, context: RecoveryContext, device: DevicePlan) -> DevicePlan:
        """The settings before the claim are lost: assume those of a new virtual function."""
        pf, number = context.published.attributes.get(attributes.SRIOV_PF), vf_number(device.name)
        if device.mode is AttachMode.ADMIN or pf is None or number is None:
            return device
        fresh = VfSettings()
        wanted = wanted_settings(fresh, context.config, moved=device.mode is AttachMode.MOVED)
        return self.with_record(device, VfRecord(pf=str(pf), number=number, found=fresh, wanted=wanted))


def physical_link(host: Host, pf: str) -> Link | None:
    """The link of a physical function on the host; None while it is in another namespace."""
    function = pci_function(Sysfs(host.sysfs_root), pf)
    return links.get_link(host.route, function.netdevs[0]) if function and function.netdevs else None


def _now(host: Host, record: VfRecord) -> tuple[Link | None, VfSettings | None]:
    link = physical_link(host, record.pf)
    return link, sriov.read_settings(host.route, link.index).get(record.number) if link else None


def wanted_settings(found: VfSettings, config: NetworkConfig, *, moved: bool) -> VfSettings:
    """The present settings with those of the claim."""
    requested = VirtualFunction() if config.vf is UNSET else config.vf
    settings: Mapping[str, object] = {
        "vlan": requested.vlan,
        "priority": requested.vlan_priority,
        "spoof_check": requested.spoof_check,
        "trust": requested.trust,
        "min_rate": requested.min_rate,
        "max_rate": requested.max_rate,
    }
    changes = {name: value for name, value in settings.items() if value is not UNSET}
    # A child link on top of it has its own MAC; the claim decides what the virtual function lets through.
    mac = parse_hardware_address(config.link.hardware_addr or "") if moved else None
    return msgspec.structs.replace(found, **changes, **({"mac": mac_text(mac)} if mac else {}))


FEATURE = VfFeature()
