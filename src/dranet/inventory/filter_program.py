"""A filter expression as a function of a device's attributes: the part of `filter` that needs CEL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dranet.cel import BOOL, INT, STRING, CelCompileError, CelProgramError, Environment, Err, list_of, map_of, struct
from dranet.cel.values import MISSING, Map, Struct
from dranet.model.device import attribute_kind
from dranet.model.errors import InvalidInput

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


def compiled(expression: str) -> Callable[[Mapping[str, Any]], bool | None]:
    """What the expression says of attributes: true, or false for all that is not, or None where it fails."""
    program = _compile(expression)

    def verdict(attributes: Mapping[str, Any]) -> bool | None:
        said, _ = program.run({"attributes": _Attributes(attributes)})
        return None if said.__class__ is Err else said is True

    return verdict


def _compile(expression: str) -> Any:
    environment = Environment({"attributes": map_of(STRING, _ATTRIBUTE)}, structs={"DeviceAttribute": _FIELDS})
    try:
        return environment.compile(expression)
    except CelCompileError as error:
        where = f"line {error.line}, column {error.column}"
        raise InvalidInput(f"the filter {expression!r} does not compile: {where}: {error.message}") from error
    except CelProgramError as error:
        raise InvalidInput(f"the filter {expression!r} does not compile: {error.message}") from error


class _Attributes(Map):
    """A device's attributes as CEL sees them, made only when looked at: most filters look at one."""

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
