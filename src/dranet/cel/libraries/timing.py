"""Durations and timestamps: parsing, printing, parts.

Duration text is Go's (`1h2m3.5s`), timestamps are RFC 3339. Python's datetime knows microseconds only, so nanoseconds
are kept in a second field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from fractions import Fraction
from typing import Any

from dranet.cel.errors import Err
from dranet.cel.functions import Declaration, functions
from dranet.cel.run.operators import MAX_TIME, MIN_TIME
from dranet.cel.values import MAX_INT, Duration, Timestamp

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII
)  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration(text: str) -> Duration | None:
    """Go's notation (``1h2.5s``), exact to the nanosecond; None for any other text."""
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return Duration(0)
    total, position = Fraction(0), 0
    while position < len(body):
        match = _PART.match(body, position)
        if match is None:
            return None
        total += Fraction(match.group(1) if match.group(1) != "." else "0") * _UNITS[match.group(2)]
        position = match.end()
    nanos = int(total)
    if not body or nanos > MAX_INT:
        return None
    return Duration(-nanos if text.startswith("-") else nanos)


def parse_timestamp(text: str) -> Timestamp | Err | None:
    """RFC 3339. None for invalid text; an error value for a time outside of CEL's range."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    zone = match.group(8)
    offset = 0
    if zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours > 24 or minutes > 60:
            return None
        offset = (hours * 60 + minutes) * (-60 if zone[0] == "-" else 60)
    try:
        if year == 0:
            return Err("timestamp overflow")
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    delta = moment - _EPOCH
    nanos = (delta.days * 86400 + delta.seconds - offset) * 10**9 + int((match.group(7) or "0")[:9].ljust(9, "0"))
    return Timestamp(nanos) if MIN_TIME <= nanos <= MAX_TIME else Err("timestamp overflow")


def _moment(value: Timestamp, zone: tzinfo = UTC) -> datetime:
    return (_EPOCH + timedelta(seconds=value.nanos // 10**9)).astimezone(zone)


def show_timestamp(value: Timestamp) -> str:
    """RFC 3339 in UTC, with as many decimals as there are."""
    moment = _EPOCH + timedelta(seconds=value.nanos // 10**9)
    fraction = f"{value.nanos % 10**9:09d}".rstrip("0")
    return f"{moment.year:04d}-{moment.strftime('%m-%dT%H:%M:%S')}{'.' + fraction if fraction else ''}Z"


def show_duration(value: Duration) -> str:
    """Seconds as the shortest decimal that reads back as the same double."""
    seconds = repr(value.nanos // 10**9 + (value.nanos % 10**9) / 1e9 if value.nanos >= 0 else value.nanos / 1e9)
    if "e" in seconds:
        seconds = f"{Fraction(value.nanos, 10**9).__float__():.9f}".rstrip("0").rstrip(".")
    return seconds.removesuffix(".0") + "s"


def _zone(name: str) -> tzinfo | Err:
    if ":" not in name:
        from zoneinfo import ZoneInfo  # imported late: few expressions name a zone

        try:
            return UTC if name in ("", "UTC") else ZoneInfo(name)
        except Exception:
            return Err(f"unknown time zone {name}")
    hours, _, minutes = name.partition(":")
    if not re.fullmatch(r"[+-]?\d+", hours) or not re.fullmatch(r"[+-]?\d+", minutes):
        bad = hours if not re.fullmatch(r"[+-]?\d+", hours) else minutes
        return Err(f'strconv.Atoi: parsing "{bad}": invalid syntax')
    offset = int(hours) * 60 + (-int(minutes) if name.startswith("-") else int(minutes))
    try:
        return timezone(timedelta(minutes=offset))
    except ValueError:
        return Err(f"unknown time zone {name}")


_PARTS: dict[str, tuple[str, Any]] = {
    "getFullYear": ("year", lambda moment, _: moment.year),
    "getMonth": ("month", lambda moment, _: moment.month - 1),
    "getDayOfYear": ("day_of_year", lambda moment, _: moment.timetuple().tm_yday - 1),
    "getDayOfMonth": ("day_of_month", lambda moment, _: moment.day - 1),
    "getDate": ("day_of_month_1_based", lambda moment, _: moment.day),
    "getDayOfWeek": ("day_of_week", lambda moment, _: (moment.weekday() + 1) % 7),
    "getHours": ("hours", lambda moment, _: moment.hour),
    "getMinutes": ("minutes", lambda moment, _: moment.minute),
    "getSeconds": ("seconds", lambda moment, _: moment.second),
    "getMilliseconds": ("milliseconds", lambda _, value: value.nanos % 10**9 // 10**6),
}
_UNITS_OF_DURATION = {"hours": 3600 * 10**9, "minutes": 60 * 10**9, "seconds": 10**9, "milliseconds": 10**6}


def _truncated(nanos: int, unit: int) -> int:
    return nanos // unit if nanos >= 0 else -(-nanos // unit)


def _getter(name: str) -> Iterator[Declaration]:
    word, pick = _PARTS[name]

    def part(value: Timestamp, zone_name: str = "UTC") -> Any:
        zone = _zone(zone_name)
        return zone if isinstance(zone, Err) else pick(_moment(value, zone), value)

    suffix = "tz" if name == "getSeconds" else "with_tz"
    yield name, f"timestamp_to_{word}", "timestamp.() -> int", part
    yield name, f"timestamp_to_{word}_{suffix}", "timestamp.(string) -> int", part
    if unit := _UNITS_OF_DURATION.get(word):
        yield name, f"duration_to_{word}", "duration.() -> int", lambda value: _truncated(value.nanos, unit)


TIME_FUNCTIONS = functions(*(declaration for name in _PARTS for declaration in _getter(name)))
