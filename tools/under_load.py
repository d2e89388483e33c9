"""Runs a command next to two busy loops per core: `python -m tools.under_load COMMAND...`.

A test that passes alone and fails here depends on how fast the machine is.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

LOOPS_PER_CORE = 2


def _spin() -> None:
    while True:
        pass


def main(command: list[str]) -> int:
    loops = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(LOOPS_PER_CORE * (os.cpu_count() or 1))]
    for loop in loops:
        loop.start()
    try:
        return subprocess.run(command).returncode
    finally:
        for loop in loops:
            loop.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
