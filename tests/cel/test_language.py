"""The language: syntax errors with their place, static types, and what expressions evaluate to."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.cel import (
    BOOL,
    DYN,
    INT,
    STRING,
    CelEvaluationError,
    CelProgramError,
    CelSyntaxError,
    CelTypeError,
    Environment,
    map_of,
    struct,
)

VARIABLES = {"s": STRING, "n": INT, "x": DYN, "m": map_of(STRING, INT)}
ENV = Environment(variables=VARIABLES)
BOUND: dict[str, Any] = {"s": "eth0", "n": 3, "x": 1, "m": {"a": 1}}


def value(text: str) -> Any:
    return ENV.compile(text).evaluate(BOUND)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("2.0 < 3", True),
        ("'a' + \"b\"", "ab"),
        (r"'\x41\u00e9\101'", "AéA"),
        ("r'\\d'", "\\d"),
        ("size('größe')", 5),
        ("[1, 2, 3].map(v, v * n)", [3, 6, 9]),
        ("[1, 2, 3].filter(v, v > 1)", [2, 3]),
        ("{'a': 1}.exists(k, k == 'a')", True),
        ("has(m.a) && !has(m.b)", True),
        ("n == 3 ? 'three' : 'other'", "three"),
        ("1 / 0 == 1 || true", True),
        ("false && 1 / 0 == 1", False),
        ("[1, 0].exists(v, 1 / v == 1)", True),
        ("string(timestamp('2020-02-29T12:00:00.5Z') + duration('1h30m'))", "2020-02-29T13:30:00.5Z"),
        ("duration('90s').getMinutes()", 1),
        ("timestamp('2024-01-07T00:00:00Z').getDayOfWeek()", 0),
        ("dyn(1) == 1.0 && dyn('1') != 1", True),
        ("{true: 1, 'true': 2}.size()", 2),
        ("type(1u) == uint", True),
        ("b'\\xff'.size()", 1),
        ("s.matches('^eth[0-9]$')", True),
        ("x in [1, 2]", True),
    ],
)
def test_expressions_have_their_value(text: str, expected: Any) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0", "division by zero"),
        ("n % 0", "modulus by zero"),
        ("9223372036854775807 + n", "integer overflow"),
        ("0u - 1u", "unsigned integer overflow"),
        ("m['b']", "no such key: b"),
        ("[1][n]", "index out of bounds: 3"),
        ("x < 'a'", "no such overload"),
        ("int(s)", "type conversion error from 'string' to 'int'"),
        ("s.matches(s + '(')", "error parsing regexp: missing closing ): `eth0(`"),
    ],
)
def test_failures_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(CelEvaluationError) as caught:
        value(text)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("(s == 'a'", 1, 10, "Syntax error: missing ')' at '<EOF>'"),
        ("s == 'a')", 1, 9, "Syntax error: extraneous input ')' expecting <EOF>"),
        ("s = 'a'", 1, 3, "Syntax error: token recognition error at: '= '"),
        ("s..t", 1, 3, "Syntax error: no viable alternative at input '..'"),
        ("s.true", 1, 3, "Syntax error: mismatched input 'true' expecting IDENTIFIER"),
        ("true &&\n  'open", 2, 3, "Syntax error: token recognition error at: ''open'"),
        ("if", 1, 1, "reserved identifier: if"),
        ("9223372036854775808", 1, 1, "invalid int literal"),
        ("has(s)", 1, 5, "invalid argument to has() macro"),
        ("[1].all(1, true)", 1, 9, "argument must be a simple name"),
    ],
)
def test_syntax_errors_name_their_place(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(CelSyntaxError) as caught:
        ENV.compile(text)
    assert (caught.value.line, caught.value.column, caught.value.message) == (line, column, message)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("unknown == 1", 1, "undeclared reference to 'unknown' (in container '')"),
        ("s + 1", 3, "found no matching overload for '_+_' applied to '(string, int)'"),
        ("s.nope()", 7, "undeclared reference to 'nope' (in container '')"),
        ("n && true", 1, "expected type 'bool' but found 'int'"),
        ("s.field", 2, "type 'string' does not support field selection"),
        (
            "n.all(v, true)", 1,
            "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
    ],
)  # fmt: skip
def test_type_errors_name_their_place(text: str, column: int, message: str) -> None:
    with pytest.raises(CelTypeError) as caught:
        ENV.compile(text)
    assert (caught.value.column, caught.value.message) == (column, message)


def test_an_error_shows_the_line_and_points_at_the_place() -> None:
    with pytest.raises(CelSyntaxError) as caught:
        ENV.compile("1 + ")
    assert str(caught.value).splitlines()[1:] == [" | 1 + ", " | ....^"]


def test_declared_objects_have_typed_fields_and_zero_values() -> None:
    fields = {"StringValue": STRING, "BoolValue": BOOL, "IntValue": INT, "VersionValue": STRING}
    env = Environment(variables={"attributes": map_of(STRING, struct("Attribute"))}, structs={"Attribute": fields})
    program = env.compile('!("dra.net/type" in attributes) || attributes["dra.net/type"].StringValue  != "veth"')
    assert program.evaluate({"attributes": {"dra.net/type": {"StringValue": "veth"}}}) is False
    assert program.evaluate({"attributes": {"dra.net/type": {"IntValue": 1}}}) is True
    assert program.evaluate({"attributes": {}}) is True
    with pytest.raises(CelTypeError, match="undefined field 'Value'"):
        env.compile('attributes["a"].Value')


def test_a_constant_that_cannot_be_computed_fails_when_compiling_unless_told_otherwise() -> None:
    with pytest.raises(CelProgramError, match="type conversion error from 'string' to 'int'"):
        ENV.compile("int('x') == 1 || true")
    assert Environment(fold=False).compile("int('x') == 1 || true").evaluate({}) is True


def test_deep_nesting_is_refused_not_crashed_on() -> None:
    assert ENV.compile("(" * 200 + "true" + ")" * 200).evaluate(BOUND) is True
    with pytest.raises(CelSyntaxError, match="expression recursion limit exceeded: 250"):
        ENV.compile("(" * 300 + "true" + ")" * 300)


def test_a_long_chain_of_alternatives_is_no_deep_one() -> None:
    assert ENV.compile(" || ".join(["n == 4"] * 2000 + ["true"])).evaluate(BOUND) is True


def test_cost_is_limited() -> None:
    limited = Environment(cost_limit=100)
    with pytest.raises(CelEvaluationError, match="actual cost limit exceeded"):
        limited.compile("[1, 2, 3, 4, 5].all(x, [1, 2, 3, 4, 5].all(y, x + y > 0))").evaluate({})
