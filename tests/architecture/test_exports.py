"""`__all__` of a package lists exactly its public names, sorted, and every package that others import from has one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "dranet"
PACKAGES = {".".join(("dranet", *path.parent.relative_to(SOURCE).parts)): path for path in SOURCE.rglob("__init__.py")}


def parse(package: str) -> ast.Module:
    return ast.parse(PACKAGES[package].read_text())


def exported(package: str) -> list[str] | None:
    """The value of `__all__`, or None without one."""
    for node in parse(package).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            value: list[str] = ast.literal_eval(node.value)
            return value
    return None


def bound(tree: ast.Module) -> set[str]:
    """Names that the top level of a module binds, with imports for type checkers."""
    found: set[str] = set()
    nodes = list(tree.body)
    for node in nodes:
        if isinstance(node, ast.If):
            nodes += node.body
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def internal_imports(tree: ast.Module) -> set[str]:
    """Imports from outside of this project, and those that the module itself uses: not part of the interface."""
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    found -= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("dranet"):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def importers() -> dict[str, set[str]]:
    """By package, the modules outside of it that import a name from its `__init__`."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.module not in PACKAGES:
                continue
            folder = PACKAGES[node.module].parent
            submodules = {child.stem for child in folder.iterdir()}
            if not path.is_relative_to(folder) and any(alias.name not in submodules for alias in node.names):
                found.setdefault(node.module, set()).add(str(path.relative_to(SOURCE)))
    return found


def test_every_package_that_others_import_from_has_all() -> None:
    assert sorted(package for package in importers() if package != "dranet" and exported(package) is None) == []


@pytest.mark.parametrize("package", sorted(package for package in PACKAGES if exported(package) is not None))
def test_all_lists_exactly_the_public_names(package: str) -> None:
    names = exported(package) or []
    tree = parse(package)
    public = {name for name in bound(tree) - (internal_imports(tree) - set(names)) if not name.startswith("_")}
    lazy = any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body)
    assert [name for name in names if name.startswith("_")] == []
    assert public - set(names) == set()
    assert set(names) - public == set() or lazy


@pytest.mark.parametrize("package", sorted(package for package in PACKAGES if exported(package) is not None))
def test_all_is_sorted(package: str) -> None:
    """Constants, then classes, then functions, each by name: the order that ruff sorts imports in."""
    names = exported(package) or []
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert len(set(names)) == len(names)
