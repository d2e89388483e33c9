"""NodeAffinity: weights of the preferred terms that a node meets."""

from __future__ import annotations

from dranet.scheduling.cycle import Cycle, OwnScore
from dranet.scheduling.filters.node_affinity import matches
from dranet.scheduling.nodes import Alike
from dranet.scheduling.scores.normal import normal


def _points(cycle: Cycle, alike: Alike) -> int:
    facts = alike.sample.facts
    preferred = cycle.traits.preferred_nodes
    return sum(weight for weight, term in preferred if matches({"nodeSelectorTerms": [term]}, facts))


SCORE = OwnScore(_points, normal, lambda traits: bool(traits.preferred_nodes))
