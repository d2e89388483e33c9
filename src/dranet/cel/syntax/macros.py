"""Macros: what `has`, `all`, `map` and their relatives expand to.

A macro gets the offset of its call, the receiver and the arguments as syntax, and returns syntax. New nodes point at
the call, so an error inside an expansion is reported where the user wrote the macro.
"""

from __future__ import annotations

from collections.abc import Callable

from dranet.cel.syntax.ast import ACCUMULATOR, Call, Comprehension, Ident, ListNode, Literal, MapNode, Node, Select
from dranet.cel.syntax.parser import Macro, MacroError, MacroKey

_OLD_ACCUMULATOR = "__result__"
_UNUSED = "#unused"
_NOT_A_NAME = "argument must be a simple name"


def _accu(offset: int) -> Ident:
    return Ident(offset, ACCUMULATOR)


def _name(node: Node, message: str) -> str:
    if not isinstance(node, Ident):
        raise MacroError(node.offset, message)
    if node.name in (ACCUMULATOR, _OLD_ACCUMULATOR):
        raise MacroError(node.offset, "iteration variable overwrites accumulator variable")
    return node.name


def _has(offset: int, target: Node | None, args: list[Node]) -> Node:
    if not isinstance(args[0], Select):
        raise MacroError(args[0].offset, "invalid argument to has() macro")
    return Select(offset, args[0].operand, args[0].field, test=True)


def _loop_all(offset: int, predicate: Node) -> tuple[Node, Node, Node, Node]:
    condition = Call(offset, "@not_strictly_false", [_accu(offset)])
    return Literal(offset, True), condition, Call(offset, "_&&_", [_accu(offset), predicate]), _accu(offset)


def _loop_exists(offset: int, predicate: Node) -> tuple[Node, Node, Node, Node]:
    condition = Call(offset, "@not_strictly_false", [Call(offset, "!_", [_accu(offset)])])
    return Literal(offset, False), condition, Call(offset, "_||_", [_accu(offset), predicate]), _accu(offset)


def _loop_exists_one(offset: int, predicate: Node) -> tuple[Node, Node, Node, Node]:
    increment = Call(offset, "_+_", [_accu(offset), Literal(offset, 1)])
    step = Call(offset, "_?_:_", [predicate, increment, _accu(offset)])
    result = Call(offset, "_==_", [_accu(offset), Literal(offset, 1)])
    return Literal(offset, 0), Literal(offset, True), step, result


_Loop = Callable[[int, Node], tuple[Node, Node, Node, Node]]


def _quantifier(loop: _Loop) -> Macro:
    """A test of all elements; the predicate is the last argument, behind one or two variables."""

    def expand(offset: int, target: Node | None, args: list[Node]) -> Node:
        assert target is not None
        first, second = _two_names(args) if len(args) == 3 else (_name(args[0], _NOT_A_NAME), "")
        return Comprehension(offset, target, first, *loop(offset, args[-1]), var2=second)

    return expand


def _collect(offset: int, target: Node | None, args: list[Node]) -> Node:
    """map(x, f) and map(x, p, f)."""
    variable = _name(args[0], "argument is not an identifier")
    return _build_list(offset, target, (variable, ""), args[1:-1], args[-1])


def _filter(offset: int, target: Node | None, args: list[Node]) -> Node:
    variable = _name(args[0], "argument is not an identifier")
    return _build_list(offset, target, (variable, ""), args[1:], args[0])


def _build_list(offset: int, target: Node | None, names: tuple[str, str], predicate: list[Node], item: Node) -> Node:
    step: Node = Call(offset, "_+_", [_accu(offset), ListNode(offset, [item])])
    return _build(offset, target, names, predicate, step, ListNode(offset, []))


def _build(
    offset: int, target: Node | None, names: tuple[str, str], predicate: list[Node], step: Node, init: Node
) -> Node:
    """A loop that collects; `predicate` is empty or the condition under which it takes an element."""
    assert target is not None
    if predicate:
        step = Call(offset, "_?_:_", [*predicate, step, _accu(offset)])
    condition = Literal(offset, True)
    return Comprehension(offset, target, names[0], init, condition, step, _accu(offset), var2=names[1])


