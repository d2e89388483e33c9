"""A filter expression as a function of a device's attributes: the part of `filter` that needs CEL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dranet.cel import BOOL, INT, STRING, CelCompileError, CelProgramError, Environment, Err, list_of, map_of, struct
from dranet.cel.values import MISSING, Map, Struct
from dranet.core.device import attribute_kind
from dranet.core.errors import InvalidInput

_ATTRIBUTE = struct("DeviceAttribute")
_FIELDS = {
    "StringValue": STRING,
    "BoolValue": BOOL,
    "IntValue": INT,
    "VersionValue": STRING,
    "StringValues": list_of(STRING),
    "BoolValues": list_of(BOOL),
    "IntValues": list_of(INT),
    "VersionValues": list_of(STRING),
}
_ZEROS: Mapping[str, Any] = {"StringValue": "", "BoolValue": False, "IntValue": 0, "VersionValue": ""} | {
    name: [] for name in _FIELDS if name.endswith("s")
}
_FIELD_OF_KIND = {
    kind + plural: f"{kind.title()}Value{plural}"
    for kind in ("string", "bool", "int", "version")
    for plural in ("", "s")
}


def compile_filter(expression: str) -> Callable[[Mapping[str, Any]], bool | None]:
    """A function of the attributes: True, False for every other value, None if the evaluation fails."""
    program = _compile(expression)

    def evaluate(attributes: Mapping[str, Any]) -> bool | None:
        value, _ = program.run({"attributes": _Attributes(attributes)})
        return None if value.__class__ is Err else value is True

    return evaluate


def _compile(expression: str) -> Any:
    environment = Environment({"attributes": map_of(STRING, _ATTRIBUTE)}, structs={"DeviceAttribute": _FIELDS})
    try:
        return environment.compile(expression)
    except CelCompileError as error:
        where = f"line {error.line}, column {error.column}"
        raise InvalidInput(f"the CEL expression {expression!r} does not compile: {where}: {error.message}") from error
    except CelProgramError as error:
        raise InvalidInput(f"the CEL expression {expression!r} does not compile: {error.message}") from error


class _Attributes(Map):
    """A device's attributes as CEL values, converted on access: most filters use one of them."""

    __slots__ = ("_plain",)

    def __init__(self, plain: Mapping[str, Any]) -> None:
        super().__init__()
        self._plain = plain

    def find(self, key: Any) -> Any:
        value = self._plain.get(key) if key.__class__ is str else None
        return MISSING if value is None else _attribute(value)

    def contains(self, key: Any) -> bool:
        return key.__class__ is str and key in self._plain

    def keys(self) -> list[Any]:
        return list(self._plain)

    def items(self) -> Iterator[tuple[Any, Any]]:
        return ((key, _attribute(value)) for key, value in self._plain.items())

    def __len__(self) -> int:
        return len(self._plain)


def _attribute(value: Any) -> Struct:
    kind = attribute_kind(value)
    plain = list(value) if isinstance(value, tuple) else str(value) if kind == "version" else value
    return Struct(_ATTRIBUTE, {_FIELD_OF_KIND[kind]: plain}, _ZEROS)
