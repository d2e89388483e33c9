"""Expressions that differ only in literals are parsed and checked once, and keep their own results."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dranet.cel import CelCompileError, Environment
from dranet.cel import types as t
from dranet.scheduler.allocation.selectors import SelectorCompiler, device_input

RECORDED = Path(__file__).parent.parent / "data" / "cel-1.jsonl.gz"
_LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"|\b\d+\b')


def compiled(environment: Environment, text: str, **variables: Any) -> Any:
    return environment.compile(text).evaluate(variables)


@pytest.fixture
def environment() -> Environment:
    return Environment({"x": t.INT, "s": t.STRING})


def test_compared_numbers_share_a_template(environment: Environment) -> None:
    first, second = environment.compile("x > 5 && x < 10"), environment.compile("x > 7 && x < 8")
    assert first.root is second.root
    assert [first.evaluate({"x": 6}), second.evaluate({"x": 6})] == [True, False]


def test_a_minus_belongs_to_its_number(environment: Environment) -> None:
    assert compiled(environment, "x > -5", x=-6) is False
    assert compiled(environment, "x > -7", x=-6) is True
    assert compiled(environment, "x > - 7", x=-6) is True
    assert compiled(environment, "x - 5 > 7", x=11) is False
    assert compiled(environment, "x - 2 > 7", x=11) is True


def test_the_smallest_number_is_one_and_a_smaller_is_an_error(environment: Environment) -> None:
    assert compiled(environment, "x > -1", x=0) is True
    assert compiled(environment, "x > -9223372036854775808", x=0) is True
    with pytest.raises(CelCompileError, match="invalid int literal"):
        environment.compile("x > -9223372036854775809")


def test_compared_strings_share_a_template(environment: Environment) -> None:
    assert compiled(environment, 's == "a"', s="a") is True
    assert compiled(environment, "s == 'b'", s="a") is False
    assert compiled(environment, r's == "\x61"', s="a") is True
    assert compiled(environment, 's.startsWith("b")', s="ab") is False
    assert compiled(environment, 's.startsWith("a")', s="ab") is True


def test_compared_bytes_stay_bytes(environment: Environment) -> None:
    assert compiled(environment, 'b"abc" == bytes("abc")') is True
    assert compiled(environment, 'b"abc" == bytes("abc")') is True
    assert compiled(environment, r"b'\x61\xff' == bytes('abc')") is False
    with pytest.raises(CelCompileError, match="no matching overload"):
        environment.compile('"abc" == bytes("abc")')


def test_numbers_of_different_types_have_different_templates(environment: Environment) -> None:
    assert compiled(environment, "x > 5", x=6) is True
    assert compiled(environment, "x > 5.5", x=6) is True
    with pytest.raises(CelCompileError, match="no matching overload"):
        environment.compile('x > "5"')


def test_a_pattern_is_part_of_the_template(environment: Environment) -> None:
    assert compiled(environment, 's.matches("^a")', s="ab") is True
    assert compiled(environment, 's.matches("^b")', s="ab") is False


def test_digits_in_names_and_comments_are_not_literals(environment: Environment) -> None:
    assert compiled(environment, "x > 5 // 6 'x\n", x=6) is True
    assert compiled(environment, "x > 7 // 8 'x\n", x=6) is False


def test_recorded_expressions_give_equal_results_with_shared_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, then with other literals: the results equal those of a compiler without templates."""
    lines = gzip.decompress(RECORDED.read_bytes()).decode().splitlines()
    devices = [device_input(one["driver"], one["device"]) for one in json.loads(lines[0])["devices"]]
    texts = [json.loads(line)["expression"] for line in lines[1:]]
    other = [_LITERAL.sub(lambda found: _changed(found.group()), text) for text in texts]
    sharing = SelectorCompiler()
    for text in texts:
        sharing.compile(text)
    found = [_results(sharing, text, devices) for text in other]
    monkeypatch.setattr("dranet.cel.environment.read_template", lambda text: None)
    alone = SelectorCompiler()
    differing = [text for text, results in zip(other, found, strict=True) if results != _results(alone, text, devices)]
    assert differing == []
    assert sum(one != text for one, text in zip(other, texts, strict=True)) > 1000


def _changed(literal: str) -> str:
    return f'{literal[:-1]}y"' if literal.startswith('"') else str(int(literal) + 1)


def _results(compiler: SelectorCompiler, text: str, devices: list[Any]) -> Any:
    selector = compiler.compile(text)
    return selector.error, selector.output_type, selector.cost_estimate(), [selector.evaluate(one) for one in devices]
