"""Access to untyped JSON and YAML. Values of an unexpected type read as empty, so callers need no type checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is a dictionary, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_dicts(value: Any) -> list[dict[str, Any]]:
    """The dictionaries among the entries of a list."""
    return [entry for entry in as_list(value) if isinstance(entry, dict)]


def get_path(value: Any, *path: str | int) -> Any:
    """The value below nested dictionaries and lists, or None."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def as_strings(value: Any) -> dict[str, str]:
    """A dictionary of strings, such as labels."""
    return {str(key): str(entry) for key, entry in as_dict(value).items()}


def as_int(value: Any, default: int = 0) -> int:
    """The value if it is an integer and not a bool."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def name_of(obj: Mapping[str, Any]) -> str:
    """metadata.name."""
    return str(as_dict(obj.get("metadata")).get("name") or "")


def namespace_of(obj: Mapping[str, Any]) -> str:
    """metadata.namespace, or `default`, as the API fills it in."""
    return str(as_dict(obj.get("metadata")).get("namespace") or "default")
