"""Message literals. Durations and timestamps can be written out; declared objects cannot, only received."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dranet.cel import types as t
from dranet.cel.errors import Err
from dranet.cel.run.operators import duration, timestamp

_TIME_FIELDS = {"seconds": t.INT, "nanos": t.INT}
WELL_KNOWN: dict[str, dict[str, t.Type]] = {t.DURATION.name: _TIME_FIELDS, t.TIMESTAMP.name: _TIME_FIELDS}


def new_message(name: str, fields: Mapping[str, Any]) -> Any:
    """A Duration or Timestamp written as a message with its fields; there are no other messages."""
    if name not in WELL_KNOWN:
        return Err(f"unknown type '{name}'")
    nanos = fields.get("seconds", 0) * 10**9 + fields.get("nanos", 0)
    return duration(nanos) if name == t.DURATION.name else timestamp(nanos)
