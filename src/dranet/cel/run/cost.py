"""What evaluating an expression costs.

Kubernetes limits selectors by counting work: naming a variable or a field costs one, building a list ten, and string
functions a tenth of what they read. The figures are cel-go's and the API server's; a limit that is exceeded
ends the evaluation with an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dranet.cel.values import Map, Opaque, OptionalValue, size_of

TRAVERSAL = 0.1
REGEX = 0.25
NO_LIMIT = (1 << 64) - 1

CallCost = int | Callable[[Sequence[Any], Any], int]


def size(value: Any) -> int:
    found = size_of(value)
    if found is not None:
        return found
    if value.__class__ is OptionalValue and value.present:
        return size(value.value)
    return 1


def _plain_size(value: Any) -> int:
    found = size_of(value)
    return 1 if found is None else found


def _traverse(factor: float, which: int = 0) -> Callable[[Sequence[Any], Any], int]:
    return lambda args, result: math.ceil(_plain_size(args[which]) * factor)


def _smaller(args: Sequence[Any], result: Any) -> int:
    return math.ceil(min(size(args[0]), size(args[1])) * TRAVERSAL)


def _together(args: Sequence[Any], result: Any) -> int:
    return math.ceil((size(args[0]) + size(args[1])) * TRAVERSAL)


def _match(args: Sequence[Any], result: Any) -> int:
    return math.ceil((1.0 + size(args[0])) * TRAVERSAL) * math.ceil(size(args[1]) * REGEX)


def _search(args: Sequence[Any], result: Any) -> int:
    return math.ceil(size(args[0]) * TRAVERSAL) * math.ceil(size(args[1]) * TRAVERSAL)


def _equality(args: Sequence[Any], result: Any) -> int:
    return 1 if isinstance(args[0], Opaque) else _smaller(args, result)


def _whole(args: Sequence[Any], result: Any) -> int:
    return _walk(args[0])


def _walk(value: Any) -> int:
    if value.__class__ is str:
        return int(len(value.encode()) * TRAVERSAL)
    if value.__class__ is bytes:
        return int(len(value) * TRAVERSAL)
    if value.__class__ is list:
        return sum(_walk(item) for item in value)
    if isinstance(value, Map):
        return sum(_walk(key) + _walk(item) for key, item in value.items())
    return 1


def _contains_ip(args: Sequence[Any], result: Any) -> int:
    cost = math.ceil(2 * _plain_size(args[0]) * TRAVERSAL)
    return cost + (math.ceil(_plain_size(args[1]) * TRAVERSAL) if args[1].__class__ is str else 0)


def _contains_cidr(args: Sequence[Any], result: Any) -> int:
    return _contains_ip(args, result) + math.ceil(_plain_size(args[0]) * TRAVERSAL) + 1


def _validate(args: Sequence[Any], result: Any) -> int:
    regex: int | None = getattr(args[0], "max_regex_size", None)
    if regex is None:
        return 1
    return math.ceil((1.0 + _plain_size(args[1])) * TRAVERSAL) * math.ceil(regex * REGEX)


def _join(args: Sequence[Any], result: Any) -> int:
    return math.ceil(_plain_size(result) * 2 * TRAVERSAL)


_BY_OVERLOAD: dict[str, CallCost] = {
    **dict.fromkeys(
        ("starts_with_string", "ends_with_string", "string_to_bytes", "bytes_to_string", "strings_quote",
         "string_format"),
        lambda args, result: math.ceil(size(args[0]) * TRAVERSAL),
    ),
    "in_list": lambda args, result: size(args[1]),
    **dict.fromkeys(
        [f"{order}_{kind}" for order in ("less", "less_equals", "greater", "greater_equals") for kind in
         ("string", "bytes")] + ["equals", "not_equals"],
        _smaller,
    ),
    "add_string": _together,
    "add_bytes": _together,
    "matches_string": _match,
    "contains_string": _search,
}  # fmt: skip

_KUBERNETES: dict[str, CallCost] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _whole),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _traverse(TRAVERSAL)),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _traverse(2 * TRAVERSAL)),
    "join": _join,
    "find": _match,
    "findAll": _match,
    **dict.fromkeys(
        ("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"), _traverse(TRAVERSAL)
    ),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equality,
}  # fmt: skip


CEL_GO_0_29_COSTS: dict[str, CallCost] = {
    **dict.fromkeys(
        ("starts_with_string", "ends_with_string"), lambda args, result: math.ceil(size(args[1]) * TRAVERSAL)
    ),
    "matches": _match,
    "list_includes_dyn_dyn": _whole,
}  # fmt: skip
"""Calls whose cost changed with cel-go 0.29 (Kubernetes 1.37)."""


class RuntimeCosts:
    """The cost of a call, by function and, where one was chosen statically, overload."""

    def __init__(self, overloads: dict[str, CallCost] | None = None) -> None:
        self._extra = overloads or {}

    def for_call(self, function: str, overload: str) -> CallCost:
        """What one call costs: a number, or a function of its arguments. Unknown functions cost 1."""
        if overload in self._extra:
            return self._extra[overload]
        if function == "ip" and overload == "cidr_ip":
            return 1
        return _KUBERNETES.get(function) or _BY_OVERLOAD.get(overload, 1)
