"""Logs of the users' documents, and logs written here in the words of programs we do not have."""

from __future__ import annotations

from pathlib import Path

LOGS = Path(__file__).parents[2] / "data" / "logs"
DATA = Path(__file__).parents[2] / "data"


def log(name: str) -> str:
    return (LOGS / name).read_text("utf-8")
