"""Plain tables in the style of kubectl: a header in capitals, columns two spaces apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def columns(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """One line a row, each column as wide as its widest cell."""
    cells = [[name.upper() for name in header], *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]


def at_most(lines: Sequence[str], limit: int, hint: str) -> list[str]:
    """The first lines; one more line counts the rest and says how to see it."""
    rest = len(lines) - limit
    return [*lines[:limit], f"and {rest:,} more ({hint})"] if rest > 0 else list(lines)
