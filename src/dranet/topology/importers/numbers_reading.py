"""Lists and masks of CPUs, as the kernel, hwloc and NCCL write them."""

from __future__ import annotations

import re

from dranet.model.errors import InvalidInput

MOST_CPUS = 1 << 14


def cpu_list(bits: int) -> str:
    """A mask as a list: ``0-3,8``."""
    runs: list[list[int]] = []
    for cpu in range(min(bits.bit_length(), MOST_CPUS)):
        if bits >> cpu & 1:
            if runs and runs[-1][1] == cpu - 1:
                runs[-1][1] = cpu
            else:
                runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def mask(text: str) -> int:
    """``0x0000ffff,,0xffffffff`` or ``0000ffff,ffffffff``: words of 32 bits, the highest first, an empty one is 0."""
    if text.startswith("0xf...f"):
        return 0  # hwloc's "everything": says nothing
    words = [word.removeprefix("0x") or "0" for word in text.strip().split(",")] if text.strip() else []
    if len(words) > MOST_CPUS // 32 or not all(re.fullmatch(r"[0-9a-fA-F]{1,8}", word) for word in words):
        raise InvalidInput(f"{text[:60]!r} is no mask of CPUs or NUMA nodes")
    value = 0
    for word in words:
        value = value << 32 | int(word, 16)
    return value


def cpus_of_list(text: str) -> list[int]:
    """``0-3,8`` as numbers."""
    found: list[int] = []
    for piece in filter(None, text.split(",")):
        first, _, last = piece.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()) or int(last or first) >= MOST_CPUS:
            raise InvalidInput(f"{text[:60]!r} is no list of CPUs such as 0-3,8")
        found += range(int(first), int(last or first) + 1)
    return found
