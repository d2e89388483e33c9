"""The recipe (recipe.toml) as values."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_FILE: dict[str, Any] = tomllib.loads((HERE / "recipe.toml").read_text())


@dataclass(frozen=True)
class Packages:
    suite: str
    packages: list[str]
    unused: list[str]


@dataclass(frozen=True)
class Kernel:
    suite: str
    first_stage: list[str]
    modules: list[str]
    compiler: list[str]


@dataclass(frozen=True)
class Python:
    version: str
    packages: list[str]


TOOLS = Packages(**_FILE["tools"], unused=[])
ROOT = Packages(**_FILE["root"])
KERNEL = Kernel(**_FILE["kernel"])
PYTHON = Python(**_FILE["python"])
FIRST_STAGE = HERE / "guest" / "first-stage"
SECOND_STAGE = HERE / "guest" / "second-stage"
AGENT = HERE / "guest" / "agent.py"
RXE_EDIT = HERE / "rxe-netns" / "edit.py"
