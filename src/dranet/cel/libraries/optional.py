"""Optional values, local bindings and comprehensions with two variables."""

from __future__ import annotations

from typing import Any

from dranet.cel import types as t
from dranet.cel.errors import NO_SUCH_OVERLOAD, Err
from dranet.cel.functions import Function, Library, functions, overloads
from dranet.cel.run.paths import show
from dranet.cel.syntax.macros import BINDINGS as BINDING_MACROS
from dranet.cel.syntax.macros import OPTIONALS as OPTIONAL_MACROS
from dranet.cel.syntax.macros import TWO_VARIABLES as TWO_VARIABLE_MACROS
from dranet.cel.values import NONE, Map, OptionalValue, is_zero


def _value(optional: OptionalValue) -> Any:
    return optional.value if optional.present else Err("optional.none() dereference")


def _of_non_zero(value: Any) -> OptionalValue:
    return NONE if is_zero(value) else OptionalValue(value)


def _unwrap(items: list[Any]) -> Any:
    for item in items:
        if item.__class__ is not OptionalValue:
            return Err(f"value {show(item)} is not optional")
    return [item.value for item in items if item.present]


def _planned(*values: Any) -> Any:
    return NO_SUCH_OVERLOAD


def _special(name: str, *rows: tuple[str, str]) -> Function:
    """Declared for the checker; the compiler has its own plan for it."""
    return Function(name, overloads(*rows), _planned)


def _optional(values: list[Any]) -> OptionalValue:
    return OptionalValue(values[0]) if values else NONE


OPTIONALS = Library(
    "optional",
    functions=(
        *functions(
            ("optional.of", "optional_of", "(V) -> optional(V)", OptionalValue),
            ("optional.ofNonZeroValue", "optional_ofNonZeroValue", "(V) -> optional(V)", _of_non_zero),
            ("optional.none", "optional_none", "() -> optional(V)", lambda: NONE),
            ("value", "optional_value", "optional(V).() -> V", _value),
            ("hasValue", "optional_hasValue", "optional(V).() -> bool", lambda optional: optional.present),
            ("last", "list_last", "list(V).() -> optional(V)", lambda items: _optional(items[-1:])),
            ("first", "list_first", "list(V).() -> optional(V)", lambda items: _optional(items[:1])),
            ("optional.unwrap", "optional_unwrap", "(list(optional(V))) -> list(V)", _unwrap),
            ("unwrapOpt", "optional_unwrapOpt", "list(optional(V)).() -> list(V)", _unwrap),
        ),
        _special("or", ("optional_or_optional", "optional(V).(optional(V)) -> optional(V)")),
        _special("orValue", ("optional_orValue_value", "optional(V).(V) -> V")),
        _special("_?._", ("select_optional_field", "(dyn, string) -> optional(V)")),
        _special(
            "_[?_]",
            ("list_optindex_optional_int", "(list(V), int) -> optional(V)"),
            ("optional_list_optindex_optional_int", "(optional(list(V)), int) -> optional(V)"),
            ("map_optindex_optional_value", "(map(K, V), K) -> optional(V)"),
            ("optional_map_optindex_optional_value", "(optional(map(K, V)), K) -> optional(V)"),
        ),
        _special(
            "_[_]",
            ("optional_list_index_int", "(optional(list(V)), int) -> optional(V)"),
            ("optional_map_index_value", "(optional(map(K, V)), K) -> optional(V)"),
        ),
    ),
    macros=tuple(OPTIONAL_MACROS.items()),
    types=(t.OPTIONAL,),
)

BINDINGS = Library("bindings", macros=tuple(BINDING_MACROS.items()))


def _insert(target: Map, key: Any, value: Any) -> Any:
    if target.contains(key):
        return Err(f"insert failed: key {show(key)} already exists")
    return Map([*target.items(), (key, value)])


def _insert_all(target: Map, update: Map) -> Any:
    merged: Any = target
    for key, value in update.items():
        merged = _insert(merged, key, value)
        if merged.__class__ is Err:
            return merged
    return merged


TWO_VARIABLES = Library(
    "two-variable comprehensions",
    functions=functions(
        ("cel.@mapInsert", "@mapInsert_map_key_value", "(map(K, V), K, V) -> map(K, V)", _insert),
        ("cel.@mapInsert", "@mapInsert_map_map", "(map(K, V), map(K, V)) -> map(K, V)", _insert_all),
    ),
    macros=tuple(TWO_VARIABLE_MACROS.items()),
)
