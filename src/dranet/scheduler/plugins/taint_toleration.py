"""TaintToleration: filters by NoSchedule and NoExecute taints, scores by PreferNoSchedule taints."""

from __future__ import annotations

from functools import partial

from dranet.scheduler.framework import Cycle, Filter, NodeScore, Status, normalize_score
from dranet.scheduler.nodes import EquivalenceClass
from dranet.scheduler.taints import blocks, is_tolerated

_STATUS = Status(("node(s) had untolerated taint(s)",))
_PREFER = "PreferNoSchedule"


def pre_filter(cycle: Cycle) -> Filter:
    tolerations = cycle.info.tolerations

    def check(group: EquivalenceClass) -> Status | None:
        return _STATUS if blocks(group.sample.node.taints, tolerations) else None

    return check


def _score(cycle: Cycle, group: EquivalenceClass) -> int:
    taints = [taint for taint in group.sample.node.taints if taint.effect == _PREFER]
    if not taints:
        return 0
    tolerations = [one for one in cycle.info.tolerations if (one.get("effect") or _PREFER) == _PREFER]
    return sum(not is_tolerated(taint, tolerations) for taint in taints)


SCORE = NodeScore(_score, partial(normalize_score, reverse=True))
