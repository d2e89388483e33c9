"""NodeName: a pod with ``spec.nodeName``. A real scheduler never gets such a pod, because it is bound already."""

from __future__ import annotations

from dranet.scheduler.framework import Cycle, Filter, Status
from dranet.scheduler.nodes import EquivalenceClass

_STATUS = Status(("node(s) didn't match the requested node name",))


def pre_filter(cycle: Cycle) -> Filter | None:
    name = cycle.info.node_name
    if not name:
        return None

    def check(group: EquivalenceClass) -> Status | None:
        return None if group.sample.name == name else _STATUS

    return check
