"""The closing table: one line a job."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.cluster.workloads.traffic import Traffic

LEAST_SHARE = 0.999
"""Of a job's bytes, at least this much crosses the NICs it claimed."""


@dataclass
class Ledger:
    """A pytest plugin that prints what was entered."""

    lines: list[tuple[str, int, Traffic, str, float]] = field(default_factory=list)

    def enter(self, job: str, traffic: Traffic, result: str, seconds: float) -> None:
        """And hold the job to its share: a job that went another way is no proof."""
        self.lines.append((job, len(traffic.by_nic), traffic, result, seconds))
        fair = traffic.over_nics / len(traffic.by_nic)
        idle = sorted(nic for nic, count in traffic.by_nic.items() if count < fair / 4)
        assert not idle, f"{job}: NICs that carried next to nothing: {idle} of {traffic.by_nic}"
        assert traffic.share >= LEAST_SHARE, f"{job}: only {traffic.share:.2%} of the bytes crossed the claimed NICs"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("jobs over claimed NICs")
        first = max((len(job) for job, *_ in self.lines), default=6)
        fifth = max((len(result) for _, _, _, result, _ in self.lines), default=6)
        head = f"{'job':{first}}  NICs  bytes over the NICs    share  {'result':{fifth}}  seconds"
        terminalreporter.write_line(head)
        for job, nics, traffic, result, seconds in self.lines:
            moved = f"{nics:5}  {traffic.over_nics:20,}  {traffic.share:7.2%}"
            terminalreporter.write_line(f"{job:{first}}  {moved}  {result:{fifth}}  {seconds:7.1f}")
