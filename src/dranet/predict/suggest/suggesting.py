"""The claim template that gives aligned devices on given machines, and the proof that it does.

Every way to write it (`claim_ways`) is planned on the machine; the first whose worst pair is as near as any choice of
devices allows wins. Machines of other kinds, where there are any, are then tried too, and what came out is said.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from dranet.manifests.claim_views import World, world_of
from dranet.manifests.reading import read_text
from dranet.model.attributes import BANDWIDTH
from dranet.model.errors import InvalidInput
from dranet.predict.hardware import Hardware
from dranet.predict.nearer_devices import best_choice
from dranet.predict.planning import Plan, plan
from dranet.predict.suggest.claim_forms import Template, ways
from dranet.topology.distance import Distance
from dranet.topology.machine import Machine


class Suggestion(msgspec.Struct, frozen=True):
    """A manifest, what it does, and how it came out when planned."""

    manifest: str
    how: str
    plan: Plan
    per_node: int
    """How many such pods fit on one machine."""
    best_possible: Distance
    elsewhere: tuple[Plan, ...] = ()
    """The same on each other kind of machine."""
    templates: tuple[Template, ...] = ()
    """What the manifest was written from."""

    @property
    def worst(self) -> Distance:
        """The worst pair of the planned pod."""
        return max((pod.quality.alignment.worst for pod in self.plan.pods), default=Distance.UNKNOWN)


def suggest(hardware: Hardware, gpus: int, nics: int, share: str = "") -> Suggestion:
    """The best claim for so many GPUs and cards in one pod."""
    if gpus < 0 or nics < 0 or gpus + nics == 0 or gpus + nics > 32:
        raise InvalidInput(f"{gpus} GPUs and {nics} cards: a claim takes 1 to 32 devices in all")
    kinds = machine_kinds(hardware)
    machine = large_enough(kinds, gpus, nics)
    others = [kind for kind in kinds if kind is not machine]
    found = best_on(only(hardware, machine), machine, gpus, nics, share)
    tried = tuple(plan(suggested_world(found.manifest), only(hardware, other)) for other in others)
    return replace(found, elsewhere=tried)


def best_on(hardware: Hardware, machine: Machine, gpus: int, nics: int, share: str = "") -> Suggestion:
    """The first way that is as good as the machine allows, else the best there is."""
    best = best_choice(machine.gpus, machine.nics, gpus, nics) if gpus and nics else None
    possible = best[2].alignment.worst if best else Distance.UNKNOWN
    made: list[Suggestion] = []
    for way in ways(hardware, machine, gpus, nics, best, share=share):
        found = plan(suggested_world(way.manifest), hardware)
        if found.pods and not found.unschedulable:
            pods = fill(hardware, way.manifest)
            made.append(Suggestion(way.manifest, way.how, found, pods, possible, templates=way.templates))
            if made[-1].worst <= possible:
                return made[-1]
    if not made and share:
        need = f"needs slices of a node whose cards are shared (--shared-cards) and have {share}"
        raise InvalidInput(f"no claim for a share of {share} fits on {machine.node}: it {need}")
    if not made:
        raise InvalidInput(f"no claim for {gpus} GPUs and {nics} cards fits on {machine.node}")
    return min(made, key=lambda one: one.worst)


def machine_kinds(hardware: Hardware) -> list[Machine]:
    """One machine of each kind, with the cards a suggestion is about: those with RDMA, where there are any."""
    kinds: dict[Machine, Machine] = {}
    for machine in hardware.machines.values():
        cards = tuple(nic for nic in machine.nics if nic.rdma) or machine.nics
        kinds.setdefault(replace(machine, node="", nics=cards), replace(machine, nics=cards))
    return list(kinds.values())


def large_enough(kinds: list[Machine], gpus: int, nics: int) -> Machine:
    """The first kind that has so many."""
    fitting = [machine for machine in kinds if len(machine.gpus) >= gpus and len(machine.nics) >= nics]
    if fitting:
        return fitting[0]
    sizes = sorted({(len(machine.gpus), len(machine.nics)) for machine in kinds})
    shown = ", ".join(f"{g} GPUs and {n} cards" for g, n in sizes) or "nothing"
    raise InvalidInput(f"{gpus} GPUs and {nics} cards in one pod: no machine has that many; they have {shown}")


def only(hardware: Hardware, machine: Machine) -> Hardware:
    """This machine and its slices."""
    mine = tuple(raw for raw in hardware.slices if raw["spec"].get("nodeName") == machine.node)
    return Hardware(mine, {machine.node: machine})


def suggested_world(manifest: str) -> World:
    """A manifest as what is asked about."""
    return world_of(read_text(manifest, "<suggested>")[0])


def fill(hardware: Hardware, manifest: str) -> int:
    """Pods with this claim that the machine takes, one after the other; of several templates each in turn."""
    pods = [stateful_set(obj.name, 32) for obj in suggested_world(manifest).objects]
    return len(plan(suggested_world("---\n".join([manifest, *pods])), hardware).pods)


def stateful_set(template: str, replicas: int) -> str:
    """So many pods with a claim of this template each."""
    return (
        f"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: {template}}}\nspec:\n  replicas: {replicas}\n"
        f"  template:\n    spec:\n      resourceClaims: [{{name: d, resourceClaimTemplateName: {template}}}]\n"
    )


def to_text(found: Suggestion) -> str:
    """The manifest, with what was proved about it as comments at the top."""
    lines = [f"# {found.how}.", *proof(found.plan)]
    if found.worst > found.best_possible and found.best_possible is not Distance.UNKNOWN:
        lines.append(f"# The machine could do {found.best_possible}, but no claim can ask for it.")
    lines.append(f"# One machine takes {found.per_node} such pod{'s' * (found.per_node != 1)}.")
    for other in found.elsewhere:
        lines += proof(other)
    lines += class_lines(found.manifest)
    return "\n".join(lines) + "\n" + found.manifest


def class_lines(manifest: str) -> Iterator[str]:
    """What the manifest takes for granted."""
    if BANDWIDTH in manifest:
        yield "# A share is an interface of its own: give the claim interface.addresses (docs/sharing.md)."
    if "deviceClassName: dranet" in manifest:
        yield '# The class dranet is: selectors: [{cel: {expression: device.driver == "dra.net"}}]'


def proof(made: Plan) -> Iterator[str]:
    """What became of the claim on one machine; a claim without pairs has nothing to prove."""
    for one in made.pods:
        machine = made.machines[one.placement.node]
        pairs = ", ".join(f"{p.gpu.title}-{p.nic.title} {p.distance}" for p in one.quality.alignment.pairs)
        rate = f"; about {one.quality.busbw:.0f} GB/s bus bandwidth" if one.quality.busbw else ""
        if pairs:
            yield f"# Planned on {machine.shape or machine.node}: {pairs}{rate}."
    for refusal in made.unschedulable:
        names = ", ".join(machine.shape or machine.node for machine in made.machines.values())
        yield f"# On {names} it cannot be placed: {refusal.reason}"
