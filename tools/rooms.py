"""The rooms of the house as import-linter's contract lists them, with what each holds and really imports.

`docs/architecture.md` shows the result, so its table can neither name an import that does not exist nor miss one that
does.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import grimp

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dranet"


class Room(NamedTuple):
    """One package directly below ``dranet``, or a module there that stands alone."""

    name: str
    holds: str
    """The first sentences of its docstring, on one line."""
    imports: tuple[str, ...]
    """Other rooms, from the ground up."""


def contracts() -> list[dict[str, Any]]:
    """What import-linter checks, as written."""
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    return found


def names() -> list[str]:
    """All rooms, from the ground up."""
    (layers,) = (contract["layers"] for contract in contracts() if contract["name"].startswith("Rooms:"))
    return [name.strip() for layer in reversed(layers) for name in layer.split("|")]


def rooms() -> list[Room]:
    """Every room, from the ground up."""
    graph = grimp.build_graph("dranet")
    order = names()
    imported: dict[str, set[str]] = {name: set() for name in order}
    for module in graph.modules - {"dranet", "dranet.__main__"}:
        here = _room(module)
        imported[here] |= {_room(other) for other in graph.find_modules_directly_imported_by(module) if "." in other}
    return [Room(name, _holds(name), tuple(o for o in order if o in imported[name] - {name})) for name in order]


def _room(module: str) -> str:
    return module.split(".")[1]


def _holds(name: str) -> str:
    """The first paragraph of the room's docstring."""
    file = SOURCE / name / "__init__.py"
    text = ast.get_docstring(ast.parse((file if file.exists() else SOURCE / f"{name}.py").read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())
