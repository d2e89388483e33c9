"""Optional values, local bindings and comprehensions with two variables."""

from __future__ import annotations

from typing import Any

from dranet.cel import types as t
from dranet.cel.errors import NO_SUCH_OVERLOAD, Err
from dranet.cel.functions import Function, Library, Overload, function, global_, method
from dranet.cel.run.paths import show
from dranet.cel.syntax.macros import BINDINGS as BINDING_MACROS
from dranet.cel.syntax.macros import OPTIONALS as OPTIONAL_MACROS
from dranet.cel.syntax.macros import TWO_VARIABLES as TWO_VARIABLE_MACROS
from dranet.cel.values import NONE, Map, OptionalValue, is_zero

_K, _V = t.param("K"), t.param("V")
_OPTIONAL, _LIST, _MAP = t.optional_of(_V), t.list_of(_V), t.map_of(_K, _V)


def _value(optional: OptionalValue) -> Any:
    return optional.value if optional.present else Err("optional.none() dereference")


def _unwrap(items: list[Any]) -> Any:
    for item in items:
        if item.__class__ is not OptionalValue:
            return Err(f"value {show(item)} is not optional")
    return [item.value for item in items if item.present]


def _planned(*values: Any) -> Any:
    return NO_SUCH_OVERLOAD


def _special(name: str, *overloads: Overload) -> Function:
    """Declared for the checker; the compiler has its own plan for it."""
    return Function(name, overloads, _planned)


OPTIONALS = Library(
    "optional",
    functions=(
        function("optional.of", global_("optional_of", [_V], _OPTIONAL, OptionalValue)),
        function(
            "optional.ofNonZeroValue",
            global_(
                "optional_ofNonZeroValue", [_V], _OPTIONAL,
                lambda value: NONE if is_zero(value) else OptionalValue(value),
            ),
        ),
        function("optional.none", global_("optional_none", [], _OPTIONAL, lambda: NONE)),
        function("value", method("optional_value", [_OPTIONAL], _V, _value)),
        function("hasValue", method("optional_hasValue", [_OPTIONAL], t.BOOL, lambda optional: optional.present)),
        _special("or", Overload("optional_or_optional", (_OPTIONAL, _OPTIONAL), _OPTIONAL, member=True)),
        _special("orValue", Overload("optional_orValue_value", (_OPTIONAL, _V), _V, member=True)),
        _special("_?._", Overload("select_optional_field", (t.DYN, t.STRING), _OPTIONAL)),
        _special(
            "_[?_]",
            Overload("list_optindex_optional_int", (_LIST, t.INT), _OPTIONAL),
            Overload("optional_list_optindex_optional_int", (t.optional_of(_LIST), t.INT), _OPTIONAL),
            Overload("map_optindex_optional_value", (_MAP, _K), _OPTIONAL),
            Overload("optional_map_optindex_optional_value", (t.optional_of(_MAP), _K), _OPTIONAL),
        ),
        _special(
            "_[_]",
            Overload("optional_list_index_int", (t.optional_of(_LIST), t.INT), _OPTIONAL),
            Overload("optional_map_index_value", (t.optional_of(_MAP), _K), _OPTIONAL),
        ),
        function(
            "last", method("list_last", [_LIST], _OPTIONAL, lambda items: OptionalValue(items[-1]) if items else NONE)
        ),
        function(
            "first", method("list_first", [_LIST], _OPTIONAL, lambda items: OptionalValue(items[0]) if items else NONE)
        ),
        function("optional.unwrap", global_("optional_unwrap", [t.list_of(_OPTIONAL)], _LIST, _unwrap)),
        function("unwrapOpt", method("optional_unwrapOpt", [t.list_of(_OPTIONAL)], _LIST, _unwrap)),
    ),
    macros=tuple(OPTIONAL_MACROS.items()),
    types=(t.OPTIONAL,),
)  # fmt: skip

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
    functions=(
        function(
            "cel.@mapInsert",
            global_("@mapInsert_map_key_value", [_MAP, _K, _V], _MAP, _insert),
            global_("@mapInsert_map_map", [_MAP, _MAP], _MAP, _insert_all),
        ),
    ),
    macros=tuple(TWO_VARIABLE_MACROS.items()),
)
