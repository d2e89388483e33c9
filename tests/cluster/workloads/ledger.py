"""The closing table: one line a job."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from workloads.traffic import Traffic

LEAST_SHARE = 0.999
"""Of a job's bytes, at least this much crosses the cards it claimed."""


@dataclass
class Ledger:
    """A pytest plugin that prints what was entered."""

    lines: list[tuple[str, int, Traffic, str, float]] = field(default_factory=list)

    def enter(self, job: str, traffic: Traffic, result: str, seconds: float) -> None:
        """And hold the job to its share: a job that went another way is no proof."""
        self.lines.append((job, len(traffic.by_card), traffic, result, seconds))
        fair = traffic.over_cards / len(traffic.by_card)
        idle = sorted(card for card, count in traffic.by_card.items() if count < fair / 4)
        assert not idle, f"{job}: cards that carried next to nothing: {idle} of {traffic.by_card}"
        assert traffic.share >= LEAST_SHARE, f"{job}: only {traffic.share:.2%} of the bytes crossed the claimed cards"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("jobs over claimed cards")
        first, fifth = (max((len(line[place]) for line in self.lines), default=6) for place in (0, 3))
        head = f"{'job':{first}}  cards  bytes over the cards    share  {'result':{fifth}}  seconds"
        terminalreporter.write_line(head)
        for job, cards, traffic, result, seconds in self.lines:
            moved = f"{cards:5}  {traffic.over_cards:20,}  {traffic.share:7.2%}"
            terminalreporter.write_line(f"{job:{first}}  {moved}  {result:{fifth}}  {seconds:7.1f}")
