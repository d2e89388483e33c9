"""NodeResourcesFit: CPU, memory, storage, pods, huge pages and extended resources. All that is short is counted.

An extended resource that a DeviceClass stands for, and that no device plugin of the node offers, is the business of
DynamicResources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dranet.scheduling.amounts import CPU, MEMORY, PODS, STORAGE
from dranet.scheduling.cycle import Check, Cycle, Rejection
from dranet.scheduling.nodes import Alike, NodeState

_FIRST = (CPU, MEMORY, STORAGE)


def prepare(cycle: Cycle) -> Check:
    """Asked of every pod, since every pod takes a place."""
    wanted = {name: amount for name, amount in cycle.traits.requests.needed.items() if amount > 0}
    names = [name for name in (*_FIRST, *sorted(wanted.keys() - set(_FIRST))) if name in wanted]
    backed = cycle.claims.extended_classes

    def short(node: NodeState) -> Iterator[tuple[str, bool]]:
        """What is missing, and whether the whole node is too small for it."""
        allocatable, known = node.facts.allocatable, _known(cycle, node)
        if known(PODS) and node.size + 1 > allocatable.get(PODS, 0):
            yield "Too many pods", False
        for name in names:
            if (name in backed and not allocatable.get(name)) or not known(name):
                continue
            if wanted[name] > node.free(name):
                yield f"Insufficient {name}", wanted[name] > allocatable.get(name, 0)

    def check(alike: Alike) -> Rejection | None:
        found = list(short(alike.sample))
        return Rejection(tuple(text for text, _ in found), not any(never for _, never in found)) if found else None

    return check


def _known(cycle: Cycle, node: NodeState) -> Callable[[str], bool]:
    def known(name: str) -> bool:
        facts = node.facts
        if facts.open and name not in facts.allocatable and not name.startswith(facts.complete):
            cycle.notes.add(f"{name}: how much there is, is not known of all nodes")
            return False
        return True

    return known
