"""Patterns: Go's own answers (tests/data/regex-1.jsonl.gz, made with regexp of Go 1.26), and patterns as weapons."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dranet.cel import STRING, Environment
from dranet.cel.regex import RegexError, compile_re2

ANSWERS = Path(__file__).parents[1] / "data" / "regex-1.jsonl.gz"


def ours(pattern: str, text: str) -> tuple[str | None, list[str]]:
    try:
        return None, list(compile_re2(pattern).find_all(text))
    except RegexError as error:
        return str(error), []


def test_patterns_find_and_fail_as_in_go() -> None:
    with gzip.open(ANSWERS, "rt", encoding="utf-8") as stream:
        recorded: list[dict[str, Any]] = [json.loads(line) for line in stream]
    different = [
        (line, found)
        for line in recorded
        if (found := ours(line["pattern"], line["text"])) != (line["error"], line["found"] or [])
    ]
    assert len(recorded) > 5000
    assert different == []


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a*)*b", "(.*)*!x", "(?:a?){100}a{100}b"])
@pytest.mark.timeout(30)
def test_a_pattern_cannot_take_more_than_its_share_of_time(pattern: str) -> None:
    text = "a" * 50_000 + "!"
    began = time.process_time()
    assert compile_re2(pattern).is_in(text) is False
    assert time.process_time() - began < 2


@pytest.mark.timeout(30)
def test_an_expression_with_such_a_pattern_is_answered() -> None:
    program = Environment({"text": STRING}).compile("text.matches('(a+)+$')")
    assert program.run({"text": "a" * 5000 + "!"})[0] is False


def test_a_pattern_too_large_for_its_memory_is_refused_in_words() -> None:
    with pytest.raises(RegexError, match="expression too large"):
        compile_re2(r"\pL{1000}")


def test_the_daemon_loads_the_engine_only_for_a_filter_with_a_pattern() -> None:
    script = """
import sys
import dranet.node.server.daemon
from dranet.node.inventory.filter import DeviceFilter
from dranet.core.attributes import DEFAULT_FILTER
from dranet.core.device import Device
assert DeviceFilter(DEFAULT_FILTER).keeps(Device(name="eth0"))
print("re2" in sys.modules)
DeviceFilter('attributes["dra.net/ifName"].StringValue.matches("eth.*")')
print("re2" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
