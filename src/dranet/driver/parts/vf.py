"""A virtual function that the driver made from a physical one (`--sriov-vfs`), and what the latter decides over it.

The interface goes into the pod like any card's. What is set here stays with the physical function, out of the pod's
reach: the VLAN its packets are put into, its rate, whether it may use other MACs. A MAC that the claim asks for is made
fast here as well: the pod cannot change it unless it is trusted. All of it is put back when the card comes home, so the
next claim finds a virtual function as it was made. Making and removing are not steps of a card: see `moving.functions`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET

from dranet.driver.namespaces import Host
from dranet.driver.parts.base import AttachError, Node, Part, Problems, Witness, Work
from dranet.driver.parts.host_tables import HostTables
from dranet.driver.records.plan import DevicePlan, Record, Use
from dranet.inventory.snapshot import NodeDevice
from dranet.kernel import links, sriov
from dranet.kernel.codec import mac_text
from dranet.kernel.hardware import pci_function
from dranet.kernel.links import Link
from dranet.kernel.sriov import VfSettings
from dranet.kernel.sysfs import Sysfs
from dranet.model import attributes
from dranet.model.errors import DranetError, InvalidInput, Problem
from dranet.model.names import function_number
from dranet.model.netconfig import NetworkConfig, VirtualFunction, parse_hardware_address


class VfRecord(Record, frozen=True):
    """Which one it is, and what is decided over it."""

    pf: str
    """PCI address of the physical function."""
    number: int
    was_up: bool = True
    """Whether the physical function was up before it had virtual ones."""
    found: VfSettings | None = None
    """None before it is planned: then nothing was set."""
    wanted: VfSettings | None = None


class VfPart(Part[VfRecord]):
    """Sets what the physical function decides. After the interface's own settings, for a MAC is made fast by it."""

    tag, place, record = "vf", 13, VfRecord

    def plan(self, node: Node, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        if device.use is Use.ADMIN:
            return device
        if seen.vf is None or seen.pf is None:
            if config.vf is not UNSET:
                raise InvalidInput([Problem("vf", "this device is no virtual function that the driver made")])
            return device
        pf = str(seen.pf)
        found = self._found(node.host, pf, seen.vf)
        was_up = all(known.was_up for other in node.tables.others if (known := self.of(other)) and known.pf == pf)
        wanted = wanted_settings(found, config, moved=device.use is Use.MOVED)
        return self.keep(device, VfRecord(pf=pf, number=seen.vf, was_up=was_up, found=found, wanted=wanted))

    def _found(self, host: Host, pf: str, number: int) -> VfSettings:
        link = physical_link(host, pf)
        found = sriov.settings(host.route, link.index).get(number) if link else None
        if found is None:
            raise DranetError(f"virtual function {number} of {pf} is not there")
        return found

    def ready(self, host: Host, device: DevicePlan, card: Link) -> Work:
        record = self.of(device)
        if record is None or record.found == record.wanted:
            return
        link, now = _now(host, record)
        if link is None or now is None or record.wanted is None:
            raise AttachError(f"{device.name}: virtual function {record.number} of {record.pf} is not there")
        refused = [error for error in (yield sriov.change(link.index, record.number, now, record.wanted)) if error]
        if refused:
            raise AttachError(f"{device.name}: {link.name} does not take what is asked with vf: {refused[0]}")

    def restore(self, host: Host, tables: HostTables, device: DevicePlan, card: Link | None) -> Problems:
        record = self.of(device)
        if record is None or record.found is None:
            return []
        link, now = _now(host, record)
        if link is None or now is None:
            return []  # removed by somebody, and its settings with it
        answers = yield sriov.change(link.index, record.number, now, record.found)
        return [str(error) for error in answers if error is not None]

    def adopt(self, witness: Witness, device: DevicePlan) -> DevicePlan:
        """What was decided before the claim is not known any more: taken for what a function is made with."""
        pf, number = witness.published.attributes.get(attributes.SRIOV_PF), function_number(device.name)
        if device.use is Use.ADMIN or pf is None or number is None:
            return device
        fresh = VfSettings()
        wanted = wanted_settings(fresh, witness.config, moved=device.use is Use.MOVED)
        return self.keep(device, VfRecord(pf=str(pf), number=number, found=fresh, wanted=wanted))


def physical_link(host: Host, pf: str) -> Link | None:
    """The interface of a physical function on the node; None while it is elsewhere."""
    function = pci_function(Sysfs(host.sysfs_root), pf)
    return links.get_link(host.route, function.netdevs[0]) if function and function.netdevs else None


def _now(host: Host, record: VfRecord) -> tuple[Link | None, VfSettings | None]:
    link = physical_link(host, record.pf)
    return link, sriov.settings(host.route, link.index).get(record.number) if link else None


def wanted_settings(found: VfSettings, config: NetworkConfig, *, moved: bool) -> VfSettings:
    """What was found, with what the claim asks for."""
    asked = VirtualFunction() if config.vf is UNSET else config.vf
    said: Mapping[str, object] = {
        "vlan": asked.vlan,
        "priority": asked.vlan_priority,
        "spoof_check": asked.spoof_check,
        "trust": asked.trust,
        "min_rate": asked.min_rate,
        "max_rate": asked.max_rate,
    }
    changes = {name: value for name, value in said.items() if value is not UNSET}
    # Of a child on top of it the MAC is the child's own; what the card below must let through is the claim's to say.
    mac = parse_hardware_address(config.link.hardware_addr or "") if moved else None
    return msgspec.structs.replace(found, **changes, **({"mac": mac_text(mac)} if mac else {}))


PART = VfPart()
