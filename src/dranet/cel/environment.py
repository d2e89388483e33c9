"""Where expressions are compiled: declared variables, types and libraries.

env = Environment(variables={"attributes": map_of(STRING, struct("Attribute"))},
                  structs={"Attribute": {"StringValue": STRING, "IntValue": INT}})
env.compile('attributes["kind"].StringValue != "veth"').evaluate({"attributes": {"kind": {"StringValue": "x"}}})
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from dranet.cel import types as t
from dranet.cel.check.checker import check
from dranet.cel.errors import (
    NO_SUCH_OVERLOAD,
    CelEvaluationError,
    CelProgramError,
    CelTypeError,
    Err,
    EvaluationAborted,
    Source,
)
from dranet.cel.functions import Function, Implementation, Library
from dranet.cel.libraries.literal_checks import Validator
from dranet.cel.libraries.messages import WELL_KNOWN, new_message
from dranet.cel.libraries.standard import STANDARD_TYPES, STDLIB
from dranet.cel.regex import Pattern, RegexError, compile_re2
from dranet.cel.run.cost import NO_LIMIT, RuntimeCosts
from dranet.cel.run.paths import Compiled, Evaluation
from dranet.cel.run.program import Compiler
from dranet.cel.syntax.ast import Literal, Node
from dranet.cel.syntax.parser import parse
from dranet.cel.syntax.templates import ExpressionTemplate, FreeLiteral, free_literals, literal_values, read_template
from dranet.cel.values import MISSING, Map, Struct, to_cel, to_python

_ZERO: dict[str, Any] = {"bool": False, "int": 0, "uint": 0, "double": 0.0, "string": "", "bytes": b""}
_DEEP = 10_000
_WORDINGS_KEPT = 4096


class Program:
    """A compiled expression; `type` is the static type of its result.

    Expressions that differ in literals they compare share their `root`, which has those of the `first` of them; their
    own are `literals`.
    """

    def __init__(
        self,
        environment: Environment,
        root: Node,
        type_: t.Type,
        limit: int,
        free: Mapping[FreeLiteral, Sequence[Literal]],
    ) -> None:
        self.root = root
        self.type = type_
        self.literals = self.first = tuple(nodes[0].value for nodes in free.values())
        self._environment = environment
        self._limit = limit
        self._plan, self._slots = environment.plan(root, free.values())

    def with_literals(self, values: tuple[Any, ...]) -> Program:
        """The same with other literals."""
        other = copy.copy(self)
        other.literals = values
        return other

    def evaluate(self, bindings: Mapping[str, Any]) -> Any:
        """The result as plain Python data; raises CelEvaluationError."""
        value, cost = self.run(self._environment.bind(bindings))
        if value.__class__ is Err:
            raise CelEvaluationError(value.message, cost)
        return to_python(value)

    def run(self, variables: dict[str, Any]) -> tuple[Any, int]:
        """The raw result, which may be an `Err`, and its cost. Variables must already be CEL values."""
        ctx = Evaluation(variables, self._slots, self._limit, self.literals)
        try:
            return self._plan.eval(ctx), ctx.cost
        except EvaluationAborted as aborted:
            return Err(aborted.message), ctx.cost
        except RecursionError:
            return Err("expression nested too deeply"), ctx.cost


class Environment:
    """Immutable; safe to share. Compiling is the slow part, so keep the programs.

    With `fold` constants are computed when compiling, and one that cannot be (`int("x")`) is a CelProgramError there.
    """

    def __init__(
        self,
        variables: Mapping[str, t.Type] | None = None,
        *,
        structs: Mapping[str, Mapping[str, t.Type]] | None = None,
        libraries: Sequence[Library] = (),
        optional_syntax: bool = False,
        validators: Sequence[Validator] = (),
        costs: RuntimeCosts | None = None,
        cost_limit: int = NO_LIMIT,
        fold: bool = True,
    ) -> None:
        self._variables = dict(variables or {})
        self._structs = {name: dict(fields) for name, fields in (structs or {}).items()}
        self._optional_syntax = optional_syntax
        self._validators = tuple(validators)
        self._costs = costs or RuntimeCosts()
        self._cost_limit = cost_limit
        self._fold = fold
        self._free: dict[tuple[str, ...], tuple[FreeLiteral, ...]] = {}
        self._by_template: dict[object, Program] = {}
        self._functions: dict[str, Function] = {}
        self._macros: dict[Any, Any] = {}
        self._types = dict(STANDARD_TYPES)
        self._types.update({name: t.struct(name) for name in self._structs})
        for library in (STDLIB, *libraries):
            self._include(library)

    def _include(self, library: Library) -> None:
        for declared in library.functions:
            known = self._functions.get(declared.name)
            self._functions[declared.name] = known.merged(declared) if known else declared
        self._macros.update(library.macros)
        self._types.update({type_.name: type_ for type_ in library.types})

    def differs_from(self, other: Environment) -> frozenset[str]:
        """Names of functions, macros, types and fields that the two declare differently."""
        mine, theirs = self._declared(), other._declared()
        return frozenset(str(key[0]) for key in {*mine, *theirs} if mine.get(key) != theirs.get(key))

    def _declared(self) -> dict[tuple[object, ...], object]:
        """Declarations by name and whatever else distinguishes them."""
        fields = [((field, name), type_) for name, struct in self._structs.items() for field, type_ in struct.items()]
        named = [((name,), made) for known in (self._types, self._functions) for name, made in known.items()]
        return dict([*named, *fields, *self._macros.items()])

    def compile(self, text: str) -> Program:
        """Parse, check and compile; raises CelSyntaxError, CelTypeError or CelProgramError. A text that is worded as an
        earlier one takes over what was found out about that."""
        if sys.getrecursionlimit() < _DEEP:
            sys.setrecursionlimit(_DEEP)  # an expression may nest 250 levels, each a dozen Python frames
        template = read_template(text)
        if template is None:
            return self._compile(text, None)
        places = self._free.get(template.tokens)
        if places is not None and (known := self._by_template.get(_fixed(template, places))):
            values = literal_values(template, places)
            if values is not None:
                return known.with_literals(values)
        return self._compile(text, template)

    def _compile(self, text: str, template: ExpressionTemplate | None) -> Program:
        source = Source(text)
        root = parse(source, self._macros, optional_syntax=self._optional_syntax)
        type_ = check(root, source, self)
        issues = [issue for validate in self._validators for issue in validate(root, source)]
        if issues:
            raise CelTypeError(issues, source)
        free = free_literals(root, text, template) if template is not None else {}
        program = Program(self, root, type_, self._cost_limit, free)
        if template is not None:
            if len(self._by_template) >= _WORDINGS_KEPT:
                self._by_template.clear()
                self._free.clear()
            places = self._free[template.tokens] = tuple(free)
            self._by_template[_fixed(template, places)] = program
        return program

    def result_type(self, text: str) -> t.Type:
        """The static type of an expression's result, without compiling it."""
        type_ = self.checked(text).type
        assert type_ is not None
        return type_

    def checked(self, text: str) -> Node:
        """The checked tree of an expression with its own literals, without compiling it."""
        source = Source(text)
        root = parse(source, self._macros, optional_syntax=self._optional_syntax)
        check(root, source, self)
        return root

    def plan(self, root: Node, free: Iterable[Sequence[Literal]] = ()) -> tuple[Compiled, int]:
        """What evaluates a checked tree, and how many slots that needs; ``free`` literals are read when it runs."""
        compiler = Compiler(
            self._functions,
            self._costs,
            types=self.type_named,
            specialize=_specialize,
            new_message=new_message,
            fold=self._fold,
            free={node: place for place, nodes in enumerate(free) for node in nodes},
        )
        return compiler.compile(root), compiler.slots

    def variable(self, name: str) -> t.Type | None:
        """The type of a declared variable; None where it is not declared."""
        return self._variables.get(name)

    def type_named(self, name: str) -> t.Type | None:
        """A type that an expression may name, such as ``int``."""
        return self._types.get(name)

    def function(self, name: str) -> Function | None:
        """All overloads of a function, over all libraries."""
        return self._functions.get(name)

    def fields(self, struct_name: str) -> Mapping[str, t.Type] | None:
        """The fields of a message type by name; None for an unknown type."""
        return self._structs.get(struct_name) or WELL_KNOWN.get(struct_name)

    def bind(self, bindings: Mapping[str, Any]) -> dict[str, Any]:
        """Plain Python data as values of the declared types."""
        return {name: self._value(value, self._variables.get(name, t.DYN)) for name, value in bindings.items()}

    def _value(self, value: Any, type_: t.Type) -> Any:
        if type_.kind == "struct" and isinstance(value, Mapping):
            return self._new_struct(type_, value)
        if type_.kind == "map" and isinstance(value, Mapping):
            return Map((key, self._value(inner, type_.params[1])) for key, inner in value.items())
        if type_.kind == "list" and isinstance(value, (list, tuple)):
            return [self._value(inner, type_.params[0]) for inner in value]
        return to_cel(value)

    def _new_struct(self, type_: t.Type, values: Mapping[str, Any]) -> Struct:
        declared = self._structs[type_.name]
        fields = {name: self._value(value, declared[name]) for name, value in values.items()}
        return Struct(type_, fields, {name: _zero(field) for name, field in declared.items()})


