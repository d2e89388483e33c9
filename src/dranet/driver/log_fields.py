"""Whom a log line is about: pod, claim and device as fields, so that operators can filter by them.

Who begins to work for somebody says so once (`with about(pod=...)`), and every line from in there carries it, also
those of rooms that know nothing of pods. The fields follow the work into tasks and into `asyncio.to_thread`; into other
threads they have to be taken along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Protocol


class Named(Protocol):
    """A pod or a claim, in whatever words."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...


_NOBODY: Mapping[str, str] = MappingProxyType({})
_FIELDS: ContextVar[Mapping[str, str]] = ContextVar("log fields", default=_NOBODY)


@contextmanager
def about(*, pod: Named | None = None, claim: Named | None = None, device: str | None = None) -> Iterator[None]:
    """Lines logged in here are about these, and about what was said further out."""
    found = dict(_FIELDS.get())
    for kind, named in (("pod", pod), ("claim", claim)):
        if named is not None:
            found |= {kind: f"{named.namespace}/{named.name}", f"{kind}_uid": named.uid}
    if device is not None:
        found["device"] = device
    before = _FIELDS.set(found)
    try:
        yield
    finally:
        _FIELDS.reset(before)


def fields() -> Mapping[str, str]:
    """What a line logged now is about."""
    return _FIELDS.get()
