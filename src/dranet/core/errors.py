"""The exception classes of the project, and suggestions for misspelt names.

    DranetError
    ├── InvalidInput          user input is wrong; carries all problems, not only the first
    ├── NotFound              a named object does not exist on this machine or in this cluster
    ├── Busy                  the object exists, but another claim, pod or process holds it
    ├── KernelError           Linux refused a request; subclasses are in dranet.linux
    └── ...                   packages define their own subclasses

A message says what was wrong, where, and what to do. Programs catch a class; people read the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec


class DranetError(Exception):
    """Base class of all errors that this project raises deliberately."""


class NotFound(DranetError):
    """A named device, shape, file or object does not exist."""


class Busy(DranetError):
    """The object exists, but another claim, pod or process holds it."""


class KernelError(DranetError):
    """Linux refused a request, or lacks something that is needed."""


class Problem(msgspec.Struct, frozen=True):
    """One mistake in an input, and its path there."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidInput(DranetError):
    """An input with one or more problems; all of them are reported at once."""

    def __init__(self, problems: Iterable[Problem] | str) -> None:
        found = (Problem("", problems),) if isinstance(problems, str) else tuple(problems)
        self.problems: Sequence[Problem] = found
        super().__init__("; ".join(str(problem) for problem in found))


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most similar, ignoring case; one that contains the name wins. None if none is similar."""
    import difflib  # loaded only after a typo, so that the daemon starts without it

    lower = {one.lower(): one for one in known}
    inside = [one for one in lower if len(name) > 3 and name.lower() in one]
    found = difflib.get_close_matches(name.lower(), inside or list(lower), 1, 0 if inside else cutoff)
    return lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean rdma?``, or an empty string."""
    found = nearest(name, known)
    return f"; did you mean {found}?" if found else ""
