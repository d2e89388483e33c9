"""The tables of nccl-tests and rccl-tests, old and new, and of programs that print the same.

The header says which columns a row has: versions and collectives print an operation, a root, both or neither, figures
in place or none, and RCCL adds algorithm, protocol and channels. A row that does not fit its header, or has none, is
read from both ends: size, count and type are first, time, algbw, busbw and the number of wrong values last. ``#wrong``
is an error such as ``2e-07`` in old versions, and ``N/A`` without a check. Web pages often drop the leading ``#``.
"""

from __future__ import annotations

import re

from dranet.advise.report.runs import Rank, Rate, Row

SETTINGS = re.compile(r"^#?\s*nThread \d+ nGpus\b|^#\s*nThread\b")
_SWEEP = re.compile(r"minBytes (\d+) maxBytes (\d+) step: (\d+)\((factor|bytes)\)")
HEADER = re.compile(r"^#?\s*size(?:\(B\))?\s+count(?:\(\w+\))?\s.*\bbusbw\b")
_RANK = re.compile(r"^#?\s*Rank\s+(\d+).*?\bon\s+(\S+)\s+device\s+\d+\s+\[(?:0x)?([0-9a-fA-F:.]+)\]\s*(.*?)\s*$")
_RANK_WITHOUT_GPU = re.compile(r"^#\s+Rank\s+(\d+).*?\bon\s+(\S+)\s*$")
AVERAGE = re.compile(r"^#?\s*Avg bus bandwidth\s*:\s*([\d.]+)")
OUT_OF_BOUNDS = re.compile(r"^#?\s*Out of bounds values\s*:\s*(\d+)")
_NAMES = "all_reduce|all_gather|reduce_scatter|alltoall|hypercube|broadcast|sendrecv|gather|scatter|reduce"
NAME = re.compile(rf"\b({_NAMES})_perf\b|(?<!\S)-t\s+({_NAMES})\b|^# Collective: ({_NAMES})\b")
LIKE_A_ROW = re.compile(r"^\s*\d+\s+\d+\s+[a-z]")
_TYPE = re.compile(r"u?int(8|16|32|64)|half|float|double|bfloat16|f(loat|p)?(8|16|32|64)\w*|bf16|f8\w*")
_UNITS = re.compile(r"\(\S*\)")


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


def read_columns(line: str) -> tuple[str, ...]:
    """The columns of a header."""
    return tuple(_UNITS.sub("", word).lower() for word in line.lstrip("# ").split())


def read_row(line: str, columns: tuple[str, ...] = ()) -> tuple[Row, int] | None:
    """A row and the number of its wrong values; None for other lines."""
    words = line.split()
    if len(words) < 6 or not (words[0].isdecimal() and words[1].isdecimal() and _TYPE.fullmatch(words[2])):
        return None
    try:
        measured = _by_columns(words, columns) if len(words) == len(columns) else _from_the_end(words)
    except (ValueError, IndexError):
        return None
    if not measured:
        return None
    rates, wrong = [rate for rate, _ in measured], sum(bad for _, bad in measured)
    return Row(int(words[0]), rates[0], rates[1] if len(rates) == 2 else None), wrong


def _by_columns(words: list[str], columns: tuple[str, ...]) -> list[tuple[Rate, int]]:
    """Each `time` begins the figures of one way."""
    starts = [n for n, name in enumerate(columns) if name == "time"][:2]
    checked = [columns[n + 3 : n + 4] in {("#wrong",), ("error",), ("wrong",)} for n in starts]
    return [_way(words[n : n + 3 + check]) for n, check in zip(starts, checked, strict=True)]


def _from_the_end(words: list[str]) -> list[tuple[Rate, int]]:
    ways = 2 if len(words) - 3 >= 8 else 1
    if len(words) < 7 or len(words) - 3 - 4 * ways > 2:
        return []
    return [_way(words[len(words) - 4 * (ways - n) :][:4]) for n in range(ways)]


def _way(words: list[str]) -> tuple[Rate, int]:
    float(words[0])
    return Rate(float(words[1]), float(words[2])), _wrong(words[3]) if len(words) > 3 else 0


def _wrong(word: str) -> int:
    if word.isdecimal():
        return int(word)
    if word != "N/A":
        float(word)  # An error such as 2e-07 is rounding, not a wrong value; other text raises.
    return 0


def guess_collective(rows: tuple[Row, ...], line: str, world: int | None) -> str:
    """The collective, from the operation, the root, the checks, and the ratio of bus to algorithm bandwidth.

    Empty where several collectives print the same."""
    words = line.split()
    operation = next((word for word in words[3:5] if word.isalpha()), "")
    rooted = any(word.isdecimal() for word in words[4:5]) and operation not in {"", "none"}
    row = max(rows, key=lambda row: row.out_of_place.algbw, default=None)
    if row is None or row.out_of_place.algbw < 1:  # two digits after the point are no ratio
        return ""
    share = row.out_of_place.busbw / row.out_of_place.algbw
    unchecked = words[-1:] == ["N/A"]  # in place; nccl-tests cannot check all_to_all and send/recv in place
    if operation in {"", "none"}:
        if any(word.isdecimal() for word in words[3:5]) and abs(share - 1) < 0.02:
            return "broadcast"
        return "" if share > 0.98 else "all_gather" if not unchecked else "alltoall" if words.count("N/A") == 1 else ""
    if rooted:
        return "reduce"
    if share < 0.98:
        return "reduce_scatter"
    if share > 1.02:
        return "all_reduce"
    return "sendrecv" if words.count("N/A") == 1 else "all_reduce" if world == 2 and not unchecked else ""
