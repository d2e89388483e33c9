"""NodeAffinity: weights of the preferred terms that a node meets."""

from __future__ import annotations

from dranet.scheduling.cycle import Cycle
from dranet.scheduling.filters.node_affinity import matches
from dranet.scheduling.nodes import Alike
from dranet.scheduling.scores.normal import normal


def score(cycle: Cycle, nodes: list[Alike]) -> list[int] | None:
    """Skipped for pods that prefer nothing."""
    preferred = [(weight, {"nodeSelectorTerms": [term]}) for weight, term in cycle.traits.preferred_nodes]
    if not preferred:
        return None
    return normal([sum(w for w, term in preferred if matches(term, alike.sample.facts)) for alike in nodes])
