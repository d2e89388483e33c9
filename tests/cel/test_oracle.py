"""Generated expressions mean the same to us and to Google's own implementation.

The generator is typed, so most expressions compile; a part of them is spoiled on purpose, and then both must refuse.
Only whether there is an error is compared, not its words.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from dranet.cel import (
    BOOL,
    DOUBLE,
    DYN,
    INT,
    STRING,
    CelError,
    Environment,
    Uint,
    list_of,
    map_of,
)

cel = pytest.importorskip("cel_expr_python.cel", reason="Google's CEL binding is not installed")

BINDINGS: dict[str, Any] = {
    "i": 7, "j": -3, "d": 2.5, "s": "eth0", "t": "größe", "b": True, "c": False, "l": [3, 1, 2], "n": ["a", "eth0", ""],
    "m": {"a": 1, "eth0": 2}, "y": "x", "z": 4,
}  # fmt: skip
VARIABLES = {
    "i": INT, "j": INT, "d": DOUBLE, "s": STRING, "t": STRING, "b": BOOL, "c": BOOL, "l": list_of(INT),
    "n": list_of(STRING), "m": map_of(STRING, INT), "y": DYN, "z": DYN,
}  # fmt: skip
THEIRS = {
    "i": cel.Type.INT, "j": cel.Type.INT, "d": cel.Type.DOUBLE, "s": cel.Type.STRING, "t": cel.Type.STRING,
    "b": cel.Type.BOOL, "c": cel.Type.BOOL, "l": cel.Type.List(cel.Type.INT), "n": cel.Type.List(cel.Type.STRING),
    "m": cel.Type.Map(cel.Type.STRING, cel.Type.INT), "y": cel.Type.DYN, "z": cel.Type.DYN,
}  # fmt: skip


class Generator:
    """Random expressions of a wanted type."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = 0

    def of(self, kind: str, depth: int = 3) -> str:
        make = getattr(self, f"_{kind}")
        return str(make(depth))

    def _pick(self, *choices: str) -> str:
        return self._random.choice(choices)

    def _name(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _int(self, depth: int) -> str:
        if depth <= 0:
            return self._pick("0", "1", "-2", "7", "9223372036854775807", "i", "j", "l[0]", 'm["a"]')
        a, b = self.of("int", depth - 1), self.of("int", depth - 1)
        return self._pick(
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / {b})", f"({a} % {b})", f"-({a})",
            f"size({self.of('string', depth - 1)})", f"{self.of('list', depth - 1)}.size()",
            f"({self.of('bool', depth - 1)} ? {a} : {b})", f"int({self.of('double', depth - 1)})",
            f"int({self.of('string', depth - 1)})", f"{self.of('list', depth - 1)}[{a}]",
            f"m[{self.of('string', depth - 1)}]", f"int({self.of('uint', depth - 1)})",
        )  # fmt: skip

    def _uint(self, depth: int) -> str:
        if depth <= 0:
            return self._pick("0u", "1u", "5u", "18446744073709551615u")
        a, b = self.of("uint", depth - 1), self.of("uint", depth - 1)
        return self._pick(
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / {b})", f"({a} % {b})",
            f"uint({self.of('int', depth - 1)})", f"uint({self.of('double', depth - 1)})",
        )  # fmt: skip

    def _double(self, depth: int) -> str:
        if depth <= 0:
            return self._pick("0.0", "1.5", "-2.25", "1e3", "d")
        a, b = self.of("double", depth - 1), self.of("double", depth - 1)
        return self._pick(
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / {b})", f"-({a})",
            f"double({self.of('int', depth - 1)})", f'double("{self._pick("1.5", "x", "-3", "")}")',
        )  # fmt: skip

    def _string(self, depth: int) -> str:
        if depth <= 0:
            return self._pick('""', '"a"', "'eth0'", '"12"', r'"\u00e9\n"', "s", "t", 'r"a\\d"', '"""x"""')
        a, b = self.of("string", depth - 1), self.of("string", depth - 1)
        return self._pick(
            f"({a} + {b})", f"({self.of('bool', depth - 1)} ? {a} : {b})", f"string({self.of('int', depth - 1)})",
            f"string({self.of('bool', depth - 1)})", f"n[{self.of('int', 0)}]", f"string({self.of('uint', depth - 1)})",
        )  # fmt: skip

    def _list(self, depth: int) -> str:
        if depth <= 0:
            return self._pick("l", "[1, 2, 3]", "[0]", "[5, 5]")
        a, b, x = self.of("list", depth - 1), self.of("list", depth - 1), self._name()
        return self._pick(
            f"({a} + {b})", f"[{self.of('int', depth - 1)}, {self.of('int', depth - 1)}]",
            f"{a}.map({x}, {x} * 2)", f"{a}.filter({x}, {x} > {self.of('int', 0)})",
            f"{a}.map({x}, {x} > 1, {x} + {self.of('int', 0)})",
        )  # fmt: skip

    def _bool(self, depth: int) -> str:
        if depth <= 0:
            return self._pick("true", "false", "b", "c")
        kind, x = self._pick("int", "double", "string", "uint"), self._name()
        a, b = self.of(kind, depth - 1), self.of(kind, depth - 1)
        p, q = self.of("bool", depth - 1), self.of("bool", depth - 1)
        text, items = self.of("string", depth - 1), self.of("list", depth - 1)
        return self._pick(
            f"({a} == {b})", f"({a} != {b})", f"({a} < {b})", f"({a} >= {b})", f"({p} && {q})", f"({p} || {q})",
            f"!({p})", f"({p} ? {q} : {p})", f"{text}.startsWith({self.of('string', 0)})",
            f"{text}.contains({self.of('string', 0)})", f"{text}.endsWith({self.of('string', 0)})",
            f'{text}.matches("^[a-z]+[0-9]?$")', f"({self.of('int', depth - 1)} in {items})", f"({text} in m)",
            f"{items}.all({x}, {x} > {self.of('int', 0)})", f"{items}.exists({x}, {x} / ({x} - 1) == 1)",
            f"{items}.exists_one({x}, {x} == {self.of('int', 0)})", f"m.all({x}, m[{x}] > 0)", "has(m.a)", "has(m.q)",
            f"(y == {text})", f"(z == {self.of('int', depth - 1)})", f"(z > {self.of('int', 0)})",
            f"({items} == {self.of('list', depth - 1)})", f"(dyn({a}) == dyn({self.of('int', 0)}))",
            f"(type({a}) == {'string' if kind == 'string' else kind})", '({"a": 1}[' + text + "] == 1)",
        )  # fmt: skip

    def spoiled(self, text: str) -> str:
        """The text with one character gone or doubled."""
        place = self._random.randrange(len(text))
        return text[:place] + self._pick("", text[place] * 2) + text[place + 1 :]


