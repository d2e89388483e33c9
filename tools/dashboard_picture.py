"""A picture of the chart's files/dashboard.json: ``python -m tools.dashboard_picture``. Takes ten minutes, needs root.

Not by Grafana, which is in no Debian: its panels, at their places, with their own queries answered by a real
Prometheus (dashboard_record), drawn here. Colours, axes and legends are ours.
"""

from __future__ import annotations

import json
import re
import time
from html import escape
from pathlib import Path
from typing import Any

from tools.dashboard_record import Series, answers, prometheus, record

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD = ROOT / "deploy/helm/dranet/files/dashboard.json"
PICTURE = ROOT / "docs/images/dashboard.svg"
TIMES = 4
"""The story's acts are played that often: about ten minutes."""
COLUMN, ROW, GAP, MOST = 50, 26, 6, 6
"""Pixels of a grid's cell, between panels, and how many lines a legend has."""
COLOURS = ("#3274d9", "#56a64b", "#e0752d", "#a352cc", "#f2cc0c", "#e02f44", "#37872d", "#1f60c4")
UNITS = {"s": (1, " s"), "bytes": (1e6, " MB"), "Bps": (1e6, " MB/s")}
STYLE = """
text { font: 11px system-ui, sans-serif; fill: #444 }
.title { font-weight: 600; fill: #222 }
.big { font-size: 34px; fill: #3274d9 }
"""


def main() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    recorder = record(TIMES)
    ended = time.time()
    with prometheus(recorder) as address:
        drawn = []
        for panel in panels:
            found = [(target, answers(address, target["expr"], recorder.begun, ended)) for target in panel["targets"]]
            drawn.append(draw(panel, [(legend(target, one), one) for target, all_of_it in found for one in all_of_it]))
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * ROW
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {24 * COLUMN} {height}">\n<style>{STYLE}</style>\n'
    PICTURE.write_text(f'{head}<rect width="100%" height="100%" fill="#f4f5f5"/>\n{"".join(drawn)}</svg>\n')
    print(f"wrote {PICTURE.relative_to(ROOT)}")


def legend(target: dict[str, Any], series: Series) -> str:
    """As the dashboard words it."""
    labels = series["metric"]
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), target["legendFormat"])


def draw(panel: dict[str, Any], lines: list[tuple[str, Series]]) -> str:
    place, unit = panel["gridPos"], panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "short")
    width, height = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
    frame = f'<rect width="{width}" height="{height}" rx="2" fill="#fff" stroke="#ddd"/>'
    title = f'<text class="title" x="10" y="18">{escape(panel["title"])}</text>'
    inside = number(lines, unit) if panel["type"] == "stat" else curves(lines, unit, width, height)
    return f'<g transform="translate({place["x"] * COLUMN},{place["y"] * ROW})">{frame}{title}{inside}</g>\n'


def number(lines: list[tuple[str, Series]], unit: str) -> str:
    """The last value."""
    shown = format_value(float(lines[0][1]["values"][-1][1]), unit) if lines else "no data"
    return f'<text class="big" x="10" y="70">{escape(shown)}</text>'


def curves(lines: list[tuple[str, Series]], unit: str, width: int, height: int) -> str:
    points = {name: found for name, one in lines if (found := values(one))}
    found = [point for line in points.values() for point in line]
    if not found:
        return f'<text x="{width // 2 - 20}" y="{height // 2}">No data</text>'
    begun, ended = min(at for at, _ in found), max(at for at, _ in found)
    most = max(value for _, value in found) or 1.0
    left, top, right, bottom = 70, 30, width - 10, height - 12 * min(len(points), MOST + 1) - 26

    def place(at: float, value: float) -> str:
        x = left + (right - left) * (at - begun) / ((ended - begun) or 1)
        return f"{x:.1f},{bottom - (bottom - top) * value / most:.1f}"

    out = [f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#bbb"/>']
    out += [f'<text x="8" y="{top + 6}">{format_value(most, unit)}</text><text x="8" y="{bottom}">0</text>']
    out += [f'<text x="{left}" y="{bottom + 13}">{clock(begun)}</text>']
    out += [f'<text x="{right - 32}" y="{bottom + 13}">{clock(ended)}</text>']
    for row, (name, line) in enumerate(sorted(points.items(), key=lambda item: -max(value for _, value in item[1]))):
        colour = COLOURS[row % len(COLOURS)]
        path = " ".join(place(*point) for point in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if row < MOST:
            at = bottom + 27 + 12 * row
            out.append(f'<rect x="{left}" y="{at - 7}" width="10" height="3" fill="{colour}"/>')
            out.append(f'<text x="{left + 16}" y="{at - 2}">{escape(name)}</text>')
        elif row == MOST:
            out.append(f'<text x="{left + 16}" y="{bottom + 25 + 12 * row}">and {len(points) - MOST} more</text>')
    return "".join(out)


def values(series: Series) -> list[tuple[float, float]]:
    """Without what is no number: a quantile of nothing."""
    return [(float(at), float(value)) for at, value in series["values"] if value not in ("NaN", "+Inf")]


def format_value(value: float, unit: str) -> str:
    by, name = UNITS.get(unit, (1, ""))
    return f"{value / by:.3g}{name}"


def clock(at: float) -> str:
    return time.strftime("%H:%M", time.gmtime(at))


if __name__ == "__main__":
    main()
