"""Prices of the extension functions for the static estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dranet.cel import types as t
from dranet.cel.estimate.standard_costs import (
    MAX,
    ONE,
    UNKNOWN,
    CallEstimate,
    Measured,
    Range,
    fixed,
    standard_call,
)
from dranet.cel.estimate.worst_case import SizeOf
from dranet.cel.run.cost import REGEX, TRAVERSAL
from dranet.cel.syntax.ast import Literal

Args = Sequence[Measured]
Price = Callable[["_Call"], CallEstimate | None]
_ADDRESS = Range(4, 16)
_NAME_REGEX = 128
_LISTS = frozenset({"list_slice", "list_flatten", "list_flatten_int", "lists_range", "list_reverse", "list_distinct"})


class _Call:
    def __init__(self, function: str, overload: str, target: Measured | None, args: Args, size_of: SizeOf) -> None:
        self.function = function
        self.overload = overload
        self.target = target
        self.args = args
        self._size_of = size_of

    def size(self, measured: Measured) -> Range:
        return measured.size or self._size_of(measured.path) or UNKNOWN

    def element(self, container: Measured) -> Measured | None:
        if not container.type.params:
            return None
        path = (*container.path, "@items") if container.path else ()
        return Measured(None, path, container.type.params[0], None)


def extension_cost(
    function: str, overload: str, target: Measured | None, args: Args, size_of: SizeOf
) -> CallEstimate | None:
    """The estimate for a call of an extension function; None leaves it to the standard library."""
    call = _Call(function, overload, target, args, size_of)
    if overload in _LISTS or overload.endswith(("_sort", "_sortByAssociatedKeys")):
        return _list_price(call)
    if overload in _SETS:
        size = call.size(args[0]) * call.size(args[1])
        return CallEstimate(size.scaled(_SETS[overload]) + ONE)
    if overload == "dra_includes_dyn_dyn":
        return CallEstimate(Range(0, 48))
    if overload == "list_includes_dyn_dyn":
        return _includes(call)
    found = _PRICES.get(function)
    return found(call) if found else None


def cel_go_0_29_cost(
    function: str, overload: str, target: Measured | None, args: Args, size_of: SizeOf
) -> CallEstimate | None:
    """As `extension_cost`, from cel-go 0.29 on: `matches(text, regex)` costs the same as `text.matches(regex)`."""
    if overload == "matches":
        return standard_call("matches_string", args[0], args[1:])
    return extension_cost(function, overload, target, args, size_of)


def _allocating(factor: float, size: Range) -> CallEstimate:
    return CallEstimate(size.scaled(factor) + ONE + fixed(10), size)


def _int_literal(measured: Measured, default: int) -> int:
    node = measured.node
    if isinstance(node, Literal) and node.value.__class__ is int:
        return max(node.value, 0)
    return default


def _list_price(call: _Call) -> CallEstimate | None:
    if call.overload == "lists_range":
        return _allocating(1, fixed(_int_literal(call.args[0], MAX)))
    assert call.target is not None
    size = call.size(call.target)
    if call.overload == "list_slice":
        start, end = _int_literal(call.args[0], 0), _int_literal(call.args[1], size.max)
        return _allocating(1, fixed((end - start) & MAX))
    if call.overload == "list_reverse":
        return _allocating(1, size)
    if call.overload.startswith("list_flatten"):
        return _allocating(float(_int_literal(call.args[0], MAX) if call.args else 1), size)
    factor = 2.0
    if call.overload.endswith("_sortByAssociatedKeys"):
        size = call.size(call.args[0])
    if call.overload.startswith(("list_string_", "list_bytes_")):
        factor += TRAVERSAL
    return _allocating(factor, size * size)


_SETS = {"list_sets_contains_list": 1, "list_sets_intersects_list": 1, "list_sets_equivalent_list": 2}


def _one(call: _Call) -> CallEstimate:
    return CallEstimate(ONE)


def _scan(call: _Call) -> CallEstimate | None:
    if call.target is None:
        return None
    element = call.element(call.target)
    size = call.size(call.target)
    if element is None:
        return CallEstimate(size.scaled(TRAVERSAL))
    each = ONE
    if element.type.kind in ("string", "bytes"):
        each = each + call.size(element).scaled(TRAVERSAL)
    return CallEstimate(size * each)


def _includes(call: _Call) -> CallEstimate | None:
    """One comparison for each element; a target of unknown type may be a list."""
    if call.target is None or call.element(call.target) is not None:
        return _scan(call)
    return CallEstimate(call.size(call.target))


def _of_argument(factor: float, *, sized: bool = False) -> Price:
    def compute(call: _Call) -> CallEstimate | None:
        if not call.args:
            return None
        size = call.size(call.args[0])
        return CallEstimate(size.scaled(factor), size if sized else None)

    return compute


def _of_target(call: _Call) -> CallEstimate | None:
    if call.target is None:
        return None
    size = call.size(call.target)
    return CallEstimate(size.scaled(TRAVERSAL), size)


def _replace(call: _Call) -> CallEstimate | None:
    if call.target is None or len(call.args) < 2:
        return None
    size, old, new = call.size(call.target), call.size(call.args[0]), call.size(call.args[1])
    most, kept_most = _replacements(old.min, size.max, new.max <= old.min)
    least, kept_least = _replacements(old.max, size.min, old.max <= new.min)
    result = Range(least, most) * new + Range(kept_least, kept_most)
    return CallEstimate(size.scaled(2 * TRAVERSAL), result)


def _replacements(old: int, size: int, keeps: bool) -> tuple[int, int]:
    """How often something is replaced, and how much of the original stays."""
    if old == 0:
        return (size + 1 if size < MAX else size), size
    return (0, size) if keeps else (math.ceil(size / old), 0)


def _split(call: _Call) -> CallEstimate | None:
    if call.target is None:
        return None
    size = call.size(call.target)
    most = size.max
    if len(call.args) > 1:
        node = call.args[1].node
        if isinstance(node, Literal) and node.value.__class__ is int:
            most = node.value & MAX
    return CallEstimate(size.scaled(2 * TRAVERSAL), Range(0, most))


def _join(call: _Call) -> CallEstimate | None:
    if call.target is None:
        return None
    count, element = call.size(call.target), call.element(call.target)
    size = count * call.size(element) if element else Range(0, 0)
    if call.args:
        separators = Range(max(count.min - 1, 0), max(count.max - 1, 0))
        size = size + call.size(call.args[0]) * separators
    return CallEstimate(size.scaled(TRAVERSAL), size)


def _find(call: _Call) -> CallEstimate | None:
    if call.target is None or not call.args:
        return None
    size = call.size(call.target)
    cost = (size + ONE).scaled(TRAVERSAL) * call.size(call.args[0]).scaled(REGEX)
    return CallEstimate(cost, Range(0, size.max))


def _ip(call: _Call) -> CallEstimate | None:
    return _one(call) if call.overload == "cidr_ip" else _of_argument(TRAVERSAL)(call)


def _contains_ip(call: _Call) -> CallEstimate:
    cost = (_ADDRESS + _ADDRESS).scaled(TRAVERSAL)
    if call.overload.endswith("_string"):
        cost = cost + call.size(call.args[0]).scaled(TRAVERSAL)
    return CallEstimate(cost)


def _contains_cidr(call: _Call) -> CallEstimate:
    return CallEstimate(_contains_ip(call).cost + _ADDRESS.scaled(TRAVERSAL) + ONE)


def _validate(call: _Call) -> CallEstimate | None:
    if not call.args:
        return None
    return CallEstimate(call.size(call.args[0]).scaled(TRAVERSAL).scaled(_NAME_REGEX * REGEX))


def _equal(call: _Call) -> CallEstimate | None:
    left, right = call.args[0].type, call.args[1].type
    if left != right:
        return None
    if left in (t.opaque("net.IP"), t.opaque("net.CIDR")) or left in _CHEAP:
        return CallEstimate(ONE)
    if left == t.struct("kubernetes.NamedFormat"):
        return CallEstimate(Range(1, 64).scaled(TRAVERSAL))
    if left == t.struct("kubernetes.URL"):
        size = call.args[1].size or ONE
        return CallEstimate(Range(1, size.max).scaled(TRAVERSAL))
    return None


_CHEAP = frozenset({t.struct("kubernetes.Quantity"), t.struct("kubernetes.Semver")})
_PRICES: dict[str, Price] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _scan),
    "url": _of_argument(TRAVERSAL, sized=True),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _of_target),
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(("find", "findAll"), _find),
    **dict.fromkeys(
        ("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _of_argument(TRAVERSAL)
    ),
    "ip": _ip,
    "ip.isCanonical": _of_argument(2 * TRAVERSAL),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equal,
}  # fmt: skip