OURS = Environment(variables=VARIABLES, fold=False)
ENV = cel.NewEnv(variables=THEIRS)
ERROR = "error"


def our_answer(text: str) -> Any:
    try:
        return _plain(OURS.compile(text).evaluate(BINDINGS))
    except CelError:
        return ERROR


def their_answer(text: str) -> Any:
    try:
        value = ENV.compile(text).eval(data=BINDINGS)
    except RuntimeError:
        return ERROR
    return ERROR if str(value.type()) == "ERROR" else _plain(value.plain_value())


def _plain(value: Any) -> Any:
    if isinstance(value, Uint):
        return int(value)
    return "nan" if isinstance(value, float) and value != value else value


def differences(texts: list[str]) -> list[tuple[str, Any, Any]]:
    answers = [(text, our_answer(text), their_answer(text)) for text in texts]
    return [entry for entry in answers if entry[1] != entry[2] or type(entry[1]) is not type(entry[2])]


@pytest.mark.parametrize("kind", ["bool", "int", "uint", "double", "string", "list"])
def test_generated_expressions_mean_the_same(kind: str) -> None:
    generator = Generator(sum(map(ord, kind)))
    assert differences([generator.of(kind, depth) for depth in (1, 2, 3) for _ in range(200)]) == []


def test_spoiled_expressions_are_refused_by_both_or_neither() -> None:
    generator = Generator(99)
    assert differences([generator.spoiled(generator.of("bool", 2)) for _ in range(400)]) == []
