"""TaintToleration: nodes with fewer taints that ask pods to stay away, of those the pod does not tolerate."""

from __future__ import annotations

from functools import partial

from dranet.scheduling.cycle import Cycle, OwnScore
from dranet.scheduling.filters.taint_toleration import tolerated
from dranet.scheduling.nodes import Alike
from dranet.scheduling.scores.normal import normal

_SOFT = "PreferNoSchedule"


def _points(cycle: Cycle, alike: Alike) -> int:
    soft = [taint for taint in alike.sample.facts.taints if taint.effect == _SOFT]
    if not soft:
        return 0
    meant = [one for one in cycle.traits.tolerations if (one.get("effect") or _SOFT) == _SOFT]
    return sum(not tolerated(taint, meant) for taint in soft)


SCORE = OwnScore(_points, partial(normal, fewer_is_better=True))
