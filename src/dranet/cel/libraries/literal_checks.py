"""Checks on literals that the type checker cannot make: durations, timestamps, patterns, mixed lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dranet.cel import types as t
from dranet.cel.errors import Issue, Source
from dranet.cel.libraries.timing import parse_duration, parse_timestamp
from dranet.cel.regex import RegexError, compile_re2
from dranet.cel.syntax.ast import Call, ListNode, Literal, MapNode, Node
from dranet.cel.values import Timestamp

Validator = Callable[[Node, Source], list[Issue]]


def descendants(root: Node) -> Iterator[Node]:
    """Every node, parents before children."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children()))


def issue(node: Node, source: Source, message: str) -> Issue:
    """A problem of a literal, at the literal's position."""
    line, column = source.location(node.offset)
    return Issue(line, column, message)


def _literal_argument(function: str, valid: Callable[[object], bool]) -> Validator:
    def validate(root: Node, source: Source) -> list[Issue]:
        found: list[Issue] = []
        for node in descendants(root) if function in source.text else ():
            if isinstance(node, Call) and node.function == function and node.args:
                argument = node.args[0]
                if isinstance(argument, Literal) and not valid(argument.value):
                    found.append(issue(argument, source, f"invalid {function} argument"))
        return found

    return validate


def _is_duration(value: object) -> bool:
    return not isinstance(value, str) or parse_duration(value) is not None


def _is_timestamp(value: object) -> bool:
    return not isinstance(value, str) or isinstance(parse_timestamp(value), Timestamp)


def _is_pattern(value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        compile_re2(value)
    except RegexError:
        return False
    return True


def _homogeneous(root: Node, source: Source) -> list[Issue]:
    found: list[Issue] = []
    exempt = _below_format(root)
    for node in descendants(root):
        if isinstance(node, ListNode) and node not in exempt:
            typed = [(item, _inner(item.type, index in node.optionals)) for index, item in enumerate(node.elements)]
            found += _first_difference(typed, source)
    for node in descendants(root):
        if isinstance(node, MapNode) and node.entries and node not in exempt:
            keys = [(entry.key, _inner(entry.key.type, False)) for entry in node.entries]
            values = [(entry.value, _inner(entry.value.type, entry.optional)) for entry in node.entries]
            for key, value in zip(keys, values, strict=True):
                found += _difference(keys[0][1], key, source) + _difference(values[0][1], value, source)
    return found


def _below_format(root: Node) -> frozenset[Node]:
    """Arguments of `format` may be of mixed types."""
    calls = (node for node in descendants(root) if isinstance(node, Call) and node.function == "format")
    return frozenset(below for call in calls for below in descendants(call))


def _inner(type_: t.Type | None, optional: bool) -> t.Type:
    assert type_ is not None
    return type_.params[0] if optional and type_.params else type_


def _first_difference(typed: list[tuple[Node, t.Type]], source: Source) -> list[Issue]:
    for entry in typed[1:]:
        found = _difference(typed[0][1], entry, source)
        if found:
            return found
    return []


def _difference(expected: t.Type, entry: tuple[Node, t.Type], source: Source) -> list[Issue]:
    node, actual = entry
    if _equivalent(expected, actual):
        return []
    return [issue(node, source, f"expected type '{expected}' but found '{actual}'")]


def _equivalent(first: t.Type, second: t.Type) -> bool:
    same = first.kind == second.kind and first.name == second.name and len(first.params) == len(second.params)
    return same and all(_equivalent(one, other) for one, other in zip(first.params, second.params, strict=True))


LITERAL_VALIDATORS: tuple[Validator, ...] = (
    _literal_argument("duration", _is_duration),
    _literal_argument("timestamp", _is_timestamp),
    _literal_argument("matches", _is_pattern),
    _homogeneous,
)
