"""List and set functions: those of CEL's extensions and those Kubernetes adds.

Both libraries bring costs of their own: sorting and `distinct` count comparisons, so they are quadratic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import Any

from dranet.cel import types as t
from dranet.cel.errors import NO_SUCH_OVERLOAD, CostLimitExceeded, Err, EvaluationAborted
from dranet.cel.functions import Declaration, Function, Library, functions, overload, overloads
from dranet.cel.run.cost import CallCost
from dranet.cel.run.operators import add, contained
from dranet.cel.syntax.ast import Call, Ident, Node
from dranet.cel.syntax.macros import STANDARD, bind
from dranet.cel.values import Duration, Timestamp, Uint, compare, equal, type_name

_SUMMABLE = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}
_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_ORDERED = (int, Uint, float, bool, Duration, Timestamp, str, bytes)
_SORT_INPUT = "@__sortBy_input__"


def _is_sorted(items: list[Any]) -> Any:
    previous: Any = None
    for index, item in enumerate(items):
        if not isinstance(item, _ORDERED):
            return NO_SUCH_OVERLOAD
        if index and compare(previous, item) == 1:
            return False
        previous = item
    return True


def _sum(zero: Any) -> Callable[[list[Any]], Any]:
    def total(items: list[Any]) -> Any:
        result = zero
        for item in items:
            result = add(result, item)
            if result.__class__ is Err:
                return result
        return result

    return total


def _extreme(name: str, replace_when: int) -> Callable[[list[Any]], Any]:
    def pick(items: list[Any]) -> Any:
        if not items:
            return Err(f"{name} called on empty list")
        best = items[0]
        for item in items:
            if not isinstance(item, _ORDERED):
                return NO_SUCH_OVERLOAD
            if compare(best, item) == replace_when:
                best = item
        return best

    return pick


def _index_of(items: list[Any], wanted: Any) -> int:
    return next((index for index, item in enumerate(items) if equal(item, wanted) is True), -1)


def _last_index_of(items: list[Any], wanted: Any) -> int:
    return next((index for index in range(len(items) - 1, -1, -1) if equal(items[index], wanted) is True), -1)


def _for_each_type(name: str, id_: str, signature: str, call: Callable[[list[Any]], Any]) -> list[Declaration]:
    """The same function of lists of all comparable types; {} stands for the type."""
    return [(name, id_.format(type_), signature.format(type_), call) for type_ in _COMPARABLE]


KUBERNETES_LISTS = Library(
    "kubernetes.lists",
    functions=functions(
        *_for_each_type("isSorted", "list_{0}_is_sorted_bool", "list({0}).() -> bool", _is_sorted),
        *(
            ("sum", f"list_{type_}_sum_{type_}", f"list({type_}).() -> {type_}", _sum(zero))
            for type_, zero in _SUMMABLE.items()
        ),
        *_for_each_type("max", "list_{0}_max_{0}", "list({0}).() -> {0}", _extreme("max", -1)),
        *_for_each_type("min", "list_{0}_min_{0}", "list({0}).() -> {0}", _extreme("min", 1)),
        ("indexOf", "list_a_index_of_int", "list(A).(A) -> int", _index_of),
        ("lastIndexOf", "list_a_last_index_of_int", "list(A).(A) -> int", _last_index_of),
    ),
)


def _slice(items: list[Any], start: int, end: int) -> Any:
    if start < 0 or end < 0:
        return Err(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        return Err(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(items) < end:
        return Err(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


LONGEST_RANGE = 10_000_000
"""Far past any cost limit; cel-go builds the list first and counts afterwards, as long as there is memory."""


def _range(count: int) -> list[int]:
    if count > LONGEST_RANGE:
        raise CostLimitExceeded
    return list(range(max(count, 0)))


_MAX_RANGE_SIZE = 1_000_000


def _checked_range(count: int) -> list[int] | Err:
    if count < 0:
        return Err(f"lists.range: size must be non-negative, got {count}")
    if count > _MAX_RANGE_SIZE:
        return Err(f"lists.range: size {count} exceeds maximum allowed ({_MAX_RANGE_SIZE})")
    return list(range(count))


def _flatten(items: Any, depth: Any = 1) -> Any:
    if items.__class__ is not list or depth.__class__ is not int:
        return Err(f"no such overload: {type_name(items)}.flatten({type_name(depth)})")
    if depth < 0:
        return Err("level must be non-negative")
    flat: list[Any] = []
    for item in items:
        flat += _flatten(item, depth - 1) if item.__class__ is list and depth > 0 else [item]
    return flat


def _sort_by(items: list[Any], keys: list[Any]) -> Any:
    if len(items) != len(keys):
        return Err(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got"
            f" {len(items)} and {len(keys)} elements respectively"
        )
    if not items:
        return items
    if not isinstance(keys[0], _ORDERED):
        return Err("list elements must be comparable")
    if any(key.__class__ is not keys[0].__class__ for key in keys):
        return Err("list elements must have the same type")

    def by_key(one: int, other: int) -> int:
        return int(compare(keys[one], keys[other]))

    order = sorted(range(len(keys)), key=cmp_to_key(by_key))
    return [items[index] for index in order]


def _distinct(items: list[Any]) -> list[Any]:
    unique: list[Any] = []
    for item in items:
        if not any(equal(item, other) is True for other in unique):
            unique.append(item)
    return unique


def _sort_by_macro(offset: int, target: Node | None, args: list[Node]) -> Node:
    assert target is not None
    keys = STANDARD[("map", 2, True)](offset, Ident(offset, _SORT_INPUT), args)
    assert keys is not None
    call = Call(offset, "@sortByAssociatedKeys", [keys], Ident(offset, _SORT_INPUT))
    return bind(offset, _SORT_INPUT, target, call)


# Overload ids of the list extensions contain full type names; those of the Kubernetes library do not.
_SORTABLE = {t.parse_type(name).name: name for name in _COMPARABLE}
_SORT = [(f"list_{full}_sort", f"list({name}).() -> list({name})") for full, name in _SORTABLE.items()]
_SORT_BY = [
    (f"list_{full}_sortByAssociatedKeys", f"list(T).(list({name})) -> list(T)") for full, name in _SORTABLE.items()
]
_FLATTEN = (
    overload("list_flatten", "list(list(T)).() -> list(T)", _flatten, guarded=False),
    overload("list_flatten_int", "list(dyn).(int) -> list(dyn)", _flatten, guarded=False),
)
_LIST_TRAIT = frozenset({list})


def _lists(range_: Callable[[int], Any]) -> Library:
    return Library(
        "lists",
        functions=(
            Function("flatten", _FLATTEN),
            Function("sort", overloads(*_SORT), lambda items: _sort_by(items, items), _LIST_TRAIT),
            Function("@sortByAssociatedKeys", overloads(*_SORT_BY), _sort_by, _LIST_TRAIT),
            *functions(
                ("slice", "list_slice", "list(T).(int, int) -> list(T)", _slice),
                ("lists.range", "lists_range", "(int) -> list(int)", range_),
                ("reverse", "list_reverse", "list(T).() -> list(T)", lambda items: items[::-1]),
                ("distinct", "list_distinct", "list(T).() -> list(T)", _distinct),
            ),
        ),
        macros=((("sortBy", 2, True), _sort_by_macro),),
    )


LISTS = _lists(_range)
CEL_GO_0_29_LISTS = _lists(_checked_range)
"""cel-go 0.29 (Kubernetes 1.37) checks the size of a range."""


def _intersects(left: list[Any], right: list[Any]) -> bool:
    return any(contained(item, right) is True for item in left)


def _contains(items: list[Any], others: list[Any]) -> bool:
    return all(contained(item, items) is True for item in others)


def _equivalent(left: list[Any], right: list[Any]) -> bool:
    return _contains(left, right) and _contains(right, left)


SETS = Library(
    "sets",
    functions=functions(
        ("sets.contains", "list_sets_contains_list", "(list(T), list(T)) -> bool", _contains),
        ("sets.equivalent", "list_sets_equivalent_list", "(list(T), list(T)) -> bool", _equivalent),
        ("sets.intersects", "list_sets_intersects_list", "(list(T), list(T)) -> bool", _intersects),
    ),
)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (list, str, bytes)) else 1


def _output(args: Sequence[Any], result: Any) -> int:
    return _length(result) + 11


def _flattening(args: Sequence[Any], result: Any) -> int:
    depth = args[1] if len(args) == 2 else 1
    if depth.__class__ is not int:
        raise EvaluationAborted("cannot estimate the cost of flatten: its depth is an error")
    return int(_length(args[0]) * float(depth)) + 11


def _self_compare(which: int) -> Callable[[Sequence[Any], Any], int]:
    def cost(args: Sequence[Any], result: Any) -> int:
        items = args[which]
        if items.__class__ is not list:
            raise EvaluationAborted("sorting and distinct need a list whose elements can be computed")
        factor = 2.1 if items and items[0].__class__ in (str, bytes) else 2.0
        return int(len(items) ** 2 * factor) + 11

    return cost


def _set_cost(factor: int) -> Callable[[Sequence[Any], Any], int]:
    return lambda args, result: 1 + _length(args[0]) * _length(args[1]) * factor


LIST_COSTS: dict[str, CallCost] = {
    "list_slice": _output, "lists_range": _output, "list_reverse": _output,
    "list_flatten": _flattening, "list_flatten_int": _flattening,
    "list_distinct": _self_compare(0),
    **{id_: _self_compare(0) for id_, _ in _SORT},
    **{id_: _self_compare(1) for id_, _ in _SORT_BY},
}  # fmt: skip
SET_COSTS: dict[str, CallCost] = {
    "list_sets_contains_list": _set_cost(1),
    "list_sets_intersects_list": _set_cost(1),
    "list_sets_equivalent_list": _set_cost(2),
}
