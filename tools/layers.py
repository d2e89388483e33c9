"""The layers as import-linter's contract lists them, with what each holds and really imports.

`docs/architecture.md` shows the result, so its table can neither name an import that does not exist nor miss one that
does.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import grimp

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dranet"


class Layer(NamedTuple):
    """One package directly below ``dranet``."""

    name: str
    holds: str
    """The first sentences of its docstring, on one line."""
    imports: tuple[str, ...]
    """Other layers, from the ground up."""


def contracts() -> list[dict[str, Any]]:
    """What import-linter checks, as written."""
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    return found


def names() -> list[str]:
    """All layers, from the ground up."""
    (found,) = (contract["layers"] for contract in contracts() if contract["name"].startswith("Layers:"))
    return [name.strip() for layer in reversed(found) for name in re.split("[|:]", layer)]


def layers() -> list[Layer]:
    """Every layer, from the ground up."""
    graph = grimp.build_graph("dranet")
    order = names()
    imported: dict[str, set[str]] = {name: set() for name in order}
    for module in graph.modules - {"dranet", "dranet.__main__"}:
        here = _layer(module)
        imported[here] |= {_layer(other) for other in graph.find_modules_directly_imported_by(module) if "." in other}
    return [Layer(name, _holds(name), tuple(o for o in order if o in imported[name] - {name})) for name in order]


def _layer(module: str) -> str:
    return module.split(".")[1]


def _holds(name: str) -> str:
    """The first paragraph of the layer's docstring."""
    file = SOURCE / name / "__init__.py"
    text = ast.get_docstring(ast.parse((file if file.exists() else SOURCE / f"{name}.py").read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())
