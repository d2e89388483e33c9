"""The tables of nccl-tests, old and new, and of programs that print the same.

A row is read from both ends: size, count and type are first, the figures last: time, algbw, busbw and the number of
wrong values, for out of place and in place. Between them versions and collectives print an operation, a root, both or
neither. ``#wrong`` is an error such as ``2e-07`` in old versions, and ``N/A`` without a check.
"""

from __future__ import annotations

import re

from dranet.advise.report.runs import Rank, Rate, Row

SETTINGS = re.compile(r"^#\s*nThread\b")
_SWEEP = re.compile(r"minBytes (\d+) maxBytes (\d+) step: (\d+)\((factor|bytes)\)")
HEADER = re.compile(r"^#\s+size\s+count\b.*\bbusbw\b")
_RANK = re.compile(r"^#\s+Rank\s+(\d+).*?\bon\s+(\S+)\s+device\s+\d+\s+\[(?:0x)?([0-9a-fA-F:.]+)\]\s*(.*?)\s*$")
_RANK_WITHOUT_GPU = re.compile(r"^#\s+Rank\s+(\d+).*?\bon\s+(\S+)\s*$")
AVERAGE = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*([\d.]+)")
OUT_OF_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d+)")
_NAMES = "all_reduce|all_gather|reduce_scatter|alltoall|hypercube|broadcast|sendrecv|gather|scatter|reduce"
NAME = re.compile(rf"\b({_NAMES})_perf\b|(?<!\S)-t\s+({_NAMES})\b|^# Collective: ({_NAMES})\b")
LIKE_A_ROW = re.compile(r"^\s*\d+\s+\d+\s+[a-z]")
_TYPE = re.compile(r"u?int(8|32|64)|half|float|double|bfloat16|f(loat|p)?8\w*")


def read_sweep(line: str) -> tuple[int, ...] | None:
    """The requested sizes of a run."""
    found = _SWEEP.search(line)
    if found is None:
        return None
    low, high, step = (int(found[n]) for n in (1, 2, 3))
    sizes = [low]
    while step > (found[4] == "factor") and len(sizes) < 4096:
        following = sizes[-1] * step if found[4] == "factor" else sizes[-1] + step
        if following > high or following <= sizes[-1]:
            break
        sizes.append(following)
    return tuple(sizes)


def read_rank(line: str) -> Rank | None:
    """A line below ``# Using devices``."""
    if found := _RANK.match(line):
        return Rank(int(found[1]), found[2], found[3].lower(), found[4])
    if found := _RANK_WITHOUT_GPU.match(line):
        return Rank(int(found[1]), found[2])
    return None


def read_row(line: str) -> tuple[Row, int] | None:
    """A row and the number of its wrong values; None for other lines."""
    words = line.split()
    if len(words) < 7 or not (words[0].isdecimal() and words[1].isdecimal() and _TYPE.fullmatch(words[2])):
        return None
    ways = 2 if len(words) - 3 >= 8 else 1
    if len(words) - 3 - 4 * ways > 2:
        return None
    try:
        measured = [_way(words[len(words) - 4 * (ways - n) :][:4]) for n in range(ways)]
    except ValueError:
        return None
    rates, wrong = [rate for rate, _ in measured], sum(bad for _, bad in measured)
    return Row(int(words[0]), rates[0], rates[1] if ways == 2 else None), wrong


def _way(words: list[str]) -> tuple[Rate, int]:
    float(words[0])
    return Rate(float(words[1]), float(words[2])), _wrong(words[3])


def _wrong(word: str) -> int:
    if word.isdecimal():
        return int(word)
    if word != "N/A":
        float(word)  # An error such as 2e-07 is rounding, not a wrong value; other text raises.
    return 0


def guess_collective(rows: tuple[Row, ...], line: str, world: int | None) -> str:
    """The collective, from the operation, the root, and the ratio of bus to algorithm bandwidth."""
    words = line.split()
    operation = next((word for word in words[3:5] if word.isalpha()), "")
    rooted = any(word.isdecimal() for word in words[4:5]) and operation not in {"", "none"}
    row = max(rows, key=lambda row: row.out_of_place.algbw, default=None)
    if row is None or not row.out_of_place.algbw:
        return "" if row is None or operation in {"", "none"} or rooted else "all_reduce"
    share = row.out_of_place.busbw / row.out_of_place.algbw
    if operation in {"", "none"}:
        return "broadcast" if abs(share - 1) < 0.02 and world != 1 else "all_gather"
    if rooted:
        return "reduce"
    return "reduce_scatter" if share < 0.98 else "all_reduce"
