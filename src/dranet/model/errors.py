"""The one exception tree of the project.

    DranetError
    ├── InvalidInput          what a person wrote is wrong; carries every problem found, not only the first
    ├── NotFound              something named does not exist on this machine or cluster
    ├── Busy                  something exists but somebody else holds it
    ├── KernelError           the kernel refused (defined in dranet.kernel)
    └── ...                   rooms add their own leaves

A message says what was asked, what was found and what to do. Programs catch a class; people read the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec


class DranetError(Exception):
    """Everything this project raises on purpose."""


class NotFound(DranetError):
    """A device, shape, file or object that was named does not exist."""


class Busy(DranetError):
    """The thing exists, but another claim, pod or process holds it."""


class Problem(msgspec.Struct, frozen=True):
    """One thing wrong with an input, at the place where it stands."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidInput(DranetError):
    """An input with one or more problems; every one of them is reported at once."""

    def __init__(self, problems: Iterable[Problem] | str) -> None:
        found = (Problem("", problems),) if isinstance(problems, str) else tuple(problems)
        self.problems: Sequence[Problem] = found
        super().__init__("; ".join(str(problem) for problem in found))
