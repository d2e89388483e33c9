"""The layers match docs/architecture.md, packages are not crowded, and imports load only what they need."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import docs, layers

SOURCE = Path(__file__).parents[2] / "src" / "dranet"
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
MOST_MODULES = 25
"""At one level of one package; more belong into a second package."""
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))


def test_page_shows_the_layers_and_their_imports() -> None:
    assert docs.architecture_page() == PAGE.read_text(), "run `make docs`"


def test_a_layer_imports_only_lower_layers() -> None:
    order = layers.names()
    for layer in layers.layers():
        assert [other for other in layer.imports if order.index(other) >= order.index(layer.name)] == []


def test_files_of_likely_changes_exist() -> None:
    table = PAGE.read_text().partition("## Where to change what")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:4] for line in table.splitlines() if line.startswith("| a")]
    assert len(rows) == 13
    named = {path for row in rows for path in re.findall(r"`([\w./]+)`", "".join(row[1:])) if "/" in path}
    roots = (SOURCE, SOURCE.parents[1], SOURCE.parents[1] / "docs")
    assert sorted(path for path in named if not any((root / path).exists() for root in roots)) == []


def test_every_layer_has_a_description() -> None:
    assert [layer.name for layer in layers.layers() if not layer.holds] == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(SOURCE.parent)))
def test_no_package_is_crowded(package: Path) -> None:
    modules = [path.name for path in package.glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= MOST_MODULES, "move modules of one subject into a package"


def test_every_layer_has_its_tests() -> None:
    tests = Path(__file__).parents[1]
    assert [name for name in layers.names() if not (tests / name).is_dir()] == []


def test_every_module_has_a_docstring() -> None:
    silent = [path for path in SOURCE.rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text()))]
    assert [str(path.relative_to(SOURCE)) for path in silent] == []


def loaded_by(program: str) -> set[str]:
    """Our modules that a fresh interpreter has loaded after this program."""
    code = f"{program}\nimport sys; print(*(name for name in sys.modules if name.startswith('dranet')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("package", ["plan", "explain", "suggest"])
def test_planning_does_not_load_lint_rules(package: str) -> None:
    modules = [path.stem for path in (SOURCE / "advise" / package).glob("*.py") if path.stem != "__init__"]
    found = loaded_by(f"import {', '.join(f'dranet.advise.{package}.{module}' for module in modules)}")
    assert {f"dranet.advise.{package}.{module}" for module in modules} <= found
    assert [name for name in found if name.startswith("dranet.advise.lint")] == []


def test_daemon_loads_only_its_layers() -> None:
    found = loaded_by("import dranet.node.server.daemon")
    others = ("scheduler", "advise", "web", "cli", "testing")
    assert [name for name in found if name.split(".")[1:2] and name.split(".")[1] in others] == []
