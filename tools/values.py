"""The page of the chart's values: names, types and meanings from its schema, defaults from its values.yaml."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parent.parent / "deploy/helm/dranet"
TYPES = {"strings": "map of strings", "effects": "string", "duration": "duration", "folder": "path"}
"""Readable names of the schema's own definitions."""


def value_rows() -> Iterator[tuple[str, ...]]:
    """One row for each value, in the order of the schema."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    for path, described in _leaves(schema, ()):
        yield f"`{'.'.join(path)}`", _type(described), _default(defaults, path), described["description"]


def _leaves(schema: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    for name, inner in schema["properties"].items():
        if "properties" in inner:
            yield from _leaves(inner, (*path, name))
        else:
            yield (*path, name), inner


def _type(described: dict[str, Any]) -> str:
    if "$ref" in described:
        return TYPES[described["$ref"].rpartition("/")[2]]
    if "enum" in described:
        return "one of " + ", ".join(f"`{word}`" for word in described["enum"])
    kinds = described["type"]
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def _default(defaults: dict[str, Any], path: tuple[str, ...]) -> str:
    found: Any = defaults
    for name in path:
        if not isinstance(found, dict) or name not in found:
            return "not set"
        found = found[name]
    if isinstance(found, dict) and found:
        return "see values.yaml"
    return f"`{json.dumps(found)}`"
