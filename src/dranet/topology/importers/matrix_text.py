"""The text of ``nvidia-smi topo -m`` as a table, however it was pasted.

Real output is separated by tabs, underlined by escape codes, and has empty CPU columns in a container; pasted output
has spaces, bars and cut lines. Cells that cannot be read are ``?`` and stay unknown. Old drivers say SOC for SYS.
"""

from __future__ import annotations

import re

import msgspec

from dranet.model.errors import InvalidInput

MOST_DEVICES = 256
CELL = re.compile(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|SOC|XGMI|C2C|\?|N/A")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU\d+")
_LEGEND = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)\s*")
_AFFINITY = re.compile(r"(CPU|NUMA) Affinity|GPU NUMA ID", re.IGNORECASE)


class MatrixText(msgspec.Struct):
    """Labels in their order, known cells of both halves, and what stands beside the rows."""

    labels: list[str]
    cells: dict[tuple[str, str], str] = msgspec.field(default_factory=dict)
    cpus: dict[str, str] = msgspec.field(default_factory=dict)
    numa: dict[str, str] = msgspec.field(default_factory=dict)
    names: dict[str, str] = msgspec.field(default_factory=dict)
    """What the NIC legend calls a card."""


def looks_like_matrix(text: str) -> bool:
    """Whether some line is the head of such a table."""
    return any(_head(line) for line in _clean(text))


def read_matrix(text: str) -> MatrixText:
    """The first matrix of a text."""
    lines = _clean(text)
    start, head = next(((i, one) for i, line in enumerate(lines) if (one := _head(line))), (0, None))
    if head is None:
        raise InvalidInput("no line begins with GPU0: give the whole output of nvidia-smi topo -m")
    labels, columns = head
    if len(labels) > MOST_DEVICES:
        raise InvalidInput(f"{len(labels)} columns; at most {MOST_DEVICES} are read")
    found = MatrixText(labels)
    for line in lines[start + 1 :]:
        if legend := _LEGEND.fullmatch(line):
            found.names[legend[1]] = legend[2]
        elif line.split(None, 1)[:1] and line.split(None, 1)[0] in labels:
            _row(found, line, columns)
    if not any(row == one for row, one in found.cells if row.startswith("GPU")):
        raise InvalidInput("there is a head of a matrix and no row of a GPU below it")
    return found


def _clean(text: str) -> list[str]:
    lines = _ESCAPES.sub("", text).replace("\r", "").splitlines()
    return [re.sub(r"^\s*(?:>\s?)+|[|│]", " ", line).rstrip() for line in lines]


def _head(line: str) -> tuple[list[str], list[str]] | None:
    """Labels and the columns beside them, where the line is the head of a matrix: all names, no cell."""
    columns = [match[0].lower() for match in _AFFINITY.finditer(line)]
    labels = _AFFINITY.sub(" ", line).split()
    if not labels or not _GPU.fullmatch(labels[0]) or any(CELL.fullmatch(label) for label in labels):
        return None
    if len(set(labels)) != len(labels):
        raise InvalidInput(f"the head of the matrix names a device twice: {line.strip()[:80]}")
    return labels, columns


def _row(found: MatrixText, line: str, columns: list[str]) -> None:
    label, *rest = line.split()
    count = len(found.labels)
    cells, beside = rest[:count], rest[count:]
    for column, raw in zip(found.labels, cells, strict=False):
        if not CELL.fullmatch(raw):
            raise InvalidInput(
                f"row {label}, column {column}: {raw[:20]!r} is none of X, NV#, PIX, PXB, PHB, NODE, SYS"
            )
        _cell(found, label, column, {"SOC": "SYS"}.get(raw, raw))
    for name, value in zip(columns, _beside(line, beside, columns, count), strict=False):
        if name == "cpu affinity":
            found.cpus[label] = value
        elif name == "numa affinity":
            found.numa[label] = value


def _beside(line: str, beside: list[str], columns: list[str], count: int) -> list[str]:
    """What stands right of the cells. With tabs an empty CPU list has its column; with spaces it is not there."""
    if line.count("\t") > count:
        return [field.strip() for field in line.split("\t")[count + 1 :]]
    missing = len(columns) - len(beside)
    return [""] * missing + beside if beside and missing > 0 else beside


def _cell(found: MatrixText, row: str, column: str, value: str) -> None:
    if value in {"?", "N/A"}:
        return
    if (value == "X") != (row == column):
        raise InvalidInput(f"row {row}, column {column}: X belongs on the diagonal and nowhere else")
    known = found.cells.get((column, row), value)
    if known != value:
        raise InvalidInput(
            f"{row} to {column} is {value}, {column} to {row} is {known}: a matrix is the same both ways"
        )
    found.cells[row, column] = found.cells[column, row] = value
