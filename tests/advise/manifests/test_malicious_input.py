"""Small texts that ask for much: refused in words, before anything is made of them."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dranet.advise.manifests import read_text

OBJECT = "apiVersion: v1\nkind: ConfigMap\n"


def merging(levels: int) -> str:
    lines = (f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, levels))
    return OBJECT + "a0: &a0 {x: 1}\n" + "".join(lines)


def aliasing(levels: int, documents: int = 1) -> str:
    lines = (f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, levels))
    return "---\n".join([OBJECT + "a0: &a0 [1, 2]\n" + "".join(lines)] * documents)


ALIASES = "aliases and merge keys add more than 100,000 values to this file; write them out"
DEEP = "nested more than 100 levels deep; Kubernetes objects have fewer levels"
WEAPONS = {
    "merge keys": (merging(30), ALIASES),
    "aliases": (aliasing(9), ALIASES),
    "aliases over many documents": (aliasing(4, 100), ALIASES),
    "an alias of itself": (OBJECT + "a: &a [*a]\n", ALIASES),
    "brackets": ("[" * 100_000, DEEP),
    "closed brackets": ("[" * 100_000 + "]" * 100_000, DEEP),
    "braces": ("{a: " * 50_000, DEEP),
    "dashes": ("- " * 100_000, DEEP),
    "question marks": ("? " * 50_000, DEEP),
    "columns": ("\n".join(" " * i + "a:" for i in range(1000)), DEEP),
    "brackets in an object": (OBJECT + "data: " + "[" * 100_000 + "\n", DEEP),
}


@pytest.mark.parametrize("name", WEAPONS)
def test_malicious_input_is_refused_with_a_message(name: str) -> None:
    """In a process of its own, which it must not end."""
    text, message = WEAPONS[name]
    script = (
        "import sys; from dranet.advise.manifests import read_text\n"
        "found, problems = read_text(sys.stdin.read(), 'x.yaml')\n"
        "print(problems[-1].message, all(p.fatal for p in problems[-1:]), len(problems))"
    )
    limit = (1 << 29, 1 << 29)
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=text,
        capture_output=True,
        text=True,
        timeout=20,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit),
    )
    assert (done.returncode, done.stdout) == (0, f"{message} True 1\n"), done.stderr


def test_the_place_is_where_it_goes_too_deep() -> None:
    _, (problem,) = read_text("[" * 200, "x.yaml")
    assert str(problem).startswith("x.yaml:1:101: ")


@pytest.mark.parametrize("levels", [99, 100])
def test_input_within_the_limits_is_read(levels: int) -> None:
    _, (problem,) = read_text("[" * levels + "]" * levels, "x.yaml")
    assert "expected a Kubernetes object" in problem.message
    (found,), problems = read_text(aliasing(4), "x.yaml")
    assert problems == [] and len(found.data["a3"]) == 10


def test_merge_keys_of_ordinary_size_merge() -> None:
    text = OBJECT + "base: &base {a: 1, b: 2}\nchild: {<<: *base, b: 3}\n"
    (found,), problems = read_text(text, "x.yaml")
    assert problems == [] and found.data["child"] == {"a": 1, "b": 3}


def test_a_number_of_base_sixty_that_never_ends_stays_text() -> None:
    value = "1:" * 50_000 + "1"
    began = time.process_time()
    (found,), _ = read_text(OBJECT + f"data: {value}\n", "x.yaml")
    assert found.data["data"] == value
    assert time.process_time() - began < 0.5


def test_values_one_after_another_are_read_in_time_that_grows_with_the_text() -> None:
    one = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "data": "x" * 300})
    began = time.process_time()
    found, problems = read_text(one * 12_000, "x.json")
    assert (len(found), problems) == (12_000, [])
    places = [obj.at(("data",)).column for obj in found]
    assert time.process_time() - began < 10, "places too"
    assert places[-1] == 11_999 * len(one) + one.index('"data"') + 1


@pytest.mark.parametrize("command", [["lint"], ["plan", "--shape", "nd-gb300-v6", "-f"]], ids=["lint", "plan"])
def test_the_commands_say_it_too(command: list[str], tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("[" * 100_000)
    run = [sys.executable, "-m", "dranet", *command, str(path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2), done.stderr
    assert DEEP in done.stdout + done.stderr
