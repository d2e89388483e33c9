"""Attributes and capacities that a selector reads, found in its text."""

from __future__ import annotations

import re
from collections.abc import Iterator

_REFERENCE = re.compile(
    r"""device\s*\.\s*(?P<map>attributes|capacity)\s*\[\s*(?P<q>["'])(?P<domain>[^"']*)(?P=q)\s*\]"""
    r"""\s*(?:\.\s*\??\s*(?P<dot>[A-Za-z_]\w*)(?!\w*\s*\()|\[\s*\??\s*["'](?P<key>[^"']*)["']\s*\])"""
)


def names_read(text: str) -> Iterator[tuple[int, str]]:
    """Where the name itself stands, and the name with its domain."""
    for match in _REFERENCE.finditer(text):
        group = "dot" if match["dot"] else "key"
        yield match.start(group), f"{match['domain']}/{match[group]}"
