"""Durations and timestamps: parsing, printing, parts.

Duration text is Go's (`1h2m3.5s`), timestamps are RFC 3339. Python's datetime knows microseconds only, so nanoseconds
are carried beside it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from fractions import Fraction
from typing import Any

from dranet.cel import types as t
from dranet.cel.errors import Err
from dranet.cel.functions import Function, Overload, function
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
    """RFC 3339. None for text that is no date; an error value for one outside of what CEL can hold."""
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
        from zoneinfo import ZoneInfo  # few expressions name a zone, and all who import us would pay

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


def _part(pick: Any) -> Any:
    def with_zone(value: Timestamp, zone_name: str) -> Any:
        zone = _zone(zone_name)
        return zone if zone.__class__ is Err else pick(_moment(value, zone), value)  # type: ignore[arg-type]

    return with_zone


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
_OF_DURATION = {
    "getHours": ("hours", 3600 * 10**9),
    "getMinutes": ("minutes", 60 * 10**9),
    "getSeconds": ("seconds", 10**9),
    "getMilliseconds": ("milliseconds", 10**6),
}


def _truncated(nanos: int, unit: int) -> int:
    return nanos // unit if nanos >= 0 else -(-nanos // unit)


def _divided(unit: int) -> Any:
    return lambda value: _truncated(value.nanos, unit)


def _getter(name: str) -> Function:
    word, pick = _PARTS[name]
    with_zone = _part(pick)
    suffix = "tz" if name == "getSeconds" else "with_tz"
    overloads = [
        Overload(f"timestamp_to_{word}", (t.TIMESTAMP,), t.INT, lambda value: with_zone(value, "UTC"), member=True),
        Overload(f"timestamp_to_{word}_{suffix}", (t.TIMESTAMP, t.STRING), t.INT, with_zone, member=True),
    ]
    if name in _OF_DURATION:
        unit_name, unit = _OF_DURATION[name]
        overloads.append(Overload(f"duration_to_{unit_name}", (t.DURATION,), t.INT, _divided(unit), member=True))
    return function(name, *overloads)


TIME_FUNCTIONS: tuple[Function, ...] = tuple(_getter(name) for name in _PARTS)
