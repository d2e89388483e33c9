"""Claims that keep all pods of a job on the same rails: one template for each set of rails free on enough nodes.

All pods of a job use one of the templates. Devices of other claims are not free, so the answer is for the cluster as it
is. Sets of rails are tried from the first rail on; a set whose NICs and GPUs are as near as the machines allow wins,
and each is proved by planning the whole job.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from dranet.advise.manifests import Manifests, known_classes, read_text
from dranet.advise.plan.cluster import allocated_devices
from dranet.advise.plan.hardware import Hardware
from dranet.advise.plan.planning import Plan, plan
from dranet.advise.plan.quality import best_choice
from dranet.advise.plan.rails import job_rails, rails_text
from dranet.advise.suggest.suggestion import proof_lines, single_machine, stateful_set
from dranet.advise.suggest.templates import claim_variants
from dranet.core.attributes import RAIL
from dranet.core.errors import InvalidInput
from dranet.machines.distance import Distance
from dranet.machines.machine import Machine, natural_sort_key

_MAX_RAIL_SETS = 5_000
"""Limit of rail sets to try; eight rails have 255."""

Rails = tuple[str, ...]


class RailTemplate(msgspec.Struct, frozen=True):
    """A template for one set of rails, and the job planned with it."""

    rails: Rails
    how: str
    manifest: str
    plan: Plan

    @property
    def worst(self) -> Distance:
        """The worst pair of all pods; PIX where there are no GPUs to be far from."""
        pairs = [pair.distance for pod in self.plan.pods for pair in pod.quality.alignment.pairs]
        return max(pairs, default=Distance.PIX)


def suggest_same_rails(
    manifests: Manifests, hardware: Hardware, gpus: int, nics: int, pods: int = 2
) -> list[RailTemplate]:
    """Templates for jobs of so many pods, each with other rails; at least one."""
    if nics < 1 or gpus < 0 or pods < 2:
        raise InvalidInput(f"{gpus} GPUs and {nics} NICs for {pods} pods: rails need at least 1 NIC and 2 pods")
    free = _free_machines(manifests, hardware)
    if not any(nic.rail for machine in free.values() for nic in machine.nics):
        raise InvalidInput(
            f"no free NIC of these machines publishes {RAIL}: see docs/concepts/rails.md for --rail-source"
        )
    made: list[RailTemplate] = []
    near = min((_nearest(machine, gpus, nics) for machine in free.values()), default=Distance.UNKNOWN)
    for rails in itertools.islice(_sets(free, gpus, nics, pods), _MAX_RAIL_SETS):
        if any(set(rails) & set(one.rails) for one in made if one.worst <= near):
            continue
        found = _template(manifests, hardware, free, rails, gpus, nics, pods)
        if found is not None and (found.worst <= near or not made):
            made = [one for one in made if one.worst <= near] + [found]
    if not made:
        raise InvalidInput(_none(free, gpus, nics, pods))
    return made


def _none(free: Mapping[str, Machine], gpus: int, nics: int, pods: int) -> str:
    rails = {
        node: sorted({nic.rail for nic in machine.nics if nic.rail}, key=natural_sort_key)
        for node, machine in free.items()
    }
    shown = "; ".join(f"{node} has {', '.join(found) or 'none'} free" for node, found in list(rails.items())[:8])
    return f"no {nics} rails are free, with {gpus} GPUs, on {pods} nodes together: {shown}"


def _free_machines(manifests: Manifests, hardware: Hardware) -> dict[str, Machine]:
    """Every machine with its free devices; of its NICs those with RDMA, if it has any."""
    nodes = {
        (raw["spec"].get("driver"), raw["spec"].get("pool", {}).get("name")): raw["spec"].get("nodeName")
        for raw in hardware.slices
    }
    held = {(nodes.get((r.driver, r.pool)), *r.id) for r in allocated_devices(manifests)}
    found: dict[str, Machine] = {}
    for node, machine in hardware.machines.items():
        nics = [nic for nic in machine.nics if nic.rdma] or machine.nics
        found[node] = replace(
            machine,
            gpus=tuple(gpu for gpu in machine.gpus if (node, *gpu.id) not in held),
            nics=tuple(nic for nic in nics if nic.rail and (node, *nic.id) not in held),
        )
    return found


def _nearest(machine: Machine, gpus: int, nics: int) -> Distance:
    best = best_choice(machine.gpus, machine.nics, gpus, nics) if gpus else None
    return best[2].alignment.worst if best else Distance.PIX if not gpus else Distance.UNKNOWN


def _sets(free: Mapping[str, Machine], gpus: int, nics: int, pods: int) -> Iterator[Rails]:
    """Every set of rails that enough nodes have, with enough GPUs."""
    nodes = [{nic.rail for nic in machine.nics} for machine in free.values() if len(machine.gpus) >= gpus]
    rails = sorted({rail for node in nodes for rail in node}, key=natural_sort_key)
    wanted = (rails for rails in itertools.combinations(rails, nics))
    return (chosen for chosen in wanted if sum(node.issuperset(chosen) for node in nodes) >= pods)


def _template(
    manifests: Manifests, hardware: Hardware, free: Mapping[str, Machine], rails: Rails, gpus: int, nics: int, pods: int
) -> RailTemplate | None:
    """The first way to write it that works out when the whole job is planned, else the nearest, else None."""
    machine = next(m for m in free.values() if len(m.gpus) >= gpus and {nic.rail for nic in m.nics}.issuperset(rails))
    here = replace(machine, nics=tuple(nic for nic in machine.nics if nic.rail in rails))
    best = best_choice(here.gpus, here.nics, gpus, nics) if gpus else None
    possible = best[2].alignment.worst if best else Distance.PIX
    made: list[RailTemplate] = []
    for way in claim_variants(single_machine(hardware, here), here, gpus, nics, best, rails):
        if len(way.templates) == 1:
            found = plan(_job(manifests, way.manifest, way.templates[0].name, pods), hardware)
            if len(found.pods) == pods and _on_same_rails(found, rails):
                made.append(RailTemplate(rails, way.how, way.manifest, found))
                if made[-1].worst <= possible:
                    break
    return min(made, key=lambda one: one.worst, default=None)


def _job(manifests: Manifests, manifest: str, name: str, pods: int) -> Manifests:
    """The job in addition to the existing objects, with the classes that the suggestion adds to the cluster."""
    missing = [made for known, made in known_classes().items() if known not in manifests.classes]
    classes = json.dumps({"apiVersion": "v1", "kind": "List", "items": missing})
    objects, _ = read_text("---\n".join([manifest, stateful_set(name, pods)]), "<suggested>")
    return Manifests([*objects, *read_text(classes, "<suggested>")[0]], list(manifests.all_objects))


def _on_same_rails(found: Plan, rails: Rails) -> bool:
    jobs = job_rails(found)
    return len(jobs) == 1 and jobs[0].uneven is None and set(jobs[0].common) == set(rails)


def same_rails_text(found: Sequence[RailTemplate]) -> str:
    """The templates, with what was proved about them as comments at the top."""
    several = " Use one of them for all pods of a job." if len(found) > 1 else ""
    lines = [f"# One template for each set of rails, so that all pods of a job are on the same.{several}"]
    for one in found:
        lines.append(f"# Rails {', '.join(one.rails)}: {one.how}.")
        lines += list(proof_lines(one.plan))
        lines += [f"# {rails_text(job)}." for job in job_rails(one.plan)]
    lines.append('# The class dranet is: selectors: [{cel: {expression: device.driver == "dra.net"}}]')
    return "\n".join(lines) + "\n" + "---\n".join(one.manifest for one in found)
