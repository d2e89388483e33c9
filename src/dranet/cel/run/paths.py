"""Paths into values: `device.attributes["x"].?y[i]`.

A chain of selections and indexes is one instruction that starts at a variable (or at the result of an expression) and
applies qualifiers one after the other. That is more than speed: cost is counted per qualifier, a branch of `? :` is a
path too and is cheaper there, and one optional qualifier makes everything after it optional.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dranet.cel.errors import NO_SUCH_OVERLOAD, CostLimitExceeded, Err
from dranet.cel.values import MISSING, NONE, Map, OptionalValue, Struct, Uint, type_name


class Evaluation:
    """One evaluation: variables, loop variables, literals of this very expression, and the cost so far."""

    __slots__ = ("cost", "limit", "literals", "slots", "variables")

    def __init__(self, variables: dict[str, Any], slots: int, limit: int, literals: tuple[Any, ...] = ()) -> None:
        self.variables = variables
        self.slots: list[Any] = [MISSING] * slots
        self.cost = 0
        self.limit = limit
        self.literals = literals

    def charge(self, amount: int) -> None:
        """Pay for a step; raises once the budget is spent, wherever in the expression that is."""
        self.cost += amount
        if self.cost > self.limit:
            raise CostLimitExceeded


Evaluate = Callable[[Evaluation], Any]


class Compiled(Protocol):
    """A compiled expression."""

    def eval(self, ctx: Evaluation) -> Any: ...


class Const:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def eval(self, ctx: Evaluation) -> Any:
        return self.value


class Step:
    """Any expression that is neither a constant nor a path."""

    __slots__ = ("eval",)

    def __init__(self, evaluate: Evaluate) -> None:
        self.eval = evaluate


class Qualifier:
    """One step of a path; `key` is a constant or, when `dynamic`, computed by `resolve`."""

    __slots__ = ("key", "optional", "resolve", "test")

    def __init__(self, key: Any = None, resolve: Evaluate | None = None, *, optional: bool = False, test: bool = False):
        self.key = key
        self.resolve = resolve
        self.optional = optional
        self.test = test

    def apply(self, ctx: Evaluation, owner: Any, *, lenient: bool) -> Any:
        """The value below `owner`, an error, or (when lenient) MISSING."""
        key = self.key
        if self.resolve is not None:
            key = self.resolve(ctx)
            if key.__class__ is Err:
                if not lenient:
                    ctx.charge(1)
                return key
        if self.test:
            found = lookup(owner, key, presence=True)
            ctx.charge(1)
            return found if found.__class__ is Err else found is not MISSING
        found = lookup(owner, key, presence=lenient)
        if not lenient or (found is not MISSING and found.__class__ is not Err):
            ctx.charge(1)
        if found is MISSING and not lenient:
            return _absent(owner, key)
        return found


def lookup(owner: Any, key: Any, *, presence: bool) -> Any:
    """A field, key or element; MISSING where there is none, and with `presence` where a field is unset."""
    if isinstance(owner, Map):
        return owner.find(key)
    if owner.__class__ is list:
        return _element(owner, key)
    if owner.__class__ is Struct:
        return _member(owner, key, presence)
    return MISSING


def _element(owner: list[Any], key: Any) -> Any:
    index = list_index(key)
    if index.__class__ is Err:
        return index
    return owner[index] if 0 <= index < len(owner) else MISSING


def list_index(key: Any) -> Any:
    """A key as a list index: whole numbers of any numeric type."""
    if key.__class__ is int or key.__class__ is Uint:
        return int(key)
    if key.__class__ is float:
        return int(key) if key.is_integer() else Err(f"unsupported index value {show(key)} in list")
    return Err(f"unsupported index type '{type_name(key)}' in list")


def _member(owner: Struct, key: Any, presence: bool) -> Any:
    if key not in owner.defaults:
        return Err(f"no such field '{key}'")
    if presence and key not in owner.fields:
        return MISSING
    return owner.fields.get(key, owner.defaults[key])


def _absent(owner: Any, key: Any) -> Err:
    return Err(f"index out of bounds: {show(key)}" if owner.__class__ is list else f"no such key: {show(key)}")


def show(value: Any) -> str:
    """A value as run-time messages print it."""
    if value.__class__ is bool:
        return "true" if value else "false"
    if value.__class__ is float and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return str(value)


class Path:
    """A root and its qualifiers. `resolve` gives the value; `eval` also charges for naming it."""

    __slots__ = ("_root", "qualifiers")

    def __init__(self, root: Evaluate) -> None:
        self._root = root
        self.qualifiers: list[Qualifier] = []

    def qualify(self, qualifier: Qualifier) -> Path:
        """One step further: a field or an index behind what is there."""
        self.qualifiers.append(qualifier)
        return self

    def resolve(self, ctx: Evaluation) -> Any:
        """The value at the end of the path, or the error of the step that failed."""
        value = self._root(ctx)
        if value.__class__ is Err:
            return value
        lenient = value.__class__ is OptionalValue and bool(self.qualifiers)
        if lenient:
            if not value.present:
                return value
            value = value.value
        for qualifier in self.qualifiers:
            lenient = lenient or qualifier.optional
            value = qualifier.apply(ctx, value, lenient=lenient)
            if value is MISSING:
                return NONE
            if value.__class__ is Err:
                return value
        return OptionalValue(value) if lenient else value

    def eval(self, ctx: Evaluation) -> Any:
        value = self.resolve(ctx)
        ctx.charge(1)
        return value


class Presence:
    """`has(path)`: the last qualifier only tests, and naming the path is free."""

    __slots__ = ("_path",)

    def __init__(self, path: Path | Choice, field: str) -> None:
        self._path = path.qualify(Qualifier(field, test=True))

    def eval(self, ctx: Evaluation) -> Any:
        value = self._path.resolve(ctx)
        return value.present if value.__class__ is OptionalValue else value


class Choice:
    """`condition ? path : path`; qualifiers added later go to both branches."""

    __slots__ = ("_condition", "_falsy", "_truthy")

    def __init__(self, condition: Compiled, truthy: Path | Choice, falsy: Path | Choice) -> None:
        self._condition = condition
        self._truthy = truthy
        self._falsy = falsy

    def qualify(self, qualifier: Qualifier) -> Choice:
        """Both branches go one step further; which one is meant is known only with data."""
        self._truthy.qualify(qualifier)
        self._falsy.qualify(qualifier)
        return self

    def resolve(self, ctx: Evaluation) -> Any:
        """The path of the branch that the condition picks. The other one is never looked at."""
        condition = self._condition.eval(ctx)
        if condition is True:
            return self._truthy.resolve(ctx)
        if condition is False:
            return self._falsy.resolve(ctx)
        return condition if condition.__class__ is Err else NO_SUCH_OVERLOAD

    def eval(self, ctx: Evaluation) -> Any:
        return self.resolve(ctx)
