"""What the pages show is what the commands print, what they name exists, and what they quote can be read."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from dranet.core.netconfig_parse import parse
from dranet.machines.shape import load_shape
from tools.parameter_examples import parameter_examples

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
TYPED = re.compile(r"^    \$ dranet (?P<command>.*)\n(?P<output>(?:    .*\n)+)", re.MULTILINE)
FENCE = re.compile(r"```(toml|yaml|json)\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
SHOWN = [(page, match["command"], match["output"]) for page in PAGES for match in TYPED.finditer(page.read_text())]
MISTAKES = ROOT / "docs" / "reference" / "lint-rules.md"
"""Quotes what is wrong on purpose, and is checked with the rules."""
FENCED = [(page, kind, text) for page in PAGES if page != MISTAKES for kind, text in FENCE.findall(page.read_text())]


def dranet(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "dranet", *args], text=True, capture_output=True, cwd=ROOT)


def name(value: object) -> str:
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else ""


@pytest.mark.parametrize(("page", "command", "output"), SHOWN, ids=name)
def test_shown_command_prints_the_shown_output(page: Path, command: str, output: str) -> None:
    shown = [line.removeprefix("    ").rstrip() for line in output.splitlines()]
    printed = [line.rstrip() for line in dranet(*shlex.split(command)).stdout.splitlines()]
    if shown[-1] == "...":
        shown.pop()
        printed = printed[: len(shown)]
    assert printed == shown


def test_readme_shows_real_output() -> None:
    assert ROOT / "README.md" in {page for page, _, _ in SHOWN}


@pytest.mark.parametrize(("page", "kind", "text"), FENCED, ids=name)
def test_quoted_manifests_are_valid(page: Path, kind: str, text: str) -> None:
    read: dict[str, Callable[[str], object]] = {
        "toml": tomllib.loads,
        "json": json.loads,
        "yaml": lambda text: list(yaml.safe_load_all(text)),
    }
    assert read[kind](text)


def test_shape_of_the_page_is_valid(tmp_path: Path) -> None:
    (text,) = [text for page, kind, text in FENCED if page.name == "shapes.md" and kind == "toml"]
    (tmp_path / "mine.toml").write_text(text)
    assert load_shape(str(tmp_path / "mine.toml")).name == "my-machine"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        parts = urlsplit(target)
        if parts.scheme:
            continue
        there = page.parent / parts.path if parts.path else page
        assert there.exists(), target
        if parts.fragment and there.suffix == ".md":
            assert parts.fragment in anchors(there), target


def anchors(page: Path) -> set[str]:
    headings = [line.lstrip("#").strip() for line in page.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "example",
    [
        line.strip().partition("  ")[0]
        for line in (ROOT / "docs/reference/discovery.md").read_text().splitlines()
        if line.startswith("    dranet inventory")
    ],
)
def test_examples_for_a_node_run(example: str, tmp_path: Path) -> None:
    _, *args = shlex.split(example.replace("DIR", str(tmp_path)))
    done = dranet(*args, "--cloud-provider-hint", "NONE")
    assert (done.returncode, done.stderr) == (0, "")


def fields_of(value: object, path: str = "") -> Iterator[str]:
    """Every field that a text says, in the words of the parameters' page; names of a map are not fields."""
    if isinstance(value, dict):
        for key, inner in value.items():
            where = f"{path}{key}" + ("[]" if isinstance(inner, list) else "")
            yield where
            yield from fields_of(inner, f"{where}.")
    elif isinstance(value, list):
        for inner in value:
            yield from fields_of(inner, path)


def test_parameter_examples_are_valid_and_complete() -> None:
    page = (ROOT / "docs/reference/parameters.md").read_text()
    documented = set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))
    texts = [yaml.safe_load(text) for text in parameter_examples()]
    for text in texts:
        parse(text)
    assert documented <= {field for text in texts for field in fields_of(text)}


def test_every_test_that_a_page_names_exists() -> None:
    named = {(page, path) for page in PAGES for path in re.findall(r"\btests/[\w/]+\.py\b", page.read_text())}
    assert [f"{name(page)}: {path}" for page, path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_way_of_a_claim_names_at_most_45_modules_and_all_exist() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    way = page[page.index("## The way of a claim") : page.index("## Two time limits")]
    modules = set(re.findall(r"`(\w+/[\w/]+\.py)`", way))
    assert 30 < len(modules) <= 45
    assert [module for module in sorted(modules) if not (ROOT / "src/dranet" / module).exists()] == []
