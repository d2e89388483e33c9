"""The YAML of the parameters' page: one text a situation, which together show every field."""

from __future__ import annotations

from pathlib import Path

_FILE = Path(__file__).with_suffix(".yaml")


def parameter_examples() -> list[str]:
    """Each begins with a comment that says what it is for."""
    return [text.strip() for text in _FILE.read_text("utf-8").split("\n---\n")]


def examples_section() -> str:
    """The examples as Markdown."""
    return "\n\n".join(f"```yaml\n{text}\n```" for text in parameter_examples())
