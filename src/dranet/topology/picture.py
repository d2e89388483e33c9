"""A machine as an SVG picture: NUMA nodes, PCIe roots in them, GPUs and cards below those.

Written by hand, without a plotting library: it is rectangles and text. Devices of a claim are drawn filled, and each of
its GPU-card pairs is a line whose colour says how far it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from dranet.topology.alignment import Pair
from dranet.topology.distance import Distance
from dranet.topology.machine import DeviceId, Machine, Part
from dranet.topology.matrix import labelled

BOX_W, BOX_H, GAP, PAD, HEAD = 116, 44, 12, 16, 26
COLOURS = {
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

Group = tuple[str, list[tuple[str, Part]]]


def to_svg(machine: Machine, picked: Iterable[DeviceId] = (), pairs: Sequence[Pair] = ()) -> str:
    """The picture of one machine, with the ``picked`` devices highlighted."""
    chosen = set(picked)
    frames: list[str] = []
    boxes: list[str] = []
    centres: dict[DeviceId, tuple[float, float]] = {}
    x, height = float(PAD), 0.0
    for title, groups in _by_numa(machine):
        width, tall, frame, devices = _numa(title, groups, x, chosen, centres)
        frames += frame
        boxes += devices
        x += width + GAP
        height = max(height, tall)
    lines = [_line(pair, centres) for pair in pairs if pair.gpu.id in centres and pair.nic.id in centres]
    total_w, total_h = x + PAD - GAP, height + PAD * 2 + HEAD
    caption = escape(f"{machine.node} ({machine.shape})" if machine.shape else machine.node)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_w:g} {total_h:g}" '
        f'width="{total_w:g}" height="{total_h:g}" role="img" aria-label="Topology of {caption}">'
    )
    name = f'<text x="{PAD}" y="{PAD + 4}" font-weight="600">{caption}</text>'
    return "\n".join([head, f"<style>{_STYLE}</style>", name, *frames, *lines, *boxes, "</svg>"]) + "\n"


def _by_numa(machine: Machine) -> list[tuple[str, list[Group]]]:
    found: dict[int, dict[str, list[tuple[str, Part]]]] = {}
    for label, part in labelled(machine).items():
        numa = -1 if part.place.numa is None else part.place.numa
        found.setdefault(numa, {}).setdefault(part.place.root or "no PCIe root", []).append((label, part))
    return [
        (f"NUMA node {numa}" if numa >= 0 else "NUMA node unknown", sorted(found[numa].items()))
        for numa in sorted(found)
    ]


def _numa(
    title: str, groups: list[Group], x: float, chosen: set[DeviceId], centres: dict[DeviceId, tuple[float, float]]
) -> tuple[float, float, list[str], list[str]]:
    """One NUMA node at ``x``: width, height, frames and devices; fills in the centres of the devices.

    Frames and devices are kept apart, so that lines between devices run above the ones and below the others.
    """
    top = PAD + HEAD
    inner_x, tallest = x + PAD, 0.0
    parts: list[str] = []
    devices: list[str] = []
    for root, members in groups:
        columns = min(2, len(members)) or 1
        width = columns * (BOX_W + GAP) + GAP
        rows = -(-len(members) // columns)
        tall = rows * (BOX_H + GAP) + GAP + HEAD
        parts.append(_rect("root", inner_x, top + HEAD, width, tall))
        parts.append(f'<text class="small" x="{inner_x + GAP:g}" y="{top + HEAD + 16:g}">{escape(root)}</text>')
        for i, (label, part) in enumerate(members):
            box_x = inner_x + GAP + (i % columns) * (BOX_W + GAP)
            box_y = top + HEAD + HEAD + (i // columns) * (BOX_H + GAP)
            devices += _device(label, part, box_x, box_y, part.id in chosen)
            centres[part.id] = (box_x + BOX_W / 2, box_y + BOX_H / 2)
        inner_x += width + GAP
        tallest = max(tallest, tall)
    full, height = inner_x - x - GAP + PAD, tallest + HEAD + PAD
    frame = [_rect("numa", x, top, full, height), f'<text x="{x + PAD:g}" y="{top + 18:g}">{escape(title)}</text>']
    return full, height, frame + parts, devices


def _device(label: str, part: Part, x: float, y: float, picked: bool) -> list[str]:
    kind = "gpu" if label.startswith("GPU") else "nic"
    name = part.title if part.title and part.title != part.device else part.address or part.device
    return [
        _rect(f"{kind} picked" if picked else kind, x, y, BOX_W, BOX_H),
        f'<text x="{x + 10:g}" y="{y + 18:g}" font-weight="600">{escape(label)}</text>',
        f'<text class="small" x="{x + 10:g}" y="{y + 34:g}">{escape(name)}</text>',
    ]


def _line(pair: Pair, centres: dict[DeviceId, tuple[float, float]]) -> str:
    (x1, y1), (x2, y2) = centres[pair.gpu.id], centres[pair.nic.id]
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{COLOURS[pair.distance]}" '
        f'stroke-width="2"><title>{pair.distance}</title></line>'
    )


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'
