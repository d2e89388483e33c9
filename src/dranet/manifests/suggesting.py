"""The claim template that gives aligned devices on given machines, and the proof that it does.

Several ways to keep GPUs and cards together are written down, from the plainest to the most particular, and each is
planned on the machines. The first whose worst pair is as near as any gets wins.

    whole    all GPUs and cards of a machine: nothing to align
    match    one constraint on an attribute that both drivers publish
    groups   several groups, each with its own constraint: half a machine below two PCIe roots
    pinned   no common attribute: selectors by address and NUMA node, one template a NUMA node
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dranet.manifests.better import best_choice
from dranet.manifests.hardware import Hardware
from dranet.manifests.planning import Plan, plan
from dranet.manifests.reading import read_text
from dranet.manifests.views import world_of
from dranet.model.attributes import PCI_BUS_ID, PCIE_ROOT, STANDARD_NUMA_NODE
from dranet.model.errors import InvalidInput
from dranet.model.names import DRIVER_NAME
from dranet.topology.distance import Distance
from dranet.topology.machine import Machine, Part

COMMON = (PCIE_ROOT, STANDARD_NUMA_NODE)
MOST_GROUPS = 16


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A manifest, what it does, and how it came out when planned."""

    manifest: str
    how: str
    plan: Plan
    per_node: int
    """How many such pods fit on one machine."""
    best_possible: Distance

    @property
    def worst(self) -> Distance:
        """The worst pair of the planned pod."""
        return max((pod.quality.alignment.worst for pod in self.plan.pods), default=Distance.UNKNOWN)


def suggest(hardware: Hardware, gpus: int, nics: int, *, rdma: bool = True) -> Suggestion:
    """The best claim for so many GPUs and cards in one pod."""
    if gpus < 0 or nics < 0 or gpus + nics == 0 or gpus + nics > 32:
        raise InvalidInput(f"{gpus} GPUs and {nics} cards: a claim takes 1 to 32 devices in all")
    machine = _largest(hardware, gpus, nics)
    best = best_choice(machine.gpus, machine.nics, gpus, nics) if gpus and nics else None
    possible = best[2].alignment.worst if best else Distance.UNKNOWN
    made: list[Suggestion] = []
    for how, manifest in _candidates(hardware, machine, gpus, nics, rdma):
        found = plan(world_of(read_text(manifest, "<suggested>")[0]), hardware)
        if found.pods and not found.unschedulable:
            made.append(Suggestion(manifest, how, found, _fill(hardware, machine, manifest), possible))
            if not (gpus and nics) or made[-1].worst <= possible:
                return made[-1]
    if not made:
        raise InvalidInput(f"no claim for {gpus} GPUs and {nics} cards fits on {machine.node}")
    return min(made, key=lambda one: one.worst)


def _largest(hardware: Hardware, gpus: int, nics: int) -> Machine:
    fitting = [m for m in hardware.machines.values() if len(m.gpus) >= gpus and len(m.nics) >= nics]
    if fitting:
        return fitting[0]
    sizes = sorted({(len(m.gpus), len(m.nics)) for m in hardware.machines.values()})
    shown = ", ".join(f"{g} GPUs and {n} cards" for g, n in sizes) or "nothing"
    raise InvalidInput(f"{gpus} GPUs and {nics} cards in one pod: no machine has that many; they have {shown}")


