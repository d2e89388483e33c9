"""NodePorts: host ports, each usable by one pod of a node."""

from __future__ import annotations

from dranet.scheduler.framework import Cycle, Filter, Status
from dranet.scheduler.nodes import EquivalenceClass

_STATUS = Status(("node(s) didn't have free ports for the requested pod ports",), resolvable=True)


def pre_filter(cycle: Cycle) -> Filter | None:
    ports = cycle.info.ports
    if not ports:
        return None

    def check(group: EquivalenceClass) -> Status | None:
        used = group.sample.used_ports
        return _STATUS if any(port.collides(other) for port in ports for other in used) else None

    return check
