"""The tables of perftest, such as ``ib_write_bw``. Its megabytes are 2**20 bytes, its gigabits are decimal."""

from __future__ import annotations

import re

from dranet.advise.report.runs import GBYTE, Rate, Row

TITLE = re.compile(r"^\s*(RDMA_Write|RDMA_Read|Send|Atomic)(?: Bidirectional)? BW Test\b")
HEADER = re.compile(r"^\s*#bytes\s+#iterations\s+BW peak\[(MB|Gb|MiB)/sec\]")
DEVICE = re.compile(r"(?:^|\s)Device\s*:\s*([\w.-]+)")
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+[\d.]+(?:\s+[\d.]+)?\s*$")
"""Bytes, iterations, peak, average, messages a second, and with --cpu_util the CPU load."""
_PROGRAMS = {"RDMA_Write": "ib_write_bw", "RDMA_Read": "ib_read_bw", "Send": "ib_send_bw", "Atomic": "ib_atomic_bw"}
_UNITS = {"MB": 2**20 / GBYTE, "MiB": 2**20 / GBYTE, "Gb": 1e9 / 8 / GBYTE}


def read_title(line: str) -> str | None:
    """The program, from the title of its output."""
    found = TITLE.match(line)
    return _PROGRAMS[found[1]] if found else None


def read_unit(line: str) -> float | None:
    """GB/s in one unit of the table, from its header."""
    found = HEADER.match(line)
    return _UNITS[found[1]] if found else None


def read_row(line: str, unit: float) -> Row | None:
    """The average of one size; the peak is of a single message."""
    found = _ROW.match(line)
    if found is None:
        return None
    rate = float(found[4]) * unit
    return Row(int(found[1]), Rate(rate, rate))
