"""How good a placement is on its machine: the devices it holds, as GPUs and cards."""

from __future__ import annotations

from collections.abc import Sequence

from dranet.predict.placing import Placement, Result
from dranet.predict.quality import ADMIN, Quality, quality, quality_with_plugin
from dranet.topology.machine import Machine, Part


def parts_of(machine: Machine, devices: Sequence[Sequence[Result]]) -> tuple[list[Part], list[Part]]:
    """GPUs and cards among the devices of a pod, in the order people count them."""
    held = {(result["driver"], result["device"]) for group in devices for result in group}
    return [g for g in machine.gpus if g.id in held], [n for n in machine.nics if n.id in held]


def rate(placement: Placement, machine: Machine) -> Quality:
    """How good a placement is on its machine."""
    own = [[result for result in group if not result.get("adminAccess")] for group in placement.devices]
    gpus, nics = parts_of(machine, own)
    if any(placement.devices) and not any(own):
        return Quality(expected=ADMIN)
    wanted = sum(placement.pod.plugin_gpus.values())
    if not wanted:
        return quality(gpus, nics)
    free = [gpu for gpu in machine.gpus if gpu.id not in placement.held]
    return quality_with_plugin(gpus, nics, free, wanted)
