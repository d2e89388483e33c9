"""A machine as the page draws it: NUMA nodes, PCIe roots in them, GPUs and cards below those.

Machines of one kind share a layout, so a thousand of them cost the page one drawing plan and a line each. A layout's
name is made of its content: same machine, same name, whoever looks and whenever.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import msgspec

from dranet.topology.distance import distance
from dranet.topology.machine import DeviceId, Machine, Part
from dranet.topology.matrix import labelled


@lru_cache(maxsize=4096)
def _layout(gpus: tuple[Part, ...], nics: tuple[Part, ...], shape: str) -> tuple[str, dict[str, Any]]:
    machine = Machine("", gpus, nics, shape)
    labels = {part.id: label for label, part in labelled(machine).items()}
    made = {
        "title": shape,
        "devices": [_device(part, labels.get(part.id, "NET"), part in gpus) for part in (*gpus, *nics)],
        "numa": _numa(machine),
        "near": [[str(distance(gpu.place, nic.place)) for nic in nics] for gpu in gpus],
    }
    return hashlib.sha256(msgspec.json.encode(made)).hexdigest()[:12], made


def layout(machine: Machine) -> tuple[str, dict[str, Any]]:
    """Its name and its content; devices are referred to by their place in ``devices``, GPUs first."""
    return _layout(machine.gpus, machine.nics, machine.shape)


def places(machine: Machine) -> dict[DeviceId, int]:
    """Where each device stands in the layout's ``devices``."""
    return {part.id: at for at, part in enumerate((*machine.gpus, *machine.nics))}


def _device(part: Part, label: str, gpu: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "kind": "gpu" if gpu else "nic",
        "label": label,
        "title": part.title or part.device,
        "name": part.device,
        "driver": part.driver,
        "address": part.address,
        "numa": part.place.numa,
        "root": part.place.root,
    }
    if gpu:
        return {**made, "nvlinks": part.nvlinks}
    direct = str(part.direct_over)
    return {**made, "interface": part.interface, "rdma": part.rdma, "gbit": part.line_gbytes * 8, "direct": direct}


def _numa(machine: Machine) -> list[dict[str, Any]]:
    """NUMA nodes in order, the unknown one last; PCIe roots in order, devices whose root is hidden last."""
    found: dict[int, dict[str, list[int]]] = {}
    for at, part in enumerate((*machine.gpus, *machine.nics)):
        numa = part.place.numa if part.place.numa is not None and part.place.numa >= 0 else 1 << 30
        found.setdefault(numa, {}).setdefault(part.place.root or "", []).append(at)
    return [
        {
            "numa": numa if numa < 1 << 30 else None,
            "roots": [
                {"root": root, "devices": found[numa][root]} for root in sorted(found[numa], key=lambda r: (not r, r))
            ],
        }
        for numa in sorted(found)
    ]
