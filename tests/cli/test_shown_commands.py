"""Every command that a page shows is run by a test, is checked word by word, or says that it is not run.

`dranet`: the command and its options exist (output that is shown is compared in test_docs). `make`: the target exists.
Everything else must be in a block that a cluster scenario runs as it stands (`lines_of`), or below a line
`<!-- not run: why -->`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from dranet.cli.main import COMMANDS, load_command
from dranet.node.server.options import Options

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    if path.name != "CHANGELOG.md"
]
OTHERS = (
    "kubectl helm kustomize gcloud az eksctl oci pip python python3 uvx sha256sum skopeo crane ctr docker ip rdma rm"
)
PROGRAMS = {"dranet", "make", *OTHERS.split()}
BLOCK = re.compile(r"(?:^    .*\n(?:\n(?=    ))?)+", re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: .+? -->\s*\Z")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SCENARIOS = "".join(path.read_text() for path in ROOT.glob("tests/cluster/*.py"))
RUN = set(re.findall(r'lines_of\(\s*"([^"]+)", "([^"]+)"', SCENARIOS))
"""Page, and words of the block in it that a scenario runs."""


@dataclass(frozen=True)
class Shown:
    """One command on one page."""

    page: str
    words: tuple[str, ...]
    is_run: bool
    is_marked: bool

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def shown() -> Iterator[Shown]:
    for path in PAGES:
        page = str(path.relative_to(ROOT))
        text = FENCED.sub("", path.read_text())
        for block in BLOCK.finditer(text):
            is_marked = bool(NOT_RUN.search(text[: block.start()]))
            is_run = any(words in block[0] for where, words in RUN if where == page)
            # A list's continuation is indented as well; its lines begin with no program's name and a space.
            for line in typed(block[0]):
                yield Shown(page, words_of(line), is_run, is_marked)


def typed(block: str) -> Iterator[str]:
    """What is typed, without what is printed: in a block with a prompt only lines with it."""
    lines = [line[4:] for line in block.splitlines()]
    prompted = [line[2:] for line in lines if line.startswith("$ ")]
    joined = "\n".join(prompted or lines).replace("\\\n", " ")
    yield from (line for line in joined.splitlines() if line.split(" ")[0] in PROGRAMS)


def words_of(line: str) -> tuple[str, ...]:
    """The first command of a line; two spaces begin a remark."""
    first = re.split(r"\s+#\s|\s{2,}(?![-\"'])", line)[0]
    return tuple(shlex.split(re.split(r"\s(?:\||&&|>|<<)\s?", first)[0]))


SHOWN = list(shown())
RUN_SOMEWHERE = {one.words for one in SHOWN if one.is_run}


def of(*programs: str) -> list[Shown]:
    return [one for one in SHOWN if one.words[0] in programs]


@pytest.mark.parametrize("one", of("dranet"), ids=str)
def test_shown_command_and_its_options_exist(one: Shown) -> None:
    _, name, *rest = one.words
    if name == "run":
        known = {f"--{field.replace('_', '-')}" for field in Options.__dataclass_fields__}
        assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= known
        return
    if name.startswith("-"):
        return
    assert name in COMMANDS
    command = load_command(name)
    if isinstance(command, click.Group) and rest and rest[0] in command.commands:
        command, rest = command.commands[rest[0]], rest[1:]
    assert not isinstance(command, click.Group) or command.invoke_without_command, "a command of its own is missing"
    command.make_parser(click.Context(command)).parse_args(args=rest)


@pytest.mark.parametrize("one", of("make"), ids=str)
def test_shown_make_target_exists(one: Shown) -> None:
    targets = set(re.findall(r"^([a-z0-9.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {word for word in one.words[1:] if "=" not in word and not word.startswith("-")} <= targets


@pytest.mark.parametrize("one", of(*OTHERS.split()), ids=str)
def test_shown_commands_of_other_programs_are_run_or_marked(one: Shown) -> None:
    is_run = one.words in RUN_SOMEWHERE or f'"{" ".join(one.words)}"' in SCENARIOS
    assert is_run or one.is_marked, (
        "run its block with lines_of in tests/cluster, or put <!-- not run: why --> above it"
    )


def test_readme_blocks_are_run() -> None:
    installing = [one for one in of("helm") if one.page == "README.md"]
    assert installing
    assert all(one.is_run for one in installing)