STANDARD: dict[MacroKey, Macro] = {
    ("has", 1, False): _has,
    ("all", 2, True): _quantifier(_loop_all),
    ("exists", 2, True): _quantifier(_loop_exists),
    ("exists_one", 2, True): _quantifier(_loop_exists_one),
    ("map", 2, True): _collect,
    ("map", 3, True): _collect,
    ("filter", 2, True): _filter,
}


def _two_names(args: list[Node]) -> tuple[str, str]:
    first, second = args[:2]
    for arg in (first, second):
        if not isinstance(arg, Ident):
            raise MacroError(arg.offset, _NOT_A_NAME)
    assert isinstance(first, Ident) and isinstance(second, Ident)
    if first.name == second.name:
        raise MacroError(second.offset, f"duplicate variable name: {first.name}")
    return _name(first, ""), _name(second, "")


def _transform_list(offset: int, target: Node | None, args: list[Node]) -> Node:
    return _build_list(offset, target, _two_names(args), args[2:-1], args[-1])


def _transform_map(*, entry: bool) -> Macro:
    """The last argument is the value of each key, or with `entry` a map of one entry."""

    def expand(offset: int, target: Node | None, args: list[Node]) -> Node:
        names = _two_names(args)
        key: list[Node] = [] if entry else [Ident(offset, names[0])]
        step = Call(offset, "cel.@mapInsert", [_accu(offset), *key, args[-1]])
        return _build(offset, target, names, args[2:-1], step, MapNode(offset, []))

    return expand


TWO_VARIABLES: dict[MacroKey, Macro] = {
    ("all", 3, True): _quantifier(_loop_all),
    ("exists", 3, True): _quantifier(_loop_exists),
    ("existsOne", 3, True): _quantifier(_loop_exists_one),
    ("exists_one", 3, True): _quantifier(_loop_exists_one),
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map(entry=False),
    ("transformMap", 4, True): _transform_map(entry=False),
    ("transformMapEntry", 3, True): _transform_map(entry=True),
    ("transformMapEntry", 4, True): _transform_map(entry=True),
}


def bind(offset: int, name: str, value: Node, body: Node) -> Node:
    """`name` stands for `value` in `body`; the value is computed when first used."""
    return Comprehension(
        offset, ListNode(offset, []), _UNUSED, value, Literal(offset, False), Ident(offset, name), body, accu=name
    )


def _cel_bind(offset: int, target: Node | None, args: list[Node]) -> Node | None:
    if not (isinstance(target, Ident) and target.name == "cel"):
        return None
    if not isinstance(args[0], Ident):
        raise MacroError(args[0].offset, "cel.bind() variable names must be simple identifiers")
    return bind(offset, args[0].name, args[1], args[2])


BINDINGS: dict[MacroKey, Macro] = {("bind", 3, True): _cel_bind}


def _optional_map(flat: bool) -> Macro:
    def expand(offset: int, target: Node | None, args: list[Node]) -> Node:
        assert target is not None
        if not isinstance(args[0], Ident):
            name = "optFlatMap" if flat else "optMap"
            raise MacroError(args[0].offset, f"{name}() variable name must be a simple identifier")
        value = Call(offset, "value", [], _copy(target))
        mapped = bind(offset, args[0].name, value, args[1])
        truthy = mapped if flat else Call(offset, "optional.of", [mapped])
        return Call(offset, "_?_:_", [Call(offset, "hasValue", [], target), truthy, Call(offset, "optional.none", [])])

    return expand


def _copy(node: Node) -> Node:
    """The receiver is evaluated twice, so it needs nodes of its own."""
    import copy

    return copy.deepcopy(node)


OPTIONALS: dict[MacroKey, Macro] = {
    ("optMap", 2, True): _optional_map(False),
    ("optFlatMap", 2, True): _optional_map(True),
}
