"""A shape written down as the TOML file it could have been read from."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from dranet.topology.shape import Shape


def to_toml(shape: Shape) -> str:
    """The file for a shape: `parse_shape` reads it back to an equal one. Defaults are left out."""
    lines = [f"name = {_value(shape.name)}"]
    lines += [f"{key} = {_value(value)}" for key in ("title", "network") if (value := getattr(shape, key))]
    for key in ("sources", "unknown"):
        lines += _list(key, getattr(shape, key))
    if shape.nccl:
        lines.append(f"nccl = {_long(shape.nccl)}")
    lines += _table("cloud_attributes", shape.cloud_attributes)
    lines += _table("told", shape.told)
    for numa in shape.numa:
        lines += _entry("[[numa]]", numa)
    for table, kinds in (("gpu_kinds", shape.gpu_kinds), ("nic_kinds", shape.nic_kinds)):
        for name, kind in sorted(kinds.items()):
            lines += _entry(f"[{table}.{_key(name)}]", kind, nested=f"{table}.{_key(name)}")
    for gpu in shape.gpus:
        lines += _entry("[[gpus]]", gpu)
    for nic in shape.nics:
        lines += _entry("[[nics]]", nic)
    return "\n".join(lines) + "\n"


def _entry(head: str, part: msgspec.Struct, nested: str = "") -> list[str]:
    lines = ["", head]
    after: list[str] = []
    for field in msgspec.structs.fields(part):
        value = getattr(part, field.name)
        default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
        if value == default or value is None:
            continue
        if nested and isinstance(value, dict):
            after = _table(f"{nested}.{field.name}", value)
        else:
            lines.append(f"{field.name} = {_value(value)}")
    return lines + after


def _table(name: str, values: dict[str, Any]) -> list[str]:
    return ["", f"[{name}]", *(f"{_key(key)} = {_value(values[key])}" for key in values)] if values else []


def _list(name: str, values: list[str]) -> list[str]:
    return [f"{name} = [", *(f"    {_value(value)}," for value in values), "]"] if values else []


def _long(text: str) -> str:
    """A text of many lines as it is, where TOML can hold it so."""
    plain = "'''" not in text and all(char.isprintable() or char in "\n\t" for char in text)
    return f"'''\n{text}'''" if plain else _value(text)


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else _value(name)


def _value(value: Any) -> str:
    """JSON's strings, numbers, booleans and lists are TOML's too; its objects become inline tables."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, msgspec.Struct):
        return _value(msgspec.to_builtins(value))
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
