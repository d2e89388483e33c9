"""The matrix of ``nvidia-smi topo -m``, as data and as text.

As in nvidia-smi, NICs with RDMA count as NICs; a machine without any shows all its NICs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dranet.machines.machine import Machine, MachineDevice, gpu_links, matrix_cell

_LEGEND = """\
  X    = the device itself
  SYS  = over PCIe and the link between NUMA nodes
  NODE = over PCIe and between host bridges of one NUMA node
  PHB  = over PCIe and one host bridge
  PXB  = over several PCIe switches, no host bridge
  PIX  = over at most one PCIe switch
  NV#  = over # NVLinks"""


_XGMI = "  XGMI = over AMD's links between GPUs"


def labelled_devices(machine: Machine) -> dict[str, MachineDevice]:
    """GPU0, GPU1, ..., NIC0, NIC1, ... in that order."""
    shown = [nic for nic in machine.nics if nic.rdma] or list(machine.nics)
    labels = {f"GPU{i}": gpu for i, gpu in enumerate(machine.gpus)}
    return labels | {f"NIC{i}": nic for i, nic in enumerate(shown)}


def matrix(machine: Machine) -> dict[str, dict[str, str]]:
    """Every row and column, named as by nvidia-smi."""
    parts = labelled_devices(machine)
    return {row: {column: matrix_cell(a, b) for column, b in parts.items()} for row, a in parts.items()}


def to_json(machine: Machine) -> dict[str, Any]:
    """``devices``, ``matrix``, and the ``names`` behind the labels."""
    parts = labelled_devices(machine)
    return {
        "devices": list(parts),
        "matrix": matrix(machine),
        "names": {label: part.title or part.device for label, part in parts.items()},
    }


def _off_fabric(machine: Machine) -> Iterator[str]:
    """GPUs without a link to any other GPU while the others have one: a fault."""
    linked = [any(gpu_links(gpu, other) for other in machine.gpus if other is not gpu) for gpu in machine.gpus]
    if sum(linked) > 1:
        for i, (gpu, has) in enumerate(zip(machine.gpus, linked, strict=True)):
            if not has:
                yield f"GPU{i} ({gpu.device}) has no link to the other GPUs, which are linked; check the GPU fabric"


def to_text(machine: Machine) -> str:
    """The matrix with CPU and NUMA columns and the NIC legend; plain, for a terminal or a pipe."""
    parts, cells = labelled_devices(machine), matrix(machine)
    cpus = dict(machine.cpus)
    rows = [["", *parts, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]]
    for label, part in parts.items():
        row = [label, *(cells[label][column] for column in parts)]
        if label.startswith("GPU") and part.position.numa is not None:
            row += [cpus.get(part.position.numa, "N/A"), str(part.position.numa), "N/A"]
        rows.append(row)
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(len(rows[0]))]
    lines = ["  ".join(value.ljust(widths[i]) for i, value in enumerate(row)).rstrip() for row in rows]
    names = [f"  {label}: {part.title or part.device}" for label, part in parts.items() if label.startswith("NIC")]
    xgmi = [_XGMI] if any("XGMI" in row for row in rows) else []
    legend = [*(f"warning: {text}" for text in _off_fabric(machine)), "", "Legend:", "", _LEGEND, *xgmi]
    return "\n".join(lines + legend + (["", "NIC Legend:", "", *names] if names else []))
