"""NodeName: a pod that names its node. Such a pod never comes to a real scheduler, which sees it as bound."""

from __future__ import annotations

from dranet.scheduling.cycle import Check, Cycle, Rejection
from dranet.scheduling.nodes import Alike

REJECTION = Rejection(("node(s) didn't match the requested node name",))


def prepare(cycle: Cycle) -> Check | None:
    """By the name alone."""
    wanted = cycle.traits.node_name
    if not wanted:
        return None

    def check(alike: Alike) -> Rejection | None:
        return None if alike.sample.name == wanted else REJECTION

    return check
