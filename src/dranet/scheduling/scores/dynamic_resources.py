"""DynamicResources: nodes where earlier alternatives of firstAvailable fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dranet.allocation.outcome import Allocation
from dranet.model.untyped import at, mappings
from dranet.scheduling.claims import key_of, results_of
from dranet.scheduling.cycle import Cycle
from dranet.scheduling.nodes import Alike
from dranet.scheduling.scores.normal import normal

_ALTERNATIVES = 8


def score(cycle: Cycle, nodes: list[Alike]) -> list[int] | None:
    """Skipped where it cannot tell nodes apart."""
    if not any(mappings(r.get("firstAvailable")) for claim in cycle.pod.claims for r in _requests(claim)):
        return None
    return normal([_points(cycle, alike) for alike in nodes])


def _points(cycle: Cycle, alike: Alike) -> int:
    claims = cycle.claims.of_pod(cycle.pod, alike.sample)
    waiting = cycle.claims.waiting(claims)
    outcome = cycle.claims.ask(alike.sample, waiting)
    if not waiting or not isinstance(outcome, Allocation):
        return 0
    found = dict(zip(map(key_of, waiting), outcome.results, strict=True))
    return sum(_of_claim(claim, found.get(key_of(claim)) or cycle.claims.allocated[key_of(claim)]) for claim in claims)


def _of_claim(claim: Mapping[str, Any], allocation: Mapping[str, Any]) -> int:
    chosen = {result.get("request") for result in results_of(allocation)}
    names = [
        (i, f"{request.get('name')}/{one.get('name')}")
        for request in _requests(claim)
        for i, one in enumerate(mappings(request.get("firstAvailable")))
    ]
    return sum(_ALTERNATIVES - i for i, name in names if name in chosen)


def _requests(claim: Mapping[str, Any]) -> list[dict[str, Any]]:
    return mappings(at(claim, "spec", "devices", "requests"))
