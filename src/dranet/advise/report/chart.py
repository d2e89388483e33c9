"""Plots of bandwidth against message size, as characters and as SVG.

The size axis is logarithmic, because sizes double from row to row. The bandwidth axis is linear, to show shares.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from html import escape

from dranet.advise.report.runs import Row

# A character cell of braille is two dots wide and four high; bits by column, from the top down.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_COLOURS = ("#2f6fdb", "#b26a00", "#1a7f37", "#8250df", "#c62828", "#6e7781")
_STYLE = (
    "text{font-family:ui-sans-serif,system-ui,sans-serif;font-size:11px;fill:#1f2328}"
    ".grid{stroke:#d0d7de}.line{fill:none;stroke-width:2}.in{stroke-dasharray:2 3}.expected{stroke-dasharray:6 4}"
)

Point = tuple[int, float]


def size_text(size: int) -> str:
    """``8388608`` as ``8 MiB``; sizes between powers of 1024 keep one digit."""
    power = min(4, int(math.log2(size)) // 10) if size > 0 else 0
    value = size / (1 << (10 * power))
    return f"{value:.1f}".removesuffix(".0") + " " + ("B", "KiB", "MiB", "GiB", "TiB")[power]


def to_text(rows: Sequence[Row], expected: float | None, columns: int = 60, lines: int = 12) -> str:
    """A plot of out-of-place bus bandwidth; the dotted line is what is expected."""
    points = [(row.size, row.out_of_place.busbw) for row in rows if row.size > 0]
    if len(points) < 2:
        return ""
    top = _round_up(max(*(rate for _, rate in points), expected or 0))
    low, high = _bounds(points)
    grid = [[0] * columns for _ in range(lines)]

    def dot(x: float, y: float) -> None:
        column, row = round(x * (columns * 2 - 1)), round((1 - y) * (lines * 4 - 1))
        grid[row // 4][column // 2] |= _DOTS[column % 2][row % 4]

    for step in range(0, columns * 2, 4) if expected else ():
        dot(step / (columns * 2 - 1), (expected or 0) / top)
    for x, y in _curve([((math.log2(size) - low) / (high - low), rate / top) for size, rate in points], columns * 2):
        dot(x, y)
    return _framed(grid, top, points)


def _framed(grid: list[list[int]], top: float, points: Sequence[Point]) -> str:
    texts = ["".join(chr(0x2800 + cell) for cell in row).replace("\u2800", " ").rstrip() for row in grid]
    marks = {0: f"{top:g}", len(grid) // 2: f"{top / 2:g}", len(grid) - 1: "0"}
    width = max(len(mark) for mark in marks.values())
    body = [f"{marks.get(n, ''):>{width}} ┤{text}".rstrip() for n, text in enumerate(texts)]
    left, right = size_text(points[0][0]), size_text(points[-1][0])
    axis = " " * (width + 2) + left + " " * max(1, len(grid[0]) - len(left) - len(right)) + right
    return "\n".join([*body, axis])


def _curve(points: Sequence[tuple[float, float]], steps: int) -> Iterable[tuple[float, float]]:
    """Points along the straight lines between neighbours, close enough to touch."""
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        for step in range(steps + 1):
            share = step / steps
            yield x0 + (x1 - x0) * share, y0 + (y1 - y0) * share


def _bounds(points: Sequence[Point]) -> tuple[float, float]:
    sizes = [math.log2(size) for size, _ in points]
    return min(sizes), max(max(sizes), min(sizes) + 1)


def _round_up(value: float) -> float:
    """The next round number, for the end of an axis."""
    if value <= 0:
        return 1.0
    base = 10.0 ** math.floor(math.log10(value))
    return next(step * base for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * base >= value)


def to_svg(series: Sequence[tuple[str, Sequence[Row], float | None]], width: int = 640, height: int = 360) -> str:
    """All runs in one picture, with title, rows and expected bandwidth. In-place figures are dotted."""
    drawn = [(title, [row for row in rows if row.size > 0], expected) for title, rows, expected in series]
    points = [(row.size, rate.busbw) for _, rows, _ in drawn for row in rows for rate in row.rates] or [(1, 0.0)]
    top = _round_up(max([rate for _, rate in points] + [expected or 0 for _, _, expected in drawn]))
    frame = _Frame(width, height + 16 * len(drawn), height, *_bounds(points), top)
    body = [*frame.grid(sorted({row.size for _, rows, _ in drawn for row in rows}))]
    for n, (title, rows, expected) in enumerate(drawn):
        body += frame.run(n, title, rows, expected)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {frame.total}" width="{width}" '
        f'height="{frame.total}" role="img" aria-label="Bus bandwidth against message size">'
    )
    return "\n".join([head, f"<style>{_STYLE}</style>", *body, "</svg>"]) + "\n"


class _Frame:
    """Coordinates of the picture."""

    def __init__(self, width: int, total: int, height: int, low: float, high: float, top: float) -> None:
        self.width, self.total, self.height, self.low, self.high, self.top = width, total, height, low, high, top

    def x(self, size: int) -> float:
        return 48 + (math.log2(size) - self.low) / (self.high - self.low) * (self.width - 64)

    def y(self, rate: float) -> float:
        return self.height - 32 - rate / self.top * (self.height - 56)

    def grid(self, sizes: Sequence[int]) -> list[str]:
        lines = ['<text x="8" y="14">GB/s</text>']
        for n in range(5):
            y, rate = self.y(self.top * n / 4), self.top * n / 4
            lines.append(f'<line class="grid" x1="48" x2="{self.width - 16}" y1="{y:.1f}" y2="{y:.1f}"/>')
            lines.append(f'<text x="42" y="{y + 4:.1f}" text-anchor="end">{rate:g}</text>')
        for size in sizes[:: max(1, len(sizes) // 6)]:
            lines.append(
                f'<text x="{self.x(size):.1f}" y="{self.height - 14}" text-anchor="middle">{size_text(size)}</text>'
            )
        return lines

    def run(self, n: int, title: str, rows: Sequence[Row], expected: float | None) -> list[str]:
        colour, y = _COLOURS[n % len(_COLOURS)], self.height + 16 * n
        lines = [self._line(((r.size, r.out_of_place.busbw) for r in rows), "line", colour)]
        lines.append(self._line(((r.size, r.in_place.busbw) for r in rows if r.in_place), "line in", colour))
        if expected:
            at = self.y(expected)
            lines.append(
                f'<line class="expected" stroke="{colour}" x1="48" x2="{self.width - 16}" y1="{at:.1f}" y2="{at:.1f}"/>'
            )
        lines.append(f'<rect x="48" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        lines.append(f'<text x="64" y="{y}">{escape(title)}</text>')
        return [line for line in lines if line]

    def _line(self, points: Iterable[Point], kind: str, colour: str) -> str:
        text = " ".join(f"{self.x(size):.1f},{self.y(rate):.1f}" for size, rate in points)
        return f'<polyline class="{kind}" stroke="{colour}" points="{text}"/>' if text else ""
