"""The tables of perftest, such as ``ib_write_bw``. Its megabytes are 2**20 bytes, its gigabits are decimal."""

from __future__ import annotations

import re

from dranet.advise.report.runs import GBYTE, Rate, Row

TITLE = re.compile(r"^\s*(RDMA_Write|RDMA_Read|Send|Atomic)\b.*\bBW Test\b")
HEADER = re.compile(r"^\s*#bytes\s+#iterations\s.*\bBW average\[(MB|Gb|MiB)/sec\]")
DEVICE = re.compile(r"(?:^|\s)Device\s*:\s*([\w.-]+)")
ROW = re.compile(r"^\s*\d+\s+\d+\s+-?[\d.]+\s+-?[\d.]+(?:\s+-?[\d.]+)*\s*$")
UNNAMED = "perftest"
"""A table without the title that names the program."""
_PROGRAMS = {"RDMA_Write": "ib_write_bw", "RDMA_Read": "ib_read_bw", "Send": "ib_send_bw", "Atomic": "ib_atomic_bw"}
PROGRAMS = (*_PROGRAMS.values(), UNNAMED)
_UNITS = {"MB": 2**20 / GBYTE, "MiB": 2**20 / GBYTE, "Gb": 1e9 / 8 / GBYTE}


def read_title(line: str) -> str | None:
    """The program, from the title of its output."""
    found = TITLE.match(line)
    return _PROGRAMS[found[1]] if found else None


def read_unit(line: str) -> float | None:
    """GB/s in one unit of the table, from its header."""
    found = HEADER.match(line)
    return _UNITS[found[1]] if found else None


def is_bidirectional(line: str) -> bool:
    """Whether the title says that the figures are the sum of both directions."""
    return "Bidirectional" in line


def average_column(line: str) -> int:
    """The number of the column with the average, from the header."""
    names = re.findall(r"#\w+|BW \w+\[[^]]*\]|\w+\[[^]]*\]", line)
    return next((n for n, name in enumerate(names) if name.startswith("BW average")), 3)


def read_row(line: str, unit: float, column: int = 3) -> Row | None:
    """The average of one size; the peak is of a single message, and 0 in runs by time."""
    words = line.split()
    if not ROW.match(line) or len(words) <= column or words[column].startswith("-"):
        return None
    rate = float(words[column]) * unit
    return Row(int(words[0]), Rate(rate, rate))
