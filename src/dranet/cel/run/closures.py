"""What compiled expressions are made of: loops, calls and logic over plans.

Errors are values: `&&` and `||` absorb them, calls return the first one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dranet.cel.errors import NO_SUCH_OVERLOAD, Err, EvaluationAborted
from dranet.cel.functions import Implementation
from dranet.cel.run.cost import CallCost
from dranet.cel.run.paths import Choice, Compiled, Const, Evaluation, Path, Step
from dranet.cel.values import MISSING, Map, OptionalValue, equal, type_name

_SCALARS = frozenset({"bool", "double", "int", "string", "uint"})


def slot_getter(index: int) -> Callable[[Evaluation], Any]:
    """Reads a loop variable."""
    return lambda ctx: ctx.slots[index]


def literal_getter(place: int) -> Callable[[Evaluation], Any]:
    """Reads a literal that is not the same in all expressions of this template."""
    return lambda ctx: ctx.literals[place]


def fold_loop(
    source: Compiled, condition: Compiled, step: Compiled, result: Compiled, slots: tuple[int, int, int], two: bool
) -> Callable[[Evaluation], Any]:
    """The loop of a macro. Its variables live in slots, not in a dict: this is the hot path of every selector."""
    accu, first, second = slots

    def run(ctx: Evaluation) -> Any:
        values = source.eval(ctx)
        if values.__class__ is Err:
            return values
        pairs = _iteration(values, two)
        if pairs.__class__ is Err:
            return pairs
        ctx.slots[accu] = MISSING
        for key, value in pairs:
            ctx.slots[first], ctx.slots[second] = key, value
            if condition.eval(ctx) is False:
                break
            ctx.slots[accu] = step.eval(ctx)
        return result.eval(ctx)

    return run


def _iteration(values: Any, two: bool) -> Any:
    if values.__class__ is list:
        return list(enumerate(values)) if two else [(value, None) for value in values]
    if isinstance(values, Map):
        return list(values.items())
    if two:
        return Err(f"unsupported comprehension range type: {_go_type(values)}")
    return Err(f"got '{_go_type(values)}', expected iterable type")


_GO_TYPES = {
    "int": "types.Int", "uint": "types.Uint", "double": "types.Double", "bool": "types.Bool", "string": "types.String",
    "bytes": "types.Bytes", "null_type": "types.Null", "google.protobuf.Duration": "types.Duration",
    "google.protobuf.Timestamp": "types.Timestamp", "optional_type": "*types.Optional", "type": "*types.Type",
}  # fmt: skip


def _go_type(value: Any) -> str:
    """Kubernetes shows its implementation's type names in two messages."""
    name = type_name(value)
    return _GO_TYPES.get(name, name.replace("kubernetes.", "cel."))


def as_path(plan: Compiled) -> Path | Choice:
    """A compiled expression as something qualifiers can be added to."""
    return plan if isinstance(plan, (Path, Choice)) else Path(plan.eval)


def checked_map(entries: list[tuple[Any, Any]]) -> Any:
    """A map from its entries; a key must be a scalar."""
    for key, _ in entries:
        if type_name(key) not in _SCALARS:
            return Err(f"unsupported map key type: {type_name(key)}")
    return Map(entries)


def membership(item: Compiled, values: list[Any]) -> Compiled | None:
    """`x in [constants]` as a set lookup, which costs nothing."""
    if not values:
        return Const(False)
    if any(type_name(value) not in _SCALARS for value in values):
        return None
    known = Map((value, True) for value in values)

    def run(ctx: Evaluation) -> Any:
        value = item.eval(ctx)
        if value.__class__ is Err:
            return value
        if type_name(value) == "bytes" or type_name(value) == "kubernetes.Semver":
            raise EvaluationAborted(f"a value of type {type_name(value)} cannot be looked up in a list of constants")
        return known.contains(value)

    return Step(run)


def unequal(left: Any, right: Any) -> Any:
    """`!=`: whatever is not equal, also what cannot be compared."""
    return equal(left, right) is not True


def call_one(argument: Compiled, call: Implementation, cost: CallCost, non_strict: bool) -> Compiled:
    """A call with one argument, the commonest kind, without a loop over arguments."""

    def run(ctx: Evaluation) -> Any:
        value = argument.eval(ctx)
        result = value if value.__class__ is Err and not non_strict else call(value)
        ctx.charge(cost if cost.__class__ is int else cost((value,), result))  # type: ignore[operator]
        return result

    return Step(run)


def call_two(left: Compiled, right: Compiled, call: Implementation, cost: CallCost) -> Compiled:
    """A call with two arguments."""

    def run(ctx: Evaluation) -> Any:
        first, second = left.eval(ctx), right.eval(ctx)
        if first.__class__ is Err:
            result = first
        elif second.__class__ is Err:
            result = second
        else:
            result = call(first, second)
        ctx.charge(cost if cost.__class__ is int else cost((first, second), result))  # type: ignore[operator]
        return result

    return Step(run)


def call_many(plans: list[Compiled], call: Implementation, cost: CallCost) -> Compiled:
    """A call with any number of arguments."""

    def run(ctx: Evaluation) -> Any:
        values: list[Any] = []
        for plan in plans:
            value = plan.eval(ctx)
            values.append(value)
            if value.__class__ is Err:
                if len(values) == len(plans):
                    ctx.charge(cost if cost.__class__ is int else cost(values, value))  # type: ignore[operator]
                return value
        result = call(*values)
        ctx.charge(cost if cost.__class__ is int else cost(values, result))  # type: ignore[operator]
        return result

    return Step(run)


def logical(plans: list[Compiled], decisive: bool) -> Compiled:
    """`&&` and `||`: one decisive operand wins over errors, on either side."""

    def run(ctx: Evaluation) -> Any:
        problem: Err | None = None
        for plan in plans:
            value = plan.eval(ctx)
            if value is decisive:
                return decisive
            if value.__class__ is not bool and problem is None:
                problem = value if value.__class__ is Err else NO_SUCH_OVERLOAD
        return not decisive if problem is None else problem

    return Step(run)


def or_value(plans: list[Compiled], *, unwrap: bool) -> Compiled:
    """`orValue` and `or` of optionals: the right side is looked at only where the left is empty."""
    optional, fallback = plans

    def run(ctx: Evaluation) -> Any:
        value = optional.eval(ctx)
        if value.__class__ is not OptionalValue:
            return value
        if value.present:
            return value.value if unwrap else value
        return fallback.eval(ctx)

    return Step(run)
