"""The tables of nixlbench. Its columns differ between versions, so the header says where block size and rate are."""

from __future__ import annotations

import re

from dranet.advise.report.runs import Rate, Row

PROGRAM = "nixlbench"
TITLE = re.compile(r"^\s*NIXLBench Configuration\s*$")
HEADER = re.compile(r"^\s*Block Size \(B\)\s+Batch Size\b.*\bB/W \((GB|GiB|MiB)/Sec\)")
_COLUMN = re.compile(r"\S+(?: \S+)*")
_SETTING = re.compile(r"^\s*(Backend|Initiator seg type|Target seg type|Op type|Device list|Mode)\b[^:]*:\s*(.*\S)")
STORAGE = frozenset({"GDS", "GDS_MT", "POSIX", "HF3FS", "OBJ", "GUSLI", "AZURE_BLOB"})
"""Backends that read and write files or objects, not the memory of another process."""
_UNITS = {"GB": 1.0, "GiB": 2**30 / 1e9, "MiB": 2**20 / 1e9}


def read_setting(line: str) -> tuple[str, str] | None:
    """Name and value of a line of the configuration; options may contain colons."""
    found = _SETTING.match(line)
    return (found[1], found[2].rpartition(":")[2].strip()) if found else None


def rate_column(line: str) -> tuple[int, float] | None:
    """The number of the column with the rate, and GB/s in one of its units."""
    if not HEADER.match(line):
        return None
    names = _COLUMN.findall(line)
    units = {name.partition("(")[2].partition("/")[0]: n for n, name in enumerate(names) if name.startswith("B/W")}
    unit = next(unit for unit in _UNITS if unit in units)
    return units[unit], _UNITS[unit]


def read_row(line: str, column: int, unit: float) -> Row | None:
    """One block size; None for other lines."""
    words = line.split()
    if len(words) <= column or len(words) < 4 or not (words[0].isdecimal() and words[1].isdecimal()):
        return None
    try:
        rate = float(words[column]) * unit
    except ValueError:
        return None
    return Row(int(words[0]), Rate(rate, rate))