def _candidates(hardware: Hardware, machine: Machine, gpus: int, nics: int, rdma: bool) -> Iterator[tuple[str, str]]:
    name = "-".join(part for part in (f"{gpus}gpu" if gpus else "", f"{nics}nic" if nics else "") if part)
    select = ('device.attributes["dra.net"].rdma == true',) if rdma and any(n.rdma for n in machine.nics) else ()
    plain = [r for r in (_request("gpu", machine, gpus), _request("nic", machine, nics, select)) if r["count"]]
    if not (gpus and nics):
        yield "one kind of device: nothing to align", _template(name, plain, [])
        return
    if gpus == len(machine.gpus) and nics == len(machine.nics):
        yield "all GPUs and cards of the machine: nothing to align", _template(name, plain, [])
    common = [attribute for attribute in COMMON if _both_publish(hardware, machine, attribute)]
    for groups in range(1, MOST_GROUPS + 1):
        if gpus % groups == 0 and nics % groups == 0:
            for attribute in common:
                yield _grouped(name, machine, gpus // groups, nics // groups, groups, attribute, select)
    yield from _pinned(name, machine, gpus, nics, select)
    yield "nothing aligns GPUs and cards on this machine", _template(name, plain, [])


def _both_publish(hardware: Hardware, machine: Machine, attribute: str) -> bool:
    drivers = {part.driver for part in (*machine.gpus, *machine.nics)}
    return all(attribute in hardware.published.get(driver, ()) for driver in drivers)


def _request(name: str, machine: Machine, count: int, selectors: tuple[str, ...] = ()) -> dict[str, Any]:
    parts = machine.nics if name.startswith("nic") else machine.gpus
    driver = parts[0].driver if parts else DRIVER_NAME
    return {"name": name, "class": "dranet" if driver == DRIVER_NAME else driver, "count": count, "cel": selectors}


def _grouped(
    name: str, machine: Machine, gpus: int, nics: int, groups: int, attribute: str, select: tuple[str, ...]
) -> tuple[str, str]:
    short = attribute.rpartition("/")[2]
    if groups == 1:
        requests = [_request("gpu", machine, gpus), _request("nic", machine, nics, select)]
        return f"one {short} for all", _template(name, requests, [(["gpu", "nic"], attribute)])
    requests, constraints = [], []
    for i in range(groups):
        requests += [_request(f"gpu-{i}", machine, gpus), _request(f"nic-{i}", machine, nics, select)]
        constraints.append(([f"gpu-{i}", f"nic-{i}"], attribute))
    return f"{groups} groups, each with one {short}", _template(name, requests, constraints)


def _pinned(name: str, machine: Machine, gpus: int, nics: int, select: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """One template for each NUMA node that has enough of both."""
    made = []
    for numa in sorted({part.place.numa for part in machine.gpus if part.place.numa is not None}):
        near = [part for part in machine.gpus if part.place.numa == numa and part.address]
        cards = [part for part in machine.nics if part.place.numa == numa]
        if len(near) >= gpus and len(cards) >= nics:
            requests = [
                _request("gpu", machine, gpus, (_in_addresses(near),)),
                _request("nic", machine, nics, (*select, f'device.attributes["dra.net"].numaNode == {numa}')),
            ]
            made.append(_template(f"{name}-numa{numa}", requests, []))
    if made:
        yield "chosen by address and NUMA node, one template for each", "---\n".join(made)


def _in_addresses(parts: list[Part]) -> str:
    domain, _, attribute = PCI_BUS_ID.partition("/")
    addresses = ", ".join(f'"{part.address}"' for part in parts)
    return f'device.attributes["{domain}"].{attribute} in [{addresses}]'


def _template(name: str, requests: list[dict[str, Any]], constraints: list[tuple[list[str], str]]) -> str:
    lines = [
        "apiVersion: resource.k8s.io/v1",
        "kind: ResourceClaimTemplate",
        "metadata:",
        f"  name: {name}",
        "spec:",
        "  spec:",
        "    devices:",
        "      requests:",
    ]
    for request in requests:
        lines += [f"      - name: {request['name']}", "        exactly:"]
        lines.append(f"          deviceClassName: {request['class']}")
        if request["count"] > 1:
            lines.append(f"          count: {request['count']}")
        if request["cel"]:
            lines.append("          selectors:")
        for text in request["cel"]:
            lines += ["          - cel:", f"              expression: '{text}'"]
    if constraints:
        lines.append("      constraints:")
    for names, attribute in constraints:
        lines += [f"      - requests: [{', '.join(names)}]", f"        matchAttribute: {attribute}"]
    return "\n".join(lines) + "\n"


def _fill(hardware: Hardware, machine: Machine, manifest: str) -> int:
    """Pods with this claim that one machine takes, one after the other; of several templates each in turn."""
    only = Hardware(
        tuple(s for s in hardware.slices if s["spec"].get("nodeName") == machine.node), {machine.node: machine}
    )
    objects, _ = read_text(manifest, "<suggested>")
    pods = [_pod(obj.name, 32) for obj in objects]
    world = world_of([*objects, *(one for text in pods for one in read_text(text, "<pods>")[0])])
    return len(plan(world, only).pods)


def _pod(template: str, replicas: int) -> str:
    return (
        f"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: {template}}}\nspec:\n  replicas: {replicas}\n"
        f"  template:\n    spec:\n      resourceClaims: [{{name: d, resourceClaimTemplateName: {template}}}]\n"
    )


def to_text(found: Suggestion) -> str:
    """The manifest, with what was proved about it as comments at the top."""
    lines = [f"# {found.how}."]
    for one in found.plan.pods:
        machine = found.plan.machines[one.placement.node]
        pairs = ", ".join(f"{p.gpu.title}-{p.nic.title} {p.distance}" for p in one.quality.alignment.pairs)
        rate = f"; about {one.quality.busbw:.0f} GB/s bus bandwidth" if one.quality.busbw else ""
        if pairs:
            lines.append(f"# Planned on {machine.shape or machine.node}: {pairs}{rate}.")
    if found.worst > found.best_possible and found.best_possible is not Distance.UNKNOWN:
        lines.append(f"# The machine could do {found.best_possible}, but no claim can ask for it.")
    lines.append(f"# One machine takes {found.per_node} such pods.")
    if "deviceClassName: dranet" in found.manifest:
        lines.append('# The class dranet is: selectors: [{cel: {expression: device.driver == "dra.net"}}]')
    return "\n".join(lines) + "\n" + found.manifest
