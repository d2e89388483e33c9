"""Compares a file of recorded answers and prints the differences: `make golden FILE=path`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.golden import MalformedFile, compare_file

_SHOWN = 5
"""Differences printed; one cause usually changes many answers."""


def main(argv: Sequence[str]) -> int:
    """Exit status: 0 if every answer agrees, 1 if one differs, 2 if the file cannot be read."""
    if len(argv) != 1:
        print("usage: python -m tests.golden FILE", file=sys.stderr)
        return 2
    try:
        differences = [(name, difference) for name, difference in compare_file(Path(argv[0]))]
    except (OSError, MalformedFile) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    differing = [(name, difference) for name, difference in differences if difference is not None]
    for name, difference in differing[:_SHOWN]:
        print(f"{name}\n    {difference}")
    print(f"{len(differences) - len(differing)} of {len(differences)} agree")
    return 1 if differing or not differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
