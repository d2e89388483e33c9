"""NodePorts: ports of the node itself, each for one pod."""

from __future__ import annotations

from dranet.scheduling.cycle import Check, Cycle, Rejection
from dranet.scheduling.nodes import Alike

REJECTION = Rejection(("node(s) didn't have free ports for the requested pod ports",), preemptible=True)


def prepare(cycle: Cycle) -> Check | None:
    """Skipped for pods without host ports."""
    ports = cycle.traits.ports
    if not ports:
        return None

    def check(alike: Alike) -> Rejection | None:
        taken = alike.sample.ports
        return REJECTION if any(port.collides(other) for port in ports for other in taken) else None

    return check
