"""ImageLocality: nodes that have the pod's images, the more so the more nodes have them."""

from __future__ import annotations

from dranet.scheduling.cycle import Cycle
from dranet.scheduling.nodes import Alike
from dranet.scheduling.scores.normal import MOST

_MEGA = 1024 * 1024
_LEAST, _MOST_EACH = 23 * _MEGA, 1000 * _MEGA


def score(cycle: Cycle, nodes: list[Alike]) -> list[int]:
    """By the sizes of images that are there already."""
    most = _MOST_EACH * cycle.traits.containers
    everywhere = len(cycle.cluster.nodes)
    spread = {name: cycle.cluster.images.get(name, 0) / everywhere for name in cycle.traits.images}
    sums = [
        sum(int(alike.sample.facts.images[name] * spread[name]) for name in names if name in alike.sample.facts.images)
        for names, alike in ((cycle.traits.images, alike) for alike in nodes)
    ]
    return [MOST * (min(max(one, _LEAST), most) - _LEAST) // (most - _LEAST) for one in sums]