def _fixed(template: ExpressionTemplate, places: tuple[FreeLiteral, ...]) -> object:
    """The tokens, and the literals that must be equal."""
    free = {one.index for one in places}
    return template.tokens, tuple(text for i, (_, text, _) in enumerate(template.literals) if i not in free)


def _zero(type_: t.Type) -> Any:
    if type_.kind == "list":
        return []
    return Map() if type_.kind == "map" else _ZERO.get(type_.kind)


def _specialize(function: str, constants: Sequence[Any]) -> Implementation | None:
    """A constant pattern is compiled once, and a bad one fails now."""
    if function not in ("matches", "find", "findAll") or len(constants) < 2 or constants[1].__class__ is not str:
        return None
    try:
        pattern = compile_re2(constants[1])
    except RegexError as error:
        raise CelProgramError(str(error)) from error
    return _with_pattern(function, pattern)


def _with_pattern(function: str, pattern: Pattern) -> Implementation:
    def call(text: Any, _: Any, limit: int = -1) -> Any:
        if text.__class__ is not str:
            return NO_SUCH_OVERLOAD
        if function == "matches":
            return pattern.is_in(text)
        if function == "find":
            return next(pattern.find_all(text), "")
        return list(islice(pattern.find_all(text), limit if limit >= 0 else None))

    return call


__all__ = ["MISSING", "Environment", "Program"]
