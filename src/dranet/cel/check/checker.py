"""Static types: every node gets one, every call its overloads.

The rules are those of cel-go, including its order of overload resolution and the way literals of mixed types are
refused, since a selector that Kubernetes refuses must be refused here with the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dranet.cel import types as t
from dranet.cel.errors import CelTypeError, Issue, Source
from dranet.cel.functions import Function
from dranet.cel.syntax.ast import (
    Call,
    Comprehension,
    Entry,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    StructNode,
    qualified_name,
)
from dranet.cel.values import type_of

_KEPT = 256
"""Signatures of a function that are resolved once."""


class Declarations(Protocol):
    """What the checker needs to know of an environment."""

    def variable(self, name: str) -> t.Type | None: ...
    def type_named(self, name: str) -> t.Type | None: ...
    def function(self, name: str) -> Function | None: ...
    def fields(self, struct_name: str) -> Mapping[str, t.Type] | None: ...


def check(root: Node, source: Source, declarations: Declarations) -> t.Type:
    """Annotate the tree and return the type of the result; raises CelTypeError with all problems found."""
    checker = _Checker(source, declarations)
    checker.check(root)
    if checker.issues:
        raise CelTypeError(checker.issues, source)
    checker.finish(root)
    assert root.type is not None
    return root.type


class _Checker:
    def __init__(self, source: Source, declarations: Declarations) -> None:
        self.issues: list[Issue] = []
        self._source = source
        self._env = declarations
        self._known = t.Substitutions()
        self._scopes: list[dict[str, t.Type]] = []
        self._fresh = 0

    def finish(self, node: Node) -> None:
        """Write the final types into the tree: only now are type variables known, and those that are not are dyn."""
        stack = [node]
        while stack:
            current = stack.pop()
            if current.type is not None:
                current.type = self._known.apply(current.type, unbound_to_dyn=True)
            stack.extend(current.children())

    def check(self, node: Node) -> t.Type:
        """The type of a node, also noted on it. A second check of a node would report its problems twice."""
        node.type = self._type(node)
        return node.type

    def _type(self, node: Node) -> t.Type:
        if isinstance(node, Literal):
            return type_of(node.value)
        if isinstance(node, Ident):
            return self._ident(node)
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

    def _problem(self, offset: int, message: str) -> t.Type:
        line, column = self._source.location(offset)
        self.issues.append(Issue(line, column, message))
        return t.ERROR  # assignable to every type, so one mistake gives one message

    def _lookup(self, name: str) -> t.Type | None:
        """A variable by name, loop variables first. The leading dot of cel-go's absolute names changes nothing here."""
        bare = name.removeprefix(".")
        for scope in reversed(self._scopes):
            if bare in scope:
                return scope[bare]
        return self._env.variable(bare)

    def _variable(self) -> t.Type:
        """A type that is not known yet; numbered as cel-go does, because the names can be seen in messages."""
        self._fresh += 1
        return t.param(f"_var{self._fresh - 1}")

    def _mismatch(self, offset: int, expected: t.Type, actual: t.Type) -> t.Type:
        return self._problem(offset, f"expected type '{expected}' but found '{actual}'")

    def _assignable(self, source: t.Type, target: t.Type) -> bool:
        """Whether it is assignable, binding type variables. Bindings of a failed attempt are dropped."""
        attempt = self._known.copy()
        if attempt.assign(source, target):
            self._known = attempt
            return True
        return False

    def _ident(self, node: Ident) -> t.Type:
        found = self._resolve_name(node, node.name)
        return found or self._problem(node.offset, f"undeclared reference to '{node.name}' (in container '')")

    def _resolve_name(self, node: Node, name: str) -> t.Type | None:
        """A variable, or a type used as a value (`int`, `google.protobuf.Duration`); `overloads` says which it was."""
        found = self._lookup(name)
        if found is None:
            value = self._env.type_named(name.removeprefix("."))
            if value is None:
                return None
            found = t.type_of_type(value)
            node.overloads = ("type",)
        else:
            node.overloads = ("variable", name.removeprefix("."))
        return found

    def _select(self, node: Select) -> t.Type:
        """`a.b.c` is a name where one is declared like that, and a field of `a.b` only otherwise."""
        name = qualified_name(node)
        if name is not None:
            found = self._resolve_name(node, name)
            if found is not None:
                return found
        result = self._field(node, node.operand, node.field, optional=False)
        return t.BOOL if node.test else self._known.apply(result)

    def _field(self, node: Node, operand: Node, field: str, *, optional: bool) -> t.Type:
        owner = self._known.apply(self.check(operand))
        target, was_optional = t.unwrap_optional(owner)
        result = t.ERROR
        if target.kind == "map":
            result = target.params[1]
        elif target.kind == "struct":
            result = self._declared_field(node.offset, target.name, field)
        else:
            if target.kind == "param":
                # Nothing is known of the owner yet. cel-go settles on dyn here; leaving it open would find more types
                # and other messages.
                self._assignable(t.DYN, target)
            elif target.kind not in ("dyn", "any", "error"):
                self._problem(node.offset, f"type '{target}' does not support field selection")
            result = t.DYN
        return t.optional_of(result) if was_optional or optional else result

    def _declared_field(self, offset: int, owner: str, field: str) -> t.Type:
        fields = self._env.fields(owner)
        if fields is None:
            return self._problem(offset, f"unexpected failed resolution of '{owner}'")
        return fields.get(field) or self._problem(offset, f"undefined field '{field}'")

    def _call(self, node: Call) -> t.Type:
        """A function, a method, or a function with dots in its name that looks like a method of a variable."""
        if node.function == "_?._":
            return self._optional_select(node)
        # Arguments before the target, as cel-go does: the order decides the numbers of type variables and messages.
        for arg in node.args:
            self.check(arg)
        if node.target is None:
            return self._global_call(node)
        prefix = qualified_name(node.target)
        if prefix is not None:
            found = self._env.function(f"{prefix}.{node.function}".removeprefix("."))
            if found is not None:
                node.function, node.target = found.name, None
                return self._overloads(node, found)
        self.check(node.target)
        found = self._env.function(node.function)
        if found is None:
            return self._problem(node.offset, f"undeclared reference to '{node.function}' (in container '')")
        return self._overloads(node, found)

    def _global_call(self, node: Call) -> t.Type:
        found = self._env.function(node.function.removeprefix("."))
        if found is None:
            return self._problem(node.offset, f"undeclared reference to '{node.function}' (in container '')")
        node.function = found.name
        return self._overloads(node, found)

    def _optional_select(self, node: Call) -> t.Type:
        field = node.args[1]
        assert isinstance(field, Literal)
        result = self._field(node, node.args[0], field.value, optional=True)
        node.overloads = ("select_optional_field",)
        field.type = t.STRING
        return self._known.apply(result)

    def _overloads(self, node: Call, declared: Function) -> t.Type:
        """Every overload that fits is kept, since with dyn arguments only the values can decide; the result is what
        they agree on, else dyn."""
        arguments = ([node.target] if node.target is not None else []) + node.args
        types = tuple(arg.type or t.ERROR for arg in arguments)
        if declared.name in ("_&&_", "_||_"):
            return self._logical(node, declared, types)
        signature = (node.target is not None, types)
        if known := declared.resolved.get(signature):
            result, node.overloads, numbered = known
            self._fresh += numbered
            return result
        return self._resolve(node, declared, signature)

    def _resolve(self, node: Call, declared: Function, signature: tuple[bool, tuple[t.Type, ...]]) -> t.Type:
        """Try every overload. Where no type variable is involved, the answer holds for all calls with such types."""
        types, before = signature[1], self._fresh
        result: t.Type | None = None
        matching: list[str] = []
        for overload in declared.overloads:
            # Cheap check first: unification copies all bindings, and `<` alone has a dozen overloads.
            if overload.member != (node.target is not None) or not _may_match(types, overload.args):
                continue
            wanted, produced = self._instantiate(overload.args, overload.result, overload.variables())
            attempt = self._known.copy()
            if not attempt.assign_all(types, wanted):
                continue
            self._known = attempt
            matching.append(overload.id)
            produced = self._known.apply(produced)
            if result is None:
                result = produced
            elif result.kind not in ("dyn", "any") and produced != result:
                result = t.DYN
        if result is None:
            return self._no_overload(node, declared, types)
        node.overloads = tuple(matching)
        if len(declared.resolved) < _KEPT and all(map(t.is_known, (result, *types))):
            declared.resolved[signature] = (result, node.overloads, self._fresh - before)
        return result

    def _instantiate(
        self, args: tuple[t.Type, ...], result: t.Type, variables: frozenset[str]
    ) -> tuple[tuple[t.Type, ...], t.Type]:
        """The overload with type variables of its own for this call; two calls must not share them."""
        if not variables:
            return args, result
        fresh = t.Substitutions({name: self._variable() for name in sorted(variables)})
        return tuple(fresh.apply(arg) for arg in args), fresh.apply(result)

    def _logical(self, node: Call, declared: Function, types: tuple[t.Type, ...]) -> t.Type:
        """`&&` and `||` may have many operands (chains are one node); each wrong one is named by itself."""
        wrong = False
        for arg, type_ in zip(node.args, types, strict=True):
            if not self._assignable(type_, t.BOOL):
                self._mismatch(arg.offset, t.BOOL, type_)
                wrong = True
        node.overloads = (declared.overloads[0].id,)
        return t.ERROR if wrong else t.BOOL

    def _no_overload(self, node: Call, declared: Function, types: tuple[t.Type, ...]) -> t.Type:
        shown = [str(self._known.apply(type_, unbound_to_dyn=True)) for type_ in types]
        signature = f"({', '.join(shown)})"
        if node.target is not None:
            signature = f"{shown[0]}.({', '.join(shown[1:])})"
        return self._problem(node.offset, f"found no matching overload for '{declared.name}' applied to '{signature}'")

    def _join(self, previous: t.Type | None, current: t.Type) -> t.Type:
        """The common type of the entries so far and one more; dyn if there is none."""
        if previous is None:
            return current
        return t.most_general(previous, current) if self._assignable(previous, current) else t.DYN

    def _unwrapped(self, node: Node, optional: bool) -> t.Type:
        """The type of an entry; one written with `?` must be optional and counts with what is inside."""
        found = self.check(node)
        if not optional:
            return found
        inner, was_optional = t.unwrap_optional(found)
        if not was_optional and inner.kind not in ("dyn", "any"):
            self._mismatch(node.offset, t.optional_of(inner), inner)
        return inner

    def _list(self, node: ListNode) -> t.Type:
        element: t.Type | None = None
        for index, item in enumerate(node.elements):
            element = self._join(element, self._unwrapped(item, index in node.optionals))
        return t.list_of(element or self._variable())

    def _map(self, node: MapNode) -> t.Type:
        key: t.Type | None = None
        value: t.Type | None = None
        for entry in node.entries:
            key = self._join(key, self.check(entry.key))
            value = self._join(value, self._unwrapped(entry.value, entry.optional))
        return t.map_of(key or self._variable(), value or self._variable())

    def _struct(self, node: StructNode) -> t.Type:
        found = self._env.type_named(node.name.removeprefix("."))
        if found is None:
            return self._problem(node.offset, f"undeclared reference to '{node.name}' (in container '')")
        result = found
        if self._env.fields(found.name) is None:
            result = self._problem(node.offset, f"'{found.name}' is not a message type")
        for entry in node.entries:
            self._struct_field(result, entry)
        return result

    def _struct_field(self, owner: t.Type, entry: Entry) -> None:
        actual = self._unwrapped(entry.value, entry.optional)
        wanted = self._declared_field(entry.offset, owner.name, entry.key) if owner.kind != "error" else t.ERROR
        if not self._assignable(wanted, actual):
            message = f"expected type of field '{entry.key}' is '{wanted}' but provided type is '{actual}'"
            self._problem(entry.offset, message)

    def _comprehension(self, node: Comprehension) -> t.Type:
        """A macro's loop: the accumulator is visible everywhere in it, loop variables not in its result."""
        range_type = self._known.apply(self.check(node.range))
        accumulated = self.check(node.init)
        range_type = self._known.apply(range_type)  # again: the initial value may have taught us something
        self._scopes.append({node.accu: accumulated})
        self._scopes.append(self._loop_variables(node, range_type))
        self._assert(node.condition, t.BOOL)
        self._assert(node.step, accumulated)
        self._scopes.pop()
        result = self.check(node.result)
        self._scopes.pop()
        return self._known.apply(result)

    def _assert(self, node: Node, wanted: t.Type) -> None:
        actual = self.check(node)
        if not self._assignable(wanted, actual):
            self._mismatch(node.offset, wanted, actual)

    def _loop_variables(self, node: Comprehension, range_type: t.Type) -> dict[str, t.Type]:
        if range_type.kind == "list":
            first, second = (t.INT if node.var2 else range_type.params[0]), range_type.params[0]
        elif range_type.kind == "map":
            first, second = range_type.params
        elif range_type.kind in ("dyn", "error", "param"):
            self._assignable(t.DYN, range_type)
            first = second = t.DYN
        else:
            self._problem(
                node.range.offset,
                f"expression of type '{range_type}' cannot be range of a comprehension (must be list, map, or dynamic)",
            )
            first = second = t.ERROR
        return {node.var: first, node.var2: second} if node.var2 else {node.var: first}


def _may_match(types: tuple[t.Type, ...], wanted: tuple[t.Type, ...]) -> bool:
    """Whether it is worth trying: most overloads of an operator are ruled out by two plain types that differ."""
    return len(types) == len(wanted) and not any(map(t.never_alike, types, wanted))
