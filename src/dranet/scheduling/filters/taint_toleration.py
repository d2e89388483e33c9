"""TaintToleration: taints that keep pods away, and pods that do not mind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dranet.scheduling.cycle import Check, Cycle, Rejection
from dranet.scheduling.nodes import Alike, NodeFacts, Taint

REJECTION = Rejection(("node(s) had untolerated taint(s)",))


def prepare(cycle: Cycle) -> Check:
    """Asked of every pod."""
    tolerations = cycle.traits.tolerations

    def check(alike: Alike) -> Rejection | None:
        return None if goes_there(alike.sample.facts, tolerations) else REJECTION

    return check


def goes_there(facts: NodeFacts, tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Whether no taint of the node keeps such a pod away."""
    return all(tolerated(taint, tolerations) for taint in facts.taints if taint.effect in ("NoSchedule", "NoExecute"))


def tolerated(taint: Taint, tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of the tolerations is about the taint."""
    return any(_tolerates(one, taint) for one in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    if (toleration.get("effect") or taint.effect) != taint.effect:
        return False
    if (toleration.get("key") or taint.key) != taint.key:
        return False
    # Gt and Lt are behind a feature gate that is off.
    operator = toleration.get("operator") or "Equal"
    return operator == "Exists" or (operator == "Equal" and str(toleration.get("value") or "") == taint.value)
