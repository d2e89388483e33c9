"""A checked tree compiled to closures.

With `fold`, constant lists, maps and conversions are computed once, at compile time, as Kubernetes has it; a conversion
that fails there makes the expression unusable rather than false. Loop variables live in numbered slots, so nested
loops may reuse names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dranet.cel import types as t
from dranet.cel.errors import CelProgramError, Err
from dranet.cel.functions import Function, Implementation
from dranet.cel.run.closures import (
    as_path,
    call_many,
    call_one,
    call_two,
    checked_map,
    fold_loop,
    literal_getter,
    logical,
    membership,
    or_value,
    slot_getter,
    unequal,
)
from dranet.cel.run.cost import RuntimeCosts
from dranet.cel.run.paths import Choice, Compiled, Const, Evaluation, Path, Presence, Qualifier, Step, show
from dranet.cel.syntax.ast import (
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    StructNode,
    qualified_name,
)
from dranet.cel.values import MISSING, OptionalValue, equal

_CONVERSIONS = frozenset(["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"])
# Known to the checker but not at run time; cel-go fails for them at the same point.
_NAMES_ONLY = frozenset({"duration", "timestamp"})

Specialize = Callable[[str, Sequence[Any]], Implementation | None]


class Compiler:
    """Turns nodes into plans. `specialize` may bind a call with constant arguments (regular expressions)."""

    def __init__(
        self,
        functions: Mapping[str, Function],
        costs: RuntimeCosts,
        *,
        types: Callable[[str], t.Type | None],
        specialize: Specialize,
        new_message: Callable[[str, Mapping[str, Any]], Any],
        fold: bool,
        free: Mapping[Node, int],
    ) -> None:
        self.slots = 0
        self._functions = functions
        self._costs = costs
        self._types = types
        self._specialize = specialize
        self._new_message = new_message
        self._fold = fold
        self._free = free
        self._locals: dict[str, list[Callable[[Evaluation], Any]]] = {}

    def compile(self, node: Node) -> Compiled:
        """A node as something that can be evaluated; its type was checked, so only its kind is asked."""
        if isinstance(node, Literal):
            place = self._free.get(node)
            return Const(node.value) if place is None else Step(literal_getter(place))
        if isinstance(node, (Ident, Select)) and node.overloads:
            return self._named(node)
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, ListNode):
            return self._list(node)
        if isinstance(node, MapNode):
            return self._map(node)
        if isinstance(node, StructNode):
            return self._struct(node)
        assert isinstance(node, Comprehension)
        return self._comprehension(node)

    def _named(self, node: Ident | Select) -> Compiled:
        if node.overloads == ("type",):
            assert node.type is not None
            written = (qualified_name(node) or "").removeprefix(".")
            if written in _NAMES_ONLY:
                raise CelProgramError(f"reference to undefined type: {written}")
            return Const(node.type.params[0])
        name = node.overloads[1]
        local = self._locals.get(name)
        if local:
            return Path(local[-1])

        def variable(ctx: Evaluation) -> Any:
            value = ctx.variables.get(name, MISSING)
            return Err(f"no such attribute(s): {name}") if value is MISSING else value

        return Path(variable)

    def _select(self, node: Select) -> Compiled:
        path = as_path(self.compile(node.operand))
        if node.test:
            return Presence(path, node.field)
        return path.qualify(Qualifier(node.field))

    def _call(self, node: Call) -> Compiled:
        if node.function == "_?._":
            field = node.args[1]
            assert isinstance(field, Literal)
            return as_path(self.compile(node.args[0])).qualify(Qualifier(field.value, optional=True))
        arguments = ([node.target] if node.target is not None else []) + node.args
        plans = [self.compile(arg) for arg in arguments]
        special = _SPECIAL.get(node.function)
        if special is not None:
            return special(self, node, plans)
        if not self._fold:
            return self._strict(node, plans)
        if node.function == "@in" and node.overloads == ("in_list",) and isinstance(plans[1], Const):
            member = membership(plans[0], plans[1].value)
            if member is not None:
                return member
        if node.function in _CONVERSIONS and len(plans) == 1 and isinstance(plans[0], Const):
            return self._convert(node, plans[0])
        return self._strict(node, plans)

    def _convert(self, node: Call, argument: Const) -> Compiled:
        value = self._functions[node.function].binding(node.overloads)(argument.value)
        if value.__class__ is Err:
            raise CelProgramError(value.message)
        return Const(value)

    def _strict(self, node: Call, plans: list[Compiled]) -> Compiled:
        declared = self._functions[node.function]
        constants = [plan.value if isinstance(plan, Const) else MISSING for plan in plans]
        special = self._specialize(node.function, constants)
        call = special or declared.binding(node.overloads)
        cost = self._costs.for_call(node.function, node.overloads[0] if len(node.overloads) == 1 else "")
        if special is not None or len(plans) > 2 or declared.stops_early(node.overloads):
            return call_many(plans, call, cost)
        if len(plans) == 2:
            return call_two(plans[0], plans[1], call, cost)
        return call_one(plans[0], call, cost, declared.non_strict) if plans else call_many(plans, call, cost)

    def _index(self, node: Call, plans: list[Compiled], optional: bool) -> Compiled:
        path, index = as_path(plans[0]), plans[1]
        if isinstance(index, Const):
            qualifier = Qualifier(index.value, optional=optional)
        elif isinstance(index, (Path, Choice)):
            qualifier = Qualifier(resolve=index.resolve, optional=optional)
        else:
            qualifier = Qualifier(resolve=index.eval, optional=optional)
        return path.qualify(qualifier)

    def _equality(self, plans: list[Compiled], function: str) -> Compiled:
        cost = self._costs.for_call(function, "equals" if function == "_==_" else "not_equals")
        return call_two(plans[0], plans[1], equal if function == "_==_" else unequal, cost)

    def _list(self, node: ListNode) -> Compiled:
        plans = [self.compile(element) for element in node.elements]
        optionals = node.optionals

        def build(ctx: Evaluation) -> Any:
            values: list[Any] = []
            for index, plan in enumerate(plans):
                value = plan.eval(ctx)
                if value.__class__ is Err:
                    return value
                if index in optionals:
                    if value.__class__ is not OptionalValue:
                        return Err(f"cannot initialize optional list element from non-optional value {show(value)}")
                    if not value.present:
                        continue
                    value = value.value
                values.append(value)
            return values

        return self._constructor(plans, build, 10)

    def _map(self, node: MapNode) -> Compiled:
        pairs = [(self.compile(entry.key), self.compile(entry.value), entry.optional) for entry in node.entries]

        def build(ctx: Evaluation) -> Any:
            entries: list[tuple[Any, Any]] = []
            for key_plan, value_plan, optional in pairs:
                key = key_plan.eval(ctx)
                if key.__class__ is Err:
                    return key
                value = value_plan.eval(ctx)
                if value.__class__ is Err:
                    return value
                if optional:
                    if value.__class__ is not OptionalValue:
                        return Err(
                            f"cannot initialize optional entry '{show(key)}' from non-optional value {show(value)}"
                        )
                    if not value.present:
                        continue
                    value = value.value
                entries.append((key, value))
            return checked_map(entries)

        return self._constructor([plan for key, value, _ in pairs for plan in (key, value)], build, 30)

    def _constructor(self, plans: Sequence[Compiled], build: Callable[[Evaluation], Any], cost: int) -> Compiled:
        if self._fold and all(isinstance(plan, Const) for plan in plans):
            return Const(build(Evaluation({}, 0, 0)))

        def run(ctx: Evaluation) -> Any:
            value = build(ctx)
            ctx.charge(cost)
            return value

        return Step(run)

    def _struct(self, node: StructNode) -> Compiled:
        fields = [(entry.key, self.compile(entry.value), entry.optional) for entry in node.entries]
        new_message, name = self._new_message, node.name.removeprefix(".")

        def build(ctx: Evaluation) -> Any:
            values: dict[str, Any] = {}
            for field, plan, optional in fields:
                value = plan.eval(ctx)
                if value.__class__ is Err:
                    return value
                if optional and not value.present:
                    continue
                values[field] = value.value if optional else value
            ctx.charge(40)
            return new_message(name, values)

        return Step(build)

    def _comprehension(self, node: Comprehension) -> Compiled:
        init = self.compile(node.init)
        source = self.compile(node.range)
        accu, first, second = self.slots, self.slots + 1, self.slots + 2
        self.slots += 3

        def accumulator(ctx: Evaluation) -> Any:
            value = ctx.slots[accu]
            if value is MISSING:
                value = ctx.slots[accu] = init.eval(ctx)
            return value

        names = [(node.accu, accumulator), (node.var, slot_getter(first))]
        if node.var2:
            names.append((node.var2, slot_getter(second)))
        for name, getter in names:
            self._locals.setdefault(name, []).append(getter)
        condition, step = self.compile(node.condition), self.compile(node.step)
        for name, _ in names[1:]:
            self._locals[name].pop()
        result = self.compile(node.result)
        self._locals[node.accu].pop()
        return Step(fold_loop(source, condition, step, result, (accu, first, second), bool(node.var2)))


_SPECIAL: dict[str, Callable[[Compiler, Call, list[Compiled]], Compiled]] = {
    "_&&_": lambda compiler, node, plans: logical(plans, False),
    "_||_": lambda compiler, node, plans: logical(plans, True),
    "_?_:_": lambda compiler, node, plans: Choice(plans[0], as_path(plans[1]), as_path(plans[2])),
    "_==_": lambda compiler, node, plans: compiler._equality(plans, "_==_"),
    "_!=_": lambda compiler, node, plans: compiler._equality(plans, "_!=_"),
    "_[_]": lambda compiler, node, plans: compiler._index(node, plans, False),
    "_[?_]": lambda compiler, node, plans: compiler._index(node, plans, True),
    "or": lambda compiler, node, plans: or_value(plans, unwrap=False),
    "orValue": lambda compiler, node, plans: or_value(plans, unwrap=True),
}
