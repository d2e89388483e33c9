"""How functions are declared, and how a call finds its implementation at run time.

A function has overloads; the checker picks those whose types fit. When exactly one is left it is called directly,
otherwise (arguments of type dyn or any) the first overload whose types match the actual values is. Operators are
"singletons": one implementation for all overloads, guarded by what the first operand can do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dranet.cel import types as t
from dranet.cel.errors import NO_SUCH_OVERLOAD, Err
from dranet.cel.values import Duration, Timestamp, type_name, type_of

Implementation = Callable[..., Any]
Declaration = tuple[str, str, str, Implementation]
"""Name, overload id, signature such as ``string.(int) -> bool``, and implementation."""

# Values with their own error for a call without overload, which does not name the function.
_RECEIVERS = frozenset({str, Duration, Timestamp})


class Overload(msgspec.Struct, frozen=True):
    """One signature of a function and its implementation."""

    id: str
    args: tuple[t.Type, ...]
    result: t.Type
    call: Implementation | None = None
    member: bool = False
    guarded: bool = True
    stops_early: bool = False
    """Gives up at the first argument that fails, without looking at the rest."""

    def accepts(self, values: Sequence[Any]) -> bool:
        if len(values) != len(self.args):
            return False
        return not self.guarded or all(
            runtime_match(want, value) for want, value in zip(self.args, values, strict=True)
        )

    def variables(self) -> frozenset[str]:
        """Names of the type parameters in its signature; each call gives them new types."""
        found: set[str] = set()
        for type_ in (self.result, *self.args):
            _collect(type_, found)
        return frozenset(found)


def _collect(type_: t.Type, found: set[str]) -> None:
    if type_.kind == "param":
        found.add(type_.name)
    for inner in type_.params:
        _collect(inner, found)


def runtime_match(want: t.Type, value: Any) -> bool:
    """Parameters are erased at run time: any list is a list."""
    if want.kind in ("dyn", "any", "param"):
        return True
    actual = type_of(value)
    return actual.kind == want.kind and actual.name == want.name


@dataclass(frozen=True, slots=True)
class Function:
    """All overloads of one name."""

    name: str
    overloads: tuple[Overload, ...]
    singleton: Implementation | None = None
    trait: frozenset[type] | None = None
    non_strict: bool = False
    by_id: dict[str, Overload] = field(default_factory=dict)
    resolved: dict[tuple[bool, tuple[t.Type, ...]], tuple[t.Type, tuple[str, ...], int]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """By method or not and types of arguments: result, overloads, and how many type variables that took."""

    def __post_init__(self) -> None:
        self.by_id.update({overload.id: overload for overload in self.overloads})

    def merged(self, other: Function) -> Function:
        """With the overloads of another library; for the same id the later one wins."""
        known = {overload.id for overload in other.overloads}
        kept = tuple(overload for overload in self.overloads if overload.id not in known)
        return Function(
            self.name, kept + other.overloads, other.singleton or self.singleton, other.trait or self.trait,
            self.non_strict or other.non_strict,
        )  # fmt: skip

    def stops_early(self, overload_ids: Sequence[str]) -> bool:
        """Whether arguments after a failed one are left alone (and not paid for)."""
        if self.singleton is not None:
            return False
        return len(overload_ids) > 1 or any(self.by_id[id_].stops_early for id_ in overload_ids)

    def binding(self, overload_ids: Sequence[str]) -> Implementation:
        """The callable for a checked call; it receives values that are not errors."""
        if self.singleton is not None:
            return self._singleton_binding()
        if len(overload_ids) == 1:
            return self._guarded(self.by_id[overload_ids[0]])
        return self._dispatch

    def _singleton_binding(self) -> Implementation:
        singleton, trait, name = self.singleton, self.trait, self.name
        assert singleton is not None
        if trait is None:
            return singleton

        def call(*values: Any) -> Any:
            if values[0].__class__ in trait:
                return singleton(*values)
            return NO_SUCH_OVERLOAD if values[0].__class__ in _RECEIVERS else Err(f"no such overload: {name}")

        return call

    def _guarded(self, overload: Overload) -> Implementation:
        implementation = overload.call
        assert implementation is not None

        def call(*values: Any) -> Any:
            if not overload.accepts(values):
                return no_such_overload(self.name, values)
            return implementation(*values)

        return call

    def _dispatch(self, *values: Any) -> Any:
        for overload in self.overloads:
            if overload.call is not None and overload.accepts(values):
                return overload.call(*values)
        return no_such_overload(self.name, values)


def no_such_overload(name: str, values: Iterable[Any]) -> Err:
    """The error of a call without a matching overload; an argument that is an error comes first."""
    for value in values:
        if value.__class__ is Err:
            return value
    return Err(f"no such overload: {name}({', '.join(type_name(value) for value in values)})")


def overload(id_: str, signature: str, call: Implementation | None = None, **options: bool) -> Overload:
    """An overload with its signature as text."""
    member, args, result = t.parse_signature(signature)
    return Overload(id_, args, result, call, member=member, **options)


def overloads(*rows: tuple[str, str]) -> tuple[Overload, ...]:
    """From ids and signatures, for a function with one implementation for all of them."""
    return tuple(overload(*row) for row in rows)


def functions(*declarations: Declaration) -> tuple[Function, ...]:
    """Functions with all their overloads; of these, the first that fits is called."""
    found: dict[str, list[Overload]] = {}
    for name, id_, signature, call in declarations:
        found.setdefault(name, []).append(overload(id_, signature, call))
    return tuple(Function(name, tuple(declared)) for name, declared in found.items())


class Library(msgspec.Struct, frozen=True):
    """A named set of functions, macros and types an environment can be built from."""

    name: str
    functions: tuple[Function, ...] = ()
    macros: tuple[tuple[tuple[str, int, bool], Callable[..., Any]], ...] = ()
    types: tuple[t.Type, ...] = ()
