"""ImageLocality: nodes that have the pod's images, the more so the more nodes have them."""

from __future__ import annotations

from dranet.scheduling.cycle import Cycle, OwnScore
from dranet.scheduling.nodes import Alike
from dranet.scheduling.scores.normal import MOST

_MEGA = 1024 * 1024
_LEAST, _MOST_EACH = 23 * _MEGA, 1000 * _MEGA


def _points(cycle: Cycle, alike: Alike) -> int:
    """By the sizes of images that are there already."""
    there = alike.sample.facts.images
    if not there:
        return 0
    everywhere, found = len(cycle.cluster.nodes), cycle.cluster.images
    total = sum(int(there[name] * (found[name] / everywhere)) for name in cycle.traits.images if name in there)
    most = _MOST_EACH * cycle.traits.containers
    return MOST * (min(max(total, _LEAST), most) - _LEAST) // (most - _LEAST)


SCORE = OwnScore(_points)
