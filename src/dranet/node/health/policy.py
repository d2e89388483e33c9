"""Severity and thresholds of each fault, from `policy.toml`; an operator's file of the same form overrides values.

Unknown names in the operator's file are errors: a misspelt fault would never be found.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from dranet.core.device import FaultKind
from dranet.core.errors import InvalidInput, NotFound, Problem

BROKEN, DEGRADED, OFF = "broken", "degraded", "off"
_SEVERITIES = (BROKEN, DEGRADED, OFF)
_TEXTS, _NUMBERS = ("severity", "title", "where", "remedy"), ("seen", "changes", "window_seconds")
_TABLES = ("fatal", "per_minute")


class FaultPolicy(msgspec.Struct, frozen=True):
    """One fault: its description, severity and thresholds."""

    severity: str
    title: str
    where: str
    remedy: str
    seen: int = 1
    changes: int = 0
    window_seconds: int = 0
    fatal: Mapping[str, int] = msgspec.field(default_factory=dict)
    per_minute: Mapping[str, int] = msgspec.field(default_factory=dict)


Policy = Mapping[FaultKind, FaultPolicy]


@cache
def default_policy() -> Policy:
    """The policy this package ships."""
    return _policy(_shipped())


def read_policy(path: str | Path) -> Policy:
    """The default policy with an operator's overrides; the error lists every problem in the file."""
    import tomllib

    try:
        changes = tomllib.loads(Path(path).read_text("utf-8"))
    except FileNotFoundError as error:
        raise NotFound(f"{path}: no such file; --policy and --health-policy take the path of a TOML file") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"{path}: {error}") from error
    shipped = _shipped()
    problems = [p for fault, values in changes.items() for p in _problems(fault, values, shipped)]
    if problems:
        raise InvalidInput([Problem(f"{path} {p.path}", p.message) for p in problems])
    return _policy({fault: _override(values, changes.get(fault, {})) for fault, values in shipped.items()})


def _shipped() -> dict[str, dict[str, Any]]:
    import tomllib  # loaded only by processes that check health

    # Not importlib.resources: it costs 1 MB of memory, and the package never runs from an archive.
    return tomllib.loads(Path(__file__).with_name("policy.toml").read_text("utf-8"))


def _policy(tables: Mapping[str, Mapping[str, Any]]) -> Policy:
    return {FaultKind(fault): FaultPolicy(**values) for fault, values in tables.items()}


def _override(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    tables = {name: {**values.get(name, {}), **changes[name]} for name in _TABLES if name in changes}
    return {**values, **changes, **tables}


def _problems(fault: str, values: object, shipped: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    if fault not in shipped:
        return [Problem(fault, f"unknown fault; known faults are {', '.join(shipped)}")]
    if not isinstance(values, dict):
        return [Problem(fault, "must be a table")]
    found = [Problem(f"{fault}.{name}", "unknown key") for name in values if name not in shipped[fault]]
    for name, value in values.items():
        if name == "severity" and value not in _SEVERITIES:
            found.append(Problem(f"{fault}.severity", f"{value!r} is not one of {', '.join(_SEVERITIES)}"))
        elif name in _TEXTS and not isinstance(value, str):
            found.append(Problem(f"{fault}.{name}", "must be a string"))
        elif name in _NUMBERS and (type(value) is not int or value < 1):
            found.append(Problem(f"{fault}.{name}", "must be a positive integer"))
        elif name in _TABLES and not _is_counts(value):
            found.append(Problem(f"{fault}.{name}", "must be a table of counter names and positive integers"))
    return found


def _is_counts(value: object) -> bool:
    return isinstance(value, dict) and all(type(number) is int and number >= 1 for number in value.values())
