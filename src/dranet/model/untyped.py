"""Looking into objects somebody else wrote: what is not of the expected shape reads as empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def mappings(value: Any) -> list[dict[str, Any]]:
    """The mappings among the entries of a list."""
    return [entry for entry in sequence(value) if isinstance(entry, dict)]


def at(value: Any, *path: str) -> Any:
    """What stands below nested mappings, or None."""
    for key in path:
        value = mapping(value).get(key)
    return value


def texts(value: Any) -> dict[str, str]:
    """A mapping of text to text, such as labels."""
    return {str(key): str(entry) for key, entry in mapping(value).items()}


def whole(value: Any, default: int = 0) -> int:
    """The value if it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def name_of(obj: Mapping[str, Any]) -> str:
    """metadata.name."""
    return str(mapping(obj.get("metadata")).get("name") or "")


def namespace_of(obj: Mapping[str, Any]) -> str:
    """metadata.namespace, with the API's default."""
    return str(mapping(obj.get("metadata")).get("namespace") or "default")
