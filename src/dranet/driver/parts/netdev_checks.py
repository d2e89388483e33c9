"""What cannot be asked of a network interface, said at prepare, where there is time and words can be heard."""

from __future__ import annotations

from msgspec import UNSET

from dranet.driver.parts.base import Node
from dranet.driver.parts.host_tables import HostTables
from dranet.inventory.infrastructure import AGGREGATES, immovable
from dranet.inventory.snapshot import NodeDevice, Place
from dranet.kernel.links import Link
from dranet.model.errors import DranetError, InvalidInput, Problem
from dranet.model.netconfig import NetworkConfig


def check_asked(tables: HostTables, seen: NodeDevice, config: NetworkConfig) -> Link:
    """The link of a device whose wishes can be fulfilled; raises in words."""
    link = _link(tables, seen)
    _check_vf_mtu(tables, seen, config)
    return link


def check_may_leave(node: Node, seen: NodeDevice, link: Link) -> None:
    """Refuse before anything is set down what the node has come to need since it was last looked at.

    A card that the kernel will not move would be taken down for nothing; what stands on it would go down with it.
    """
    if why := immovable(link):
        instead = "; ask for a child of it: interface.type IPVLAN or Macvlan" if link.kind in AGGREGATES else ""
        raise DranetError(f"its interface {link.name} stays: {why}{instead}")
    if seen.insisted:
        return
    master = node.tables.link_at(link.master) if link.master else None
    if master is not None and master.kind != "vrf":
        raise DranetError(f"its interface {link.name} stays: it is part of {master.name} now")
    beside = node.sysfs.entries("class/net", link.name)
    above = {name.removeprefix("upper_") for name in beside if name.startswith("upper_")}
    if above := above - {master.name if master else ""}:
        raise DranetError(f"its interface {link.name} stays: {', '.join(sorted(above))} use it now")
    if seen.pci and (node.sysfs.read_number("bus/pci/devices", str(seen.pci), "sriov_numvfs") or 0) > 0:
        raise DranetError(f"its interface {link.name} stays: the card has virtual functions now (sriov_numvfs)")


def _link(tables: HostTables, seen: NodeDevice) -> Link:
    if seen.netdev.place is Place.ELSEWHERE:
        raise DranetError(f"its interface {seen.netdev.name} is in another network namespace; is a pod still using it?")
    link = tables.link(seen.netdev.name, seen.netdev.index)
    if link is None:
        raise DranetError(f"its interface {seen.netdev.name} has gone since the node was last looked at")
    return link


def _check_vf_mtu(tables: HostTables, seen: NodeDevice, config: NetworkConfig) -> None:
    mtu = config.link.mtu
    if mtu is UNSET or not seen.pf_interface:
        return
    pf = tables.link(seen.pf_interface)
    if pf is not None and mtu > pf.mtu:
        message = f"{mtu} is more than the {pf.mtu} of its physical function {pf.name}; raise that one first"
        raise InvalidInput([Problem("interface.mtu", message)])
