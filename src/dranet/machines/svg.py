"""A machine as an SVG: NUMA nodes, the PCIe roots in them, and the GPUs and NICs below those.

Devices of a claim are filled, and each of its GPU-NIC pairs is a line whose colour shows the distance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from dranet.machines.alignment import Pair
from dranet.machines.distance import Distance
from dranet.machines.machine import DeviceId, Machine, MachineDevice
from dranet.machines.matrix import labelled_devices

_BOX_W, _BOX_H, _GAP, _PAD, _HEAD = 116, 44, 12, 16, 26
_COLOURS = {
    Distance.PIX: "#1a7f37",
    Distance.PXB: "#1a7f37",
    Distance.PHB: "#4d8f1f",
    Distance.NODE: "#b26a00",
    Distance.SYS: "#c62828",
    Distance.UNKNOWN: "#6e7781",
}
_STYLE = (
    "text{font-family:ui-sans-serif,system-ui,sans-serif;font-size:12px;fill:#1f2328}"
    ".small{font-size:10px;fill:#57606a}.numa{fill:#f6f8fa;stroke:#d0d7de}.root{fill:#fff;stroke:#afb8c1}"
    ".gpu{fill:#e6f4ea;stroke:#1a7f37}.nic{fill:#e7f0fd;stroke:#2f6fdb}.picked{stroke-width:3}"
    ".gpu.picked{fill:#a8dcb5}.nic.picked{fill:#a9c8f7}"
)

_Group = tuple[str, list[tuple[str, MachineDevice]]]


def to_svg(machine: Machine, picked: Iterable[DeviceId] = (), pairs: Sequence[Pair] = ()) -> str:
    """The SVG of one machine, with the ``picked`` devices highlighted."""
    chosen = set(picked)
    frames: list[str] = []
    boxes: list[str] = []
    centres: dict[DeviceId, tuple[float, float]] = {}
    x, height = float(_PAD), 0.0
    for title, groups in _by_numa(machine):
        width, tall, frame, devices = _numa(title, groups, x, chosen, centres)
        frames += frame
        boxes += devices
        x += width + _GAP
        height = max(height, tall)
    lines = [_line(pair, centres) for pair in pairs if pair.gpu.id in centres and pair.nic.id in centres]
    total_w, total_h = x + _PAD - _GAP, height + _PAD * 2 + _HEAD
    caption = escape(f"{machine.node} ({machine.shape})" if machine.shape else machine.node)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_w:g} {total_h:g}" '
        f'width="{total_w:g}" height="{total_h:g}" role="img" aria-label="Topology of {caption}">'
    )
    name = f'<text x="{_PAD}" y="{_PAD + 4}" font-weight="600">{caption}</text>'
    return "\n".join([head, f"<style>{_STYLE}</style>", name, *frames, *lines, *boxes, "</svg>"]) + "\n"


def _by_numa(machine: Machine) -> list[tuple[str, list[_Group]]]:
    found: dict[int, dict[str, list[tuple[str, MachineDevice]]]] = {}
    for label, part in labelled_devices(machine).items():
        numa = -1 if part.position.numa is None else part.position.numa
        found.setdefault(numa, {}).setdefault(part.position.root or "no PCIe root", []).append((label, part))
    return [
        (f"NUMA node {numa}" if numa >= 0 else "NUMA node unknown", sorted(found[numa].items()))
        for numa in sorted(found)
    ]


def _numa(
    title: str, groups: list[_Group], x: float, chosen: set[DeviceId], centres: dict[DeviceId, tuple[float, float]]
) -> tuple[float, float, list[str], list[str]]:
    """One NUMA node at ``x``: width, height, frames and devices; fills in the centres of the devices.

    Frames and devices are kept apart, so that lines between devices run above the ones and below the others.
    """
    top = _PAD + _HEAD
    inner_x, tallest = x + _PAD, 0.0
    parts: list[str] = []
    devices: list[str] = []
    for root, members in groups:
        columns = min(2, len(members)) or 1
        width = columns * (_BOX_W + _GAP) + _GAP
        rows = -(-len(members) // columns)
        tall = rows * (_BOX_H + _GAP) + _GAP + _HEAD
        parts.append(_rect("root", inner_x, top + _HEAD, width, tall))
        parts.append(f'<text class="small" x="{inner_x + _GAP:g}" y="{top + _HEAD + 16:g}">{escape(root)}</text>')
        for i, (label, part) in enumerate(members):
            box_x = inner_x + _GAP + (i % columns) * (_BOX_W + _GAP)
            box_y = top + _HEAD + _HEAD + (i // columns) * (_BOX_H + _GAP)
            devices += _device(label, part, box_x, box_y, part.id in chosen)
            centres[part.id] = (box_x + _BOX_W / 2, box_y + _BOX_H / 2)
        inner_x += width + _GAP
        tallest = max(tallest, tall)
    full, height = inner_x - x - _GAP + _PAD, tallest + _HEAD + _PAD
    frame = [_rect("numa", x, top, full, height), f'<text x="{x + _PAD:g}" y="{top + 18:g}">{escape(title)}</text>']
    return full, height, frame + parts, devices


def _device(label: str, part: MachineDevice, x: float, y: float, picked: bool) -> list[str]:
    kind = "gpu" if label.startswith("GPU") else "nic"
    name = part.title if part.title and part.title != part.device else part.address or part.device
    return [
        _rect(f"{kind} picked" if picked else kind, x, y, _BOX_W, _BOX_H),
        f'<text x="{x + 10:g}" y="{y + 18:g}" font-weight="600">{escape(label)}</text>',
        f'<text class="small" x="{x + 10:g}" y="{y + 34:g}">{escape(name)}</text>',
    ]


def _line(pair: Pair, centres: dict[DeviceId, tuple[float, float]]) -> str:
    (x1, y1), (x2, y2) = centres[pair.gpu.id], centres[pair.nic.id]
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{_COLOURS[pair.distance]}" '
        f'stroke-width="2"><title>{pair.distance}</title></line>'
    )


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'
