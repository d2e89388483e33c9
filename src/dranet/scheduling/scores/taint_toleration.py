"""TaintToleration: nodes with fewer taints that ask pods to stay away, of those the pod does not tolerate."""

from __future__ import annotations

from dranet.scheduling.cycle import Cycle
from dranet.scheduling.filters.taint_toleration import tolerated
from dranet.scheduling.nodes import Alike
from dranet.scheduling.scores.normal import normal

_SOFT = "PreferNoSchedule"


def score(cycle: Cycle, nodes: list[Alike]) -> list[int]:
    """Asked of every pod."""
    meant = [one for one in cycle.traits.tolerations if (one.get("effect") or _SOFT) == _SOFT]
    soft = [[taint for taint in alike.sample.facts.taints if taint.effect == _SOFT] for alike in nodes]
    return normal([sum(not tolerated(taint, meant) for taint in taints) for taints in soft], fewer_is_better=True)
