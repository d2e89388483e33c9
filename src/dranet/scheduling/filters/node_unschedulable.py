"""NodeUnschedulable: a cordoned node takes no pod but those that tolerate the taint for it."""

from __future__ import annotations

from dranet.scheduling.cycle import Check, Cycle, Rejection
from dranet.scheduling.filters.taint_toleration import tolerated
from dranet.scheduling.nodes import Alike, Taint

REJECTION = Rejection(("node(s) were unschedulable",))
_CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


def prepare(cycle: Cycle) -> Check | None:
    """Nothing to ask of a pod that goes there anyway."""
    return None if tolerated(_CORDONED, cycle.traits.tolerations) else _check


def _check(alike: Alike) -> Rejection | None:
    return REJECTION if alike.sample.facts.cordoned else None
