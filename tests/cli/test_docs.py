"""What the pages show is what the commands print, what they name exists, and what they quote can be read."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from dranet.model.netconfig_parse import parse
from dranet.topology.shape import load_shape
from tools.parameter_examples import parameter_examples

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
TYPED = re.compile(r"^    \$ dranet (?P<command>.*)\n(?P<output>(?:    .*\n)+)", re.MULTILINE)
FENCE = re.compile(r"```(toml|yaml|json)\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
SHOWN = [(page, match["command"], match["output"]) for page in PAGES for match in TYPED.finditer(page.read_text())]
MISTAKES = ROOT / "docs" / "lint-rules.md"
"""Quotes what is wrong on purpose, and is checked with the rules."""
FENCED = [(page, kind, text) for page in PAGES if page != MISTAKES for kind, text in FENCE.findall(page.read_text())]


def dranet(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "dranet", *args], text=True, capture_output=True, cwd=ROOT)


def name(value: object) -> str:
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else ""


@pytest.mark.parametrize(("page", "command", "output"), SHOWN, ids=name)
def test_a_shown_command_prints_what_is_shown(page: Path, command: str, output: str) -> None:
    shown = [line.removeprefix("    ").rstrip() for line in output.splitlines()]
    printed = [line.rstrip() for line in dranet(*shlex.split(command)).stdout.splitlines()]
    if shown[-1] == "...":
        shown.pop()
        printed = printed[: len(shown)]
    assert printed == shown


def test_the_readme_shows_real_output() -> None:
    assert ROOT / "README.md" in {page for page, _, _ in SHOWN}


@pytest.mark.parametrize(("page", "kind", "text"), FENCED, ids=name)
def test_what_is_quoted_can_be_read(page: Path, kind: str, text: str) -> None:
    read = {"toml": tomllib.loads, "json": json.loads, "yaml": lambda text: list(yaml.safe_load_all(text))}[kind]
    assert read(text)


def test_the_shape_of_the_page_is_a_shape(tmp_path: Path) -> None:
    (text,) = [text for page, kind, text in FENCED if page.name == "shapes.md" and kind == "toml"]
    (tmp_path / "mine.toml").write_text(text)
    assert load_shape(str(tmp_path / "mine.toml")).name == "my-machine"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
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
def test_examples_of_looking_at_a_node_run(example: str, tmp_path: Path) -> None:
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


def test_the_yaml_of_the_parameters_is_valid_and_shows_every_field() -> None:
    page = (ROOT / "docs/reference/parameters.md").read_text()
    documented = set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))
    texts = [yaml.safe_load(text) for text in parameter_examples()]
    for text in texts:
        parse(text)
    assert documented <= {field for text in texts for field in fields_of(text)}
