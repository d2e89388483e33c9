"""The layout of a machine on the page: NUMA nodes, their PCIe roots, and the GPUs and NICs below.

Equal machines share a layout, so that the page gets a thousand of them as one layout and a line each. A layout's key is
a hash of its content, the same on every server.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import msgspec

from dranet.machines.distance import distance
from dranet.machines.machine import DeviceId, Machine, MachineDevice
from dranet.machines.matrix import labelled_devices


@lru_cache(maxsize=4096)
def _layout(gpus: tuple[MachineDevice, ...], nics: tuple[MachineDevice, ...], shape: str) -> tuple[str, dict[str, Any]]:
    machine = Machine("", gpus, nics, shape)
    labels = {part.id: label for label, part in labelled_devices(machine).items()}
    made = {
        "title": shape,
        "devices": [_device(part, labels.get(part.id, "NET"), part in gpus) for part in (*gpus, *nics)],
        "numa": _numa(machine),
        "near": [[str(distance(gpu.position, nic.position)) for nic in nics] for gpu in gpus],
    }
    return hashlib.sha256(msgspec.json.encode(made)).hexdigest()[:12], made


def layout(machine: Machine) -> tuple[str, dict[str, Any]]:
    """The layout's key and content. Devices are identified by their index in ``devices``, GPUs first."""
    return _layout(machine.gpus, machine.nics, machine.shape)


def places(machine: Machine) -> dict[DeviceId, int]:
    """The index of each device in the layout's ``devices``."""
    return {part.id: at for at, part in enumerate((*machine.gpus, *machine.nics))}


def _device(part: MachineDevice, label: str, gpu: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "kind": "gpu" if gpu else "nic",
        "label": label,
        "title": part.title or part.device,
        "name": part.device,
        "driver": part.driver,
        "address": part.address,
        "numa": part.position.numa,
        "root": part.position.root,
    }
    if gpu:
        return {**made, "nvlinks": part.nvlinks}
    direct = str(part.direct_over)
    return {**made, "interface": part.interface, "rdma": part.rdma, "gbit": part.line_gbytes * 8, "direct": direct}


def _numa(machine: Machine) -> list[dict[str, Any]]:
    """NUMA nodes in order, the unknown one last; PCIe roots in order, the hidden one last."""
    found: dict[int, dict[str, list[int]]] = {}
    for at, part in enumerate((*machine.gpus, *machine.nics)):
        numa = part.position.numa if part.position.numa is not None and part.position.numa >= 0 else 1 << 30
        found.setdefault(numa, {}).setdefault(part.position.root or "", []).append(at)
    return [
        {
            "numa": numa if numa < 1 << 30 else None,
            "roots": [
                {"root": root, "devices": found[numa][root]} for root in sorted(found[numa], key=lambda r: (not r, r))
            ],
        }
        for numa in sorted(found)
    ]
