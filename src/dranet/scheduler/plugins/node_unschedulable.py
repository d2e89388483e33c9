"""NodeUnschedulable: a cordoned node accepts only pods that tolerate its taint."""

from __future__ import annotations

from dranet.scheduler.framework import Cycle, Filter, Status
from dranet.scheduler.nodes import EquivalenceClass
from dranet.scheduler.taints import Taint, is_tolerated

_STATUS = Status(("node(s) were unschedulable",))
_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


def pre_filter(cycle: Cycle) -> Filter | None:
    return None if is_tolerated(_TAINT, cycle.info.tolerations) else _check


def _check(group: EquivalenceClass) -> Status | None:
    return _STATUS if group.sample.node.unschedulable else None
