"""Did you mean ...? One way to guess the name somebody wanted, for commands, rules, shapes and attributes."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name most like this one, whatever the case; None where none is like it."""
    import difflib  # only for who has mistyped: the daemon starts without it

    lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), list(lower), 1, cutoff)
    return lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean rdma?``, or an empty text."""
    found = nearest(name, known)
    return f"; did you mean {found}?" if found else ""
