"""The claim template that gives aligned devices on given machines, proved by planning it.

Every variant (`templates`) is planned on the machine; the first one wins whose worst pair is as near as any choice of
devices allows.

On GB200 and GB300 a job needs a ComputeDomain to use NVLink between nodes: memory is shared only inside one. NVIDIA's
driver creates a claim template for its channel, which every pod names next to its claim for GPUs and NICs. The node
label nvidia.com/gpu.clique, not a slice, tells which nodes share an NVLink domain.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from dranet.advise.manifests import Manifests, read_text
from dranet.advise.plan.hardware import RACK_WIDE, Hardware
from dranet.advise.plan.planning import Plan, plan
from dranet.advise.plan.quality import best_choice
from dranet.advise.suggest.templates import Template, claim_variants
from dranet.core.attributes import BANDWIDTH
from dranet.core.errors import InvalidInput
from dranet.machines.bandwidth import Estimate
from dranet.machines.distance import Distance
from dranet.machines.machine import Machine


class Suggestion(msgspec.Struct, frozen=True):
    """A manifest, what it does, and how it came out when planned."""

    manifest: str
    how: str
    plan: Plan
    per_node: int
    """How many such pods fit on one machine."""
    best_possible: Distance
    templates: tuple[Template, ...] = ()
    """What the manifest was written from."""

    @property
    def worst(self) -> Distance:
        """The worst pair of the planned pod."""
        return max((pod.quality.alignment.worst for pod in self.plan.pods), default=Distance.UNKNOWN)


def suggest(hardware: Hardware, gpus: int, nics: int, share: str = "") -> Suggestion:
    """The best claim for a number of GPUs and NICs in one pod."""
    if gpus < 0 or nics < 0 or gpus + nics == 0 or gpus + nics > 32:
        raise InvalidInput(f"{gpus} GPUs and {nics} NICs: a claim can request 1 to 32 devices")
    machine = first_large_enough(machine_kinds(hardware), gpus, nics)
    return best_on(single_machine(hardware, machine), machine, gpus, nics, share)


def best_on(hardware: Hardware, machine: Machine, gpus: int, nics: int, share: str = "") -> Suggestion:
    """The first way that is as good as the machine allows, else the best there is."""
    best = best_choice(machine.gpus, machine.nics, gpus, nics) if gpus and nics else None
    possible = best[2].alignment.worst if best else Distance.UNKNOWN
    made: list[Suggestion] = []
    for way in claim_variants(hardware, machine, gpus, nics, best, share=share):
        found = plan(suggested_manifests(way.manifest), hardware)
        if found.pods and not found.unschedulable:
            pods = pods_per_machine(hardware, way.manifest)
            made.append(Suggestion(way.manifest, way.how, found, pods, possible, templates=way.templates))
            if made[-1].worst <= possible:
                return made[-1]
    if not made and share:
        need = f"needs slices of a node that shares NICs (--shared-cards) with {share}"
        raise InvalidInput(f"no claim for a share of {share} fits on {machine.node}: it {need}")
    if not made:
        raise InvalidInput(f"no claim for {gpus} GPUs and {nics} NICs fits on {machine.node}")
    return min(made, key=lambda one: one.worst)


def machine_kinds(hardware: Hardware) -> list[Machine]:
    """One machine of each kind, with the NICs to suggest: those with RDMA, if there are any."""
    kinds: dict[Machine, Machine] = {}
    for machine in hardware.machines.values():
        nics = tuple(nic for nic in machine.nics if nic.rdma) or machine.nics
        kinds.setdefault(replace(machine, node="", nics=nics), replace(machine, nics=nics))
    return list(kinds.values())


def first_large_enough(kinds: list[Machine], gpus: int, nics: int) -> Machine:
    """The first kind that has so many."""
    fitting = [machine for machine in kinds if len(machine.gpus) >= gpus and len(machine.nics) >= nics]
    if fitting:
        return fitting[0]
    most_gpus = max((len(machine.gpus) for machine in kinds), default=0)
    most_nics = max((len(machine.nics) for machine in kinds), default=0)
    if gpus > most_gpus:
        raise InvalidInput(f"No machine has {gpus} GPUs (the largest has {most_gpus})")
    if nics > most_nics:
        raise InvalidInput(f"No machine has {nics} NICs (the largest has {most_nics})")
    raise InvalidInput(f"No machine has {gpus} GPUs and {nics} NICs; some have as many GPUs, others as many NICs")


def single_machine(hardware: Hardware, machine: Machine) -> Hardware:
    """This machine and its slices."""
    mine = tuple(raw for raw in hardware.slices if raw["spec"].get("nodeName") == machine.node)
    return Hardware(mine, {machine.node: machine}, shaped=hardware.shaped)


def suggested_manifests(manifest: str) -> Manifests:
    """A manifest as what is asked about."""
    return Manifests(read_text(manifest, "<suggested>")[0])


def pods_per_machine(hardware: Hardware, manifest: str) -> int:
    """Pods with this claim that the machine takes, one after the other; of several templates each in turn."""
    pods = [stateful_set(obj.name, 32) for obj in suggested_manifests(manifest).objects]
    return len(plan(suggested_manifests("---\n".join([manifest, *pods])), hardware).pods)


def stateful_set(template: str, replicas: int) -> str:
    """So many pods with a claim of this template each."""
    return (
        f"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: {template}}}\nspec:\n  replicas: {replicas}\n"
        f"  template:\n    spec:\n      resourceClaims: [{{name: d, resourceClaimTemplateName: {template}}}]\n"
    )


def suggestion_text(found: Suggestion) -> str:
    """The manifest, with what was proved about it as comments at the top."""
    lines = [f"# {found.how}.", *proof_lines(found.plan)]
    if found.worst > found.best_possible and found.best_possible is not Distance.UNKNOWN:
        lines.append(f"# The machine has devices at {found.best_possible}, but no claim can request them.")
    lines.append(f"# One machine takes {found.per_node} such pod{'s' * (found.per_node != 1)}.")
    lines += class_lines(found.manifest)
    return "\n".join(lines) + "\n" + found.manifest


def class_lines(manifest: str) -> Iterator[str]:
    """What the manifest takes for granted."""
    if BANDWIDTH in manifest:
        yield "# A share is an interface of its own: give the claim interface.addresses (docs/tasks/sharing.md)."
    if "deviceClassName: dranet" in manifest:
        yield '# The class dranet is: selectors: [{cel: {expression: device.driver == "dra.net"}}]'


def proof_lines(made: Plan) -> Iterator[str]:
    """What became of the claim on one machine; a claim without pairs has nothing to prove."""
    for one in made.pods:
        machine = made.machines[one.placement.node]
        pairs = ", ".join(f"{p.gpu.title}-{p.nic.title} {p.distance}" for p in one.quality.alignment.pairs)
        expected = one.quality.expected
        rate = f"; {expected.range_text} bus bandwidth" if isinstance(expected, Estimate) else ""
        if pairs:
            yield f"# Planned on {machine.shape or machine.node}: {pairs}{rate}."
    for refusal in made.unschedulable:
        names = ", ".join(machine.shape or machine.node for machine in made.machines.values())
        yield f"# On {names} it cannot be placed: {refusal.reason}"


def compute_domain(hardware: Hardware, gpus: int, nics: int, name: str = "") -> str:
    """A ComputeDomain with words about it, where some machine has such GPUs; else nothing."""
    if gpus == 0 or not any(product in name for name in _product_names(hardware) for product in RACK_WIDE):
        return ""
    name = name or (f"{gpus}gpu-{nics}nic" if nics else f"{gpus}gpu")
    return (
        "---\n"
        "# For jobs over several nodes of one NVLink domain (equal label nvidia.com/gpu.clique) on GB200 or GB300:\n"
        "# one ComputeDomain a job. Every pod names two claims: the one above, and the channel, whose template\n"
        "# NVIDIA's driver makes. It is not part of what was planned. numNodes: 0 lets the domain grow with the pods\n"
        "# of the job; a larger number holds all pods back until so many nodes have one.\n"
        "apiVersion: resource.nvidia.com/v1beta1\n"
        "kind: ComputeDomain\n"
        "metadata:\n"
        f"  name: {name}\n"
        "spec:\n"
        "  numNodes: 0\n"
        "  channel:\n"
        "    resourceClaimTemplate:\n"
        f"      name: {name}-channel\n"
    )


def _product_names(hardware: Hardware) -> set[str]:
    attributes = (unit.raw.get("attributes") or {} for unit in hardware.devices)
    return {str(values.get("productName", {}).get("string", "")) for values in attributes}
