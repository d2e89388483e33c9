"""More under one root than a root holds: said with the numbers, and with the claim that asks for it in groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from dranet.model.attributes import PCIE_ROOT, STANDARD_NUMA_NODE
from dranet.model.errors import InvalidInput
from dranet.model.names import DRIVER_NAME
from dranet.predict.explain.relaxing import Change
from dranet.predict.hardware import Hardware
from dranet.predict.placing import Scheduler
from dranet.predict.pods_to_place import Pod
from dranet.predict.suggest.suggesting import best_on, machine_kinds, only
from dranet.topology.machine import Machine, Part

Numbers = tuple[int, int]
"""GPUs and cards."""


def groups_that_fit(scheduler: Scheduler, pod: Pod, hardware: Hardware) -> Iterator[Change]:
    """For each constraint that asks for more together than any machine has together."""
    for claim in scheduler.waiting_claims(pod):
        devices = claim["spec"].get("devices") or {}
        for constraint in devices.get("constraints") or ():
            attribute = str(constraint.get("matchAttribute"))
            wanted = _wanted(scheduler, devices, constraint.get("requests") or ())
            if attribute in {PCIE_ROOT, STANDARD_NUMA_NODE} and all(wanted):
                yield from _change(hardware, attribute, wanted)


def _change(hardware: Hardware, attribute: str, wanted: Numbers) -> Iterator[Change]:
    fits = [_most(machine, attribute, wanted) for machine in machine_kinds(hardware)]
    if not fits or any(have[0] >= wanted[0] and have[1] >= wanted[1] for have in fits):
        return
    for machine, have in zip(machine_kinds(hardware), fits, strict=True):
        try:
            found = best_on(only(hardware, machine), machine, *wanted)
        except InvalidInput:
            continue
        short = attribute.rpartition("/")[2]
        text = (
            f"one {short} of {machine.shape or machine.node} holds at most {have[0]} GPUs and {have[1]} cards, "
            f"{wanted[0]} and {wanted[1]} are asked for: write it as `dranet suggest --gpus {wanted[0]} "
            f"--nics {wanted[1]}` does ({found.how})"
        )
        yield Change(text, (), found.manifest)
        return


def _wanted(scheduler: Scheduler, devices: dict[str, Any], names: Any) -> Numbers:
    """GPUs and cards that a constraint wants together."""
    gpus = nics = 0
    for request in devices.get("requests") or ():
        part = request.get("exactly") or {}
        if names and request["name"] not in names:
            continue
        described = str(scheduler.cluster.classes.get(part.get("deviceClassName"), {}))
        count = part.get("count", 1) if part.get("allocationMode") != "All" else 0
        if DRIVER_NAME in described:
            nics += count
        elif "gpu." in described:
            gpus += count
    return gpus, nics


def _most(machine: Machine, attribute: str, wanted: Numbers) -> Numbers:
    """The best that devices with one value of the attribute come to."""

    def value(part: Part) -> object:
        return part.place.root if attribute == PCIE_ROOT else part.place.numa

    gpus, nics = (Counter(map(value, parts)) for parts in (machine.gpus, machine.nics))
    both = [(gpus[one], nics[one]) for one in {*gpus, *nics} - {None}]
    return max(both, key=lambda have: (min(have[0], wanted[0]) + min(have[1], wanted[1]), have), default=(0, 0))
