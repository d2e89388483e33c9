"""Reading plain data nobody has checked: whatever is of the wrong type reads as empty."""

from __future__ import annotations

from typing import Any

from dranet.manifests.yaml_nodes import FieldPath


def reach(data: Any, path: FieldPath) -> Any:
    """The value at a path, or None."""
    for step in path:
        if isinstance(data, dict) and isinstance(step, str):
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            return None
    return data


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []
