"""Prints every text that a user or operator can read, from the source: `python -m tools.messages [KIND...]`.

A kind is log, error, help or event. Each line is file:line, the kind and the text, with {} for a value. It is for
reviews: texts that are built from pieces appear as their pieces.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent.parent / "src" / "dranet"
LOG_METHODS = {"debug", "info", "warning", "error", "exception"}
HELP_CALLS = {"option", "argument", "command", "group", "Counter", "Gauge", "Histogram", "Option", "add_argument"}
EVENT_CALLS = {"Condition", "Fault"}
MESSAGE_NAMES = {"message", "_MESSAGE"}
"""Variables that hold the text of an event or condition in `dranet.node`, or of a finding elsewhere."""


class Text(NamedTuple):
    file: Path
    line: int
    kind: str
    text: str


def texts(file: Path) -> Iterator[Text]:
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from _found(file, "error", node.exc.args)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in LOG_METHODS and isinstance(node.func, ast.Attribute) and _is_logger(node.func.value):
                yield from _found(file, "log", node.args[:1])
            elif name in HELP_CALLS:
                values = [word.value for word in node.keywords if word.arg in ("help", "documentation", "epilog")]
                yield from _found(file, "help", [*node.args[1:], *values])
            elif name in EVENT_CALLS or name.endswith(("Error", "Problem", "InvalidInput", "Finding")):
                yield from _found(file, "event" if name in EVENT_CALLS else "error", node.args)
        elif isinstance(node, ast.Assign) and MESSAGE_NAMES & {getattr(target, "id", "") for target in node.targets}:
            yield from _found(file, "event" if "node" in file.relative_to(SOURCE).parts else "error", [node.value])
        elif isinstance(node, ast.FunctionDef) and any("command" in ast.unparse(d) for d in node.decorator_list):
            yield Text(file, node.lineno, "help", " ".join((ast.get_docstring(node) or "").split()))


def _is_logger(node: ast.expr) -> bool:
    return "log" in ast.unparse(node).rpartition(".")[2].lower()


def _found(file: Path, kind: str, values: list[ast.expr]) -> Iterator[Text]:
    for value in values:
        text = _text(value)
        if text and " " in text:
            yield Text(file, value.lineno, kind, text)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return " ".join(node.value.split())
    if isinstance(node, ast.JoinedStr):
        parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        return " ".join("".join(parts).split())
    if isinstance(node, ast.BinOp):
        return f"{_text(node.left)} {_text(node.right)}".strip()
    return ""


def main(kinds: list[str]) -> int:
    for file in sorted(SOURCE.rglob("*.py")):
        for found in sorted(texts(file), key=lambda one: one.line):
            if not kinds or found.kind in kinds:
                print(f"{found.file.relative_to(SOURCE)}:{found.line}: {found.kind}: {found.text}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
