"""What cannot be asked of a network interface, said at prepare, where there is time and words can be heard."""

from __future__ import annotations

from msgspec import UNSET

from dranet.driver.parts.host_tables import HostTables
from dranet.inventory.snapshot import NodeDevice, Place
from dranet.kernel.links import Link
from dranet.model.errors import DranetError, InvalidInput, Problem
from dranet.model.netconfig import NetworkConfig


def check_asked(tables: HostTables, seen: NodeDevice, config: NetworkConfig) -> Link:
    """The link of a device whose wishes can be fulfilled; raises in words."""
    link = _link(tables, seen)
    _check_vf_mtu(tables, seen, config)
    return link


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
