"""Suggestions for several kinds of machines, proved by planning on every kind.

One template for all kinds if one is enough: as it is, or with alternatives (firstAvailable) where the kinds differ in
their GPU class, selectors or common attribute. If no such template is as good on every kind as a template for that kind
alone, each kind gets its own, named after it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from dranet.advise.plan.hardware import Hardware
from dranet.advise.plan.planning import Plan, plan
from dranet.advise.suggest.suggestion import (
    Suggestion,
    best_on,
    class_lines,
    machine_kinds,
    proof_lines,
    single_machine,
    suggest,
    suggested_manifests,
    suggestion_text,
)
from dranet.advise.suggest.templates import Constraint, Request, Template, cel_attribute
from dranet.core.attributes import PCI_DEVICE
from dranet.core.errors import InvalidInput
from dranet.machines.distance import Distance
from dranet.machines.machine import Machine

_MAX_ALTERNATIVES = 8
"""What the API takes in one firstAvailable."""


class MachineKind(msgspec.Struct, frozen=True):
    """One kind of machine, and the best claim for it alone."""

    machine: Machine
    hardware: Hardware
    own: Suggestion

    @property
    def label(self) -> str:
        """A short name that a request may have."""
        return re.sub(r"[^a-z0-9]+", "-", (self.machine.shape or self.machine.node).lower()).strip("-")[:40]


class Fleet(msgspec.Struct, frozen=True):
    """Templates, each for some kinds, with the plan on each of them; and machines that are too small."""

    manifest: str
    how: str
    plans: tuple[Plan, ...]
    too_small: tuple[str, ...] = ()


def suggest_fleet(hardware: Hardware, gpus: int, nics: int, share: str = "") -> Fleet | Suggestion:
    """One suggestion where there is one kind of machine, else one for the fleet."""
    kinds = machine_kinds(hardware)
    fitting = [kind for kind in kinds if len(kind.gpus) >= gpus and len(kind.nics) >= nics]
    small = tuple(kind.shape or kind.node for kind in kinds if kind not in fitting)
    if len(kinds) == 1 or not fitting:
        return suggest(hardware, gpus, nics, share)
    made = [_kind(hardware, machine, gpus, nics, share) for machine in fitting]
    return replace(_for_all(made), too_small=small)


def _kind(hardware: Hardware, machine: Machine, gpus: int, nics: int, share: str) -> MachineKind:
    mine = single_machine(hardware, machine)
    return MachineKind(machine, mine, best_on(mine, machine, gpus, nics, share))


def _for_all(kinds: Sequence[MachineKind]) -> Fleet:
    for how, template in _shared(kinds):
        plans = [plan(suggested_manifests(template.manifest), kind.hardware) for kind in kinds]
        if all(_as_good(found, kind) for found, kind in zip(plans, kinds, strict=True)):
            return Fleet(template.manifest, how, tuple(plans))
    named = [replace(t, name=f"{t.name}-{kind.label}"[:63].rstrip("-")) for kind in kinds for t in kind.own.templates]
    if len({template.name for template in named}) < len(named):
        raise InvalidInput("two kinds of machines have the same name; give their shapes different ones")
    manifest = "---\n".join(template.manifest for template in named)
    return Fleet(manifest, "one template for each kind of machine", tuple(kind.own.plan for kind in kinds))


def _as_good(found: Plan, kind: MachineKind) -> bool:
    """Placed, and its worst pair as near as with the claim for this kind alone."""
    worst = max((pod.quality.alignment.worst for pod in found.pods), default=Distance.UNKNOWN)
    return bool(found.pods) and not found.unschedulable and worst <= kind.own.worst


def _shared(kinds: Sequence[MachineKind]) -> Iterator[tuple[str, Template]]:
    """Templates that may do for all kinds: each kind's own, then one with alternatives."""
    single = [kind.own.templates[0] for kind in kinds if len(kind.own.templates) == 1]
    for template in dict.fromkeys(single):
        yield "one template for all kinds of machines", template
    names = {tuple(alternatives[0].name for alternatives in template.requests) for template in single}
    if len(single) == len(kinds) <= _MAX_ALTERNATIVES and len(names) == 1:
        for apart in (False, True):
            yield "one template for all kinds of machines, with alternatives", _merged(kinds, single, apart=apart)


def _merged(kinds: Sequence[MachineKind], templates: Sequence[Template], *, apart: bool) -> Template:
    """One template: requests that differ get alternatives; ``apart``: all do, each kind with its own constraints."""
    requests: list[tuple[Request, ...]] = []
    for column in zip(*(template.requests for template in templates), strict=True):
        plain = [alternatives[0] for alternatives in column]
        if not apart and len(set(plain)) == 1:
            requests.append((plain[0],))
        else:
            requests.append(tuple(_unique(_of_kind(r, kind, kinds) for r, kind in zip(plain, kinds, strict=True))))
    constraints: list[Constraint] = list(templates[0].constraints)
    if apart:
        constraints = [
            (tuple(f"{name}/{kind.label}" for name in names), attribute)
            for kind, template in zip(kinds, templates, strict=True)
            for names, attribute in template.constraints
        ]
    return Template(templates[0].name, tuple(requests), tuple(constraints))


def _of_kind(request: Request, kind: MachineKind, kinds: Sequence[MachineKind]) -> Request:
    """The request as an alternative that only this kind's devices match, where an attribute tells them apart."""
    telling = _telling(kind, kinds, request)
    selectors = (*request.selectors, telling) if telling else request.selectors
    return replace(request, name=f"{request.name}/{kind.label}", selectors=selectors)


def _telling(kind: MachineKind, kinds: Sequence[MachineKind], request: Request) -> str:
    attributes = _TELLING if request.device_class == "dranet" else (f"{request.device_class}/productName",)
    for attribute in attributes:
        values = [_values(one, attribute) for one in kinds]
        mine = _values(kind, attribute)
        if len(mine) == 1 and sum(bool(mine & other) for other in values) == 1:
            return f'{cel_attribute(attribute)} == "{next(iter(mine))}"'
    return ""


_TELLING = ("gce.dra.net/machineType", "azure.dra.net/vmSize", PCI_DEVICE)


def _values(kind: MachineKind, attribute: str) -> set[str]:
    short = attribute.rpartition("/")[2]
    found = (unit.raw.get("attributes") or {} for unit in kind.hardware.devices)
    texts = (values.get(attribute, values.get(short, {})).get("string", "") for values in found)
    return {text for text in texts if text}


def _unique(requests: Iterator[Request]) -> Iterator[Request]:
    """Alternatives that ask for the same are one."""
    seen: set[tuple[str, int, tuple[str, ...]]] = set()
    for request in requests:
        key = (request.device_class, request.count, request.selectors)
        if key not in seen:
            seen.add(key)
            yield request


def fleet_text(found: Fleet | Suggestion) -> str:
    """The manifest, with what was proved on every kind as comments at the top."""
    if isinstance(found, Suggestion):
        return suggestion_text(found)
    lines = [f"# {found.how}.", *itertools.chain.from_iterable(proof_lines(made) for made in found.plans)]
    lines += [f"# {name} is too small for such a pod." for name in found.too_small]
    lines += class_lines(found.manifest)
    return "\n".join(lines) + "\n" + found.manifest
