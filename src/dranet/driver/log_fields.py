"""Whom a log line is about: pod, claim and device as fields, so that operators can filter by them.

Who begins to work for somebody says so once (`with about(pod=...)`), and every line from in there carries it, also
those of rooms that know nothing of pods. The fields follow the work into tasks and into `asyncio.to_thread`; into other
threads they have to be taken along.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol


class Named(Protocol):
    """A pod or a claim, in whatever words."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...


class about:
    """Lines logged in here are about these, and about what was said further out.

    The words are made when a line is logged: most hooks log none.
    """

    def __init__(self, *, pod: Named | None = None, claim: Named | None = None, device: str | None = None) -> None:
        self._said = (("pod", pod), ("claim", claim)), device

    def __enter__(self) -> None:
        self._before = _SAID.set((*_SAID.get(), self._said))

    def __exit__(self, *_: object) -> None:
        _SAID.reset(self._before)


_Said = tuple[tuple[tuple[str, Named | None], ...], str | None]
_SAID: ContextVar[tuple[_Said, ...]] = ContextVar("log fields", default=())


def fields() -> Mapping[str, str]:
    """What a line logged now is about."""
    found: dict[str, str] = {}
    for said, device in _SAID.get():
        for kind, named in said:
            if named is not None:
                found |= {kind: f"{named.namespace}/{named.name}", f"{kind}_uid": named.uid}
        if device is not None:
            found["device"] = device
    return found
