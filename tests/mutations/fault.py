"""A planted fault."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """One planted fault."""

    name: str
    file: str
    """The path of the module from the root of the repository."""
    old: str
    new: str
    tests: tuple[str, ...]
