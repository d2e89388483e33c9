"""The last line of `make test`: how many tests did not run here, and which command runs them.

pytest lists every reason; a newcomer wants to know what to do. Which command helps follows from a word of the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable

import pytest

ELSEWHERE = "reasons above"
COMMANDS = {
    "kernel": "make vm",
    "make parts": "make parts test",
    "kubebed build": "make parts test",
    "host-local": "make parts test",
    "image in the cache": "make parts test",
    "chromium": "make parts test",
    "root": "sudo make test",
    "the right to": "sudo make test",
}
"""By a word of the reason, the first that fits."""


def line(reasons: Iterable[str]) -> str:
    """Nothing where everything ran."""
    found = Counter(command(reason) for reason in reasons)
    text = ", ".join(f"{count} ({what})" for what, count in found.most_common())
    return f"skipped here, and what runs them: {text}" if text else ""


def command(reason: str) -> str:
    return next((command for word, command in COMMANDS.items() if word in reason), ELSEWHERE)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """After everything else that is printed."""
    yield
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", [])]
    if text := line(found[2] if isinstance(found, tuple) else str(found) for found in skipped):
        terminalreporter.write_line(text)
