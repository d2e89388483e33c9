"""DynamicResources: claims that are allocated must be within reach, and the others must be allocatable on the node.

An error in a claim or class ends the whole round, even where other nodes would fit.
"""

from __future__ import annotations

from dranet.allocation.outcome import AllocationError, NoFit
from dranet.scheduling.claims import class_names
from dranet.scheduling.cycle import Check, Cycle, Refused, Rejection, SchedulerError
from dranet.scheduling.nodes import Alike, NodeState

PLUGIN = "DynamicResources"
NOT_AVAILABLE = Rejection(("resourceclaim not available on the node",))


def prepare(cycle: Cycle) -> Check | None:
    """Skipped for pods without claims; a claim whose class does not exist stops here."""
    if not cycle.claims.wants_any(cycle.pod):
        return None
    for claim in cycle.claims.waiting(cycle.pod.claims):
        for request, name in class_names(claim):
            if name not in cycle.claims.allocator.classes:
                raise Refused(f"request {request}: device class {name} does not exist", PLUGIN)

    found: dict[object, Rejection | None] = {}
    # What is allocated already ties the pod to nodes by their names, and device plugins differ from node to node.
    by_devices = not cycle.claims.wants_extended(cycle.traits)
    by_devices &= len(cycle.claims.waiting(cycle.pod.claims)) == len(cycle.pod.claims)

    def check(alike: Alike) -> Rejection | None:
        node = alike.sample
        if not by_devices or not node.facts.devices:
            return ask(cycle, node)
        key = (node.facts.devices, node.in_use)
        if key not in found:
            found[key] = ask(cycle, node)
        return found[key]

    return check


def ask(cycle: Cycle, node: NodeState) -> Rejection | None:
    """About one node; raises SchedulerError."""
    claims = cycle.claims.of_pod(cycle.pod, node)
    outcome = cycle.claims.ask(node, cycle.claims.waiting(claims))
    if isinstance(outcome, AllocationError):
        if outcome.kind == "node":
            return Rejection((outcome.message,))
        raise SchedulerError(f'running "{PLUGIN}" filter plugin: {outcome.message}')
    if isinstance(outcome, NoFit):
        return Rejection((outcome.message,))
    return None if all(cycle.claims.available(claim, node) for claim in claims) else NOT_AVAILABLE
