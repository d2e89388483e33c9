"""The wall clock, as a seam and in the form the API writes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Now = Callable[[], datetime]
"""The wall clock as a seam; waiting itself goes through the event loop, whose time a test can own."""


def utc_now() -> datetime:
    """The real wall clock."""
    return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """A moment in the API's form: seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
