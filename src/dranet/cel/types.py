"""CEL types and the substitution rules the checker works with.

`any` is almost `dyn`: an attribute of a device is declared `any` and fits everywhere, yet it cannot be iterated over
and a list of it and of strings is refused as mixed. That difference decides which selectors compile.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import msgspec

_NULLABLE = frozenset({"opaque", "struct", "any", "duration", "timestamp"})
_EXACT = frozenset({"bool", "bytes", "double", "int", "string", "uint", "any", "duration", "timestamp", "struct"})
_WILD = frozenset({"dyn", "any", "error"})
_PLAIN = _EXACT - _WILD
_SHOWN = {
    "any": "any", "duration": "duration", "error": "!error!", "null": "null", "timestamp": "timestamp",
}  # fmt: skip


class Type(msgspec.Struct, frozen=True):
    """`kind` says how the checker treats it; `name` is the run-time type name."""

    kind: str
    name: str
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return format_type(self)


@lru_cache(maxsize=4096)
def format_type(type_: Type) -> str:
    """The way compile errors spell a type."""
    if type_.kind in _SHOWN:
        return _SHOWN[type_.kind]
    if not type_.params:
        return type_.name
    return f"{type_.name}({', '.join(format_type(param) for param in type_.params)})"


def _simple(kind: str, name: str = "") -> Type:
    return Type(kind, name or kind)


BOOL, BYTES, DOUBLE, INT, STRING, UINT = (
    _simple(kind) for kind in ("bool", "bytes", "double", "int", "string", "uint")
)
DURATION = Type("duration", "google.protobuf.Duration")
TIMESTAMP = Type("timestamp", "google.protobuf.Timestamp")
NULL = Type("null", "null_type")
DYN, ERROR = _simple("dyn"), _simple("error")
ANY = Type("any", "google.protobuf.Any")
TYPE = _simple("type")


def list_of(element: Type) -> Type:
    """``list(element)``; ``list(dyn)`` takes any."""
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """``map(key, value)``."""
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    """``optional_type(value)``: a value, or the lack of one."""
    return Type("opaque", "optional_type", (value,))


def type_of_type(value: Type) -> Type:
    """The type of an expression that names a type."""
    return Type("type", "type", (value,))


def struct(name: str) -> Type:
    """A message type, by its full name."""
    return Type("struct", name)


def opaque(name: str) -> Type:
    """A type of a library, which only that library can look into."""
    return Type("opaque", name)


def param(name: str) -> Type:
    """A type parameter: stands for one type in a whole signature."""
    return Type("param", name)


A, B = param("A"), param("B")
LIST, MAP = list_of(A), map_of(A, B)
OPTIONAL = optional_of(param("V"))
_NAMED = {
    "bool": BOOL, "bytes": BYTES, "double": DOUBLE, "int": INT, "string": STRING, "uint": UINT, "dyn": DYN,
    "duration": DURATION, "timestamp": TIMESTAMP,
}  # fmt: skip
_GENERIC: dict[str, Callable[..., Type]] = {
    "list": list_of,
    "map": map_of,
    "optional": optional_of,
    "type": type_of_type,
}
_LISTED = re.compile(r"(?:[^,()]|\((?:[^()]|\([^()]*\))*\))+")
_SIGNATURE = re.compile(r"(?:(.+)\.)?\((.*)\) -> (.+)")


@lru_cache(maxsize=256)
def parse_type(text: str) -> Type:
    """``map(string, A)``; one letter is a type parameter, and other names are objects of the Kubernetes libraries."""
    name, opened, inner = text.partition("(")
    if opened:
        return _GENERIC[name](*parse_types(inner[:-1]))
    if text in _NAMED or len(text) == 1:
        return _NAMED.get(text) or param(text)
    return opaque(text) if text.startswith("net.") else struct(f"kubernetes.{text}")


def parse_types(text: str) -> tuple[Type, ...]:
    """Types that are separated by commas."""
    return tuple(parse_type(one.strip()) for one in _LISTED.findall(text))


def parse_signature(text: str) -> tuple[bool, tuple[Type, ...], Type]:
    """``string.(int) -> bool``, the notation of cel-go's messages: whether it is a method, arguments, result.

    The first argument of a method is its target.
    """
    match = _SIGNATURE.fullmatch(text)
    assert match is not None, text
    target, args, result = match.groups()
    targets = (parse_type(target),) if target else ()
    return bool(target), (*targets, *parse_types(args)), parse_type(result)


def unwrap_optional(type_: Type) -> tuple[Type, bool]:
    """The type inside an optional, and whether it was one."""
    if type_.kind == "opaque" and type_.name == "optional_type":
        return type_.params[0], True
    return type_, False


def is_known(type_: Type) -> bool:
    """Whether no type variable is in it."""
    return type_.kind != "param" and all(map(is_known, type_.params))


def never_alike(source: Type, target: Type) -> bool:
    """Whether two types differ for every binding of their variables."""
    plain = source.kind in _PLAIN and target.kind in _PLAIN
    return plain and (source.kind, source.name) != (target.kind, target.name)


class Substitutions:
    """The bindings of type variables; copied before an attempt that may fail."""

    __slots__ = ("_bound",)

    def __init__(self, bound: dict[str, Type] | None = None) -> None:
        self._bound = bound or {}

    def copy(self) -> Substitutions:
        """A copy to try an overload: its bindings are kept only if it matches."""
        return Substitutions(dict(self._bound))

    def find(self, type_: Type) -> Type | None:
        """The current binding of a type parameter."""
        return self._bound.get(type_.name) if type_.kind == "param" else None

    def bind(self, variable: Type, type_: Type) -> None:
        """Bind the parameter to this type."""
        self._bound[variable.name] = type_

    def apply(self, type_: Type, *, unbound_to_dyn: bool = False) -> Type:
        """The type with all known variables replaced."""
        found = self.find(type_)
        if found is not None:
            return self.apply(found, unbound_to_dyn=unbound_to_dyn)
        if type_.kind == "param":
            return DYN if unbound_to_dyn else type_
        if not type_.params:
            return type_
        params = tuple(self.apply(inner, unbound_to_dyn=unbound_to_dyn) for inner in type_.params)
        return Type(type_.kind, type_.name, params)

    def assign(self, source: Type, target: Type) -> bool:
        """Whether `source` is assignable to `target`; binds type variables."""
        if target.kind == "param":
            valid, known = self._substitutable(source, target)
            if valid:
                return True
            if known:
                return False
        if source.kind == "param":
            return self._substitutable(target, source)[0]
        if source.kind in _WILD or target.kind in _WILD:
            return True
        if source.kind == "null" or target.kind == "null":
            other = target if source.kind == "null" else source
            return other.kind in _NULLABLE or other.kind == "null"
        if source.kind in _EXACT:
            return source.kind == target.kind and source.name == target.name
        if source.kind == "type":
            return target.kind == "type"
        same = source.kind == target.kind and source.name == target.name
        return same and self.assign_all(source.params, target.params)

    def assign_all(self, sources: tuple[Type, ...], targets: tuple[Type, ...]) -> bool:
        """Whether each source fits its target; what was bound before one did not stays bound."""
        return len(sources) == len(targets) and all(
            self.assign(source, target) for source, target in zip(sources, targets, strict=True)
        )

    def _substitutable(self, type_: Type, variable: Type) -> tuple[bool, bool]:
        if type_ == variable:
            return True, True
        bound = self.find(variable)
        if bound is None:
            if self._absent(variable, type_):
                self.bind(variable, type_)
                return True, False
            return False, False
        if type_ == bound:
            return True, True
        if not self.assign(type_, bound):
            return False, True
        general = most_general(type_, bound)
        if self._absent(variable, general):
            self.bind(variable, general)
        return True, True

    def _absent(self, variable: Type, within: Type) -> bool:
        if variable == within:
            return False
        if within.kind == "param":
            bound = self.find(within)
            return bound is None or self._absent(variable, bound)
        return all(self._absent(variable, inner) for inner in within.params)


def most_general(first: Type, second: Type) -> Type:
    """The more general of two compatible types: dyn before all others."""
    return first if _less_specific(first, second) else second


def _less_specific(first: Type, second: Type) -> bool:
    if first.kind in ("dyn", "any", "param"):
        return True
    if second.kind in ("dyn", "any", "param") or first.kind != second.kind:
        return False
    if first.kind == "type":
        return True
    if first.kind not in ("opaque", "list", "map"):
        return first == second
    return (
        first.name == second.name
        and len(first.params) == len(second.params)
        and all(_less_specific(one, other) for one, other in zip(first.params, second.params, strict=True))
    )
