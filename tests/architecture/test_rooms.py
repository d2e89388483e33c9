"""The rooms are as docs/architecture.md says, none is crowded, and a question loads only what it needs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import docs, rooms

SOURCE = Path(__file__).parents[2] / "src" / "dranet"
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
MOST_MODULES = 25
"""At one level of one package; nobody reads more names than that, they are two rooms."""
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))


def test_the_page_shows_the_rooms_and_their_imports_as_they_are() -> None:
    assert docs.architecture_page() == PAGE.read_text(), "run `make docs`"


def test_a_room_imports_only_rooms_that_stand_above_it_on_the_page() -> None:
    order = rooms.names()
    for room in rooms.rooms():
        assert [other for other in room.imports if order.index(other) >= order.index(room.name)] == []


def test_every_file_that_a_likely_change_touches_is_there() -> None:
    table = PAGE.read_text().partition("## What a change touches")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:4] for line in table.splitlines() if line.startswith("| a")]
    assert len(rows) == 10
    named = {path for row in rows for path in re.findall(r"`([\w./]+)`", "".join(row[1:])) if "/" in path}
    roots = (SOURCE, SOURCE.parents[1], SOURCE.parents[1] / "docs")
    assert sorted(path for path in named if not any((root / path).exists() for root in roots)) == []


def test_every_room_says_what_it_holds() -> None:
    assert [room.name for room in rooms.rooms() if not room.holds] == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(SOURCE.parent)))
def test_no_room_is_crowded(package: Path) -> None:
    modules = [path.name for path in package.glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= MOST_MODULES, "put what belongs together into a folder"


def test_every_room_has_its_tests() -> None:
    tests = Path(__file__).parents[1]
    elsewhere = {"podinfo": "podfacts"}
    assert [name for name in rooms.names() if not (tests / elsewhere.get(name, name)).is_dir()] == []


def test_every_module_says_why_it_exists() -> None:
    silent = [path for path in SOURCE.rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text()))]
    assert [str(path.relative_to(SOURCE)) for path in silent] == []


def loaded_by(program: str) -> set[str]:
    """The modules of ours that a fresh interpreter has after it."""
    code = f"{program}\nimport sys; print(*(name for name in sys.modules if name.startswith('dranet')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["planning", "explain.explaining", "suggest.suggesting"])
def test_planning_loads_no_lint_rules(module: str) -> None:
    found = loaded_by(f"import dranet.predict.{module}")
    assert f"dranet.predict.{module}" in found
    assert [name for name in found if name.startswith("dranet.lint")] == []


def test_the_daemon_loads_nothing_that_predicts() -> None:
    found = loaded_by("import dranet.driver.serving.daemon")
    predicting = ("allocation", "scheduling", "predict", "lint", "manifests", "reports", "web", "sandbox")
    assert [name for name in found if name.split(".")[1:2] and name.split(".")[1] in predicting] == []
