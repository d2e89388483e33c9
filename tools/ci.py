"""Runs everything a change must pass, stages side by side: `python -m tools.ci [STAGE...]`.

Most stages wait for kernels, containers and virtual machines rather than compute, so several run at once. A stage
writes its output to .ci-logs/NAME.log; a failed one is printed. The end is a table of stages with seconds and the ten
slowest tests. The exit code is 1 if a stage failed; the other stages still run, so one run shows every failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOGS = ROOT / ".ci-logs"
AT_ONCE = 3
SLOWEST = 10


@dataclass(frozen=True)
class Stage:
    """One `make` call, the stages it needs first, and what it shares with no other running stage."""

    name: str
    command: str
    after: tuple[str, ...] = ()
    exclusive: str = ""


# The longest chains come first: a stage starts as soon as it can, in this order.
STAGES = (
    Stage("check", "make check"),
    Stage("parts", "make parts"),
    Stage("cluster", "make e2e", after=("parts",), exclusive="bed"),
    Stage("vm", "make vm", after=("parts",)),
    Stage("host", "make test", after=("check", "parts")),
    Stage("browser", "make browser", after=("parts",)),
    Stage("containerd", "make containerd", after=("parts",)),
    Stage("containerd-1.7", "make containerd-1.7", after=("containerd",)),
    Stage("crio", "make crio", after=("containerd",)),
    Stage("long", "make long", after=("parts",)),
    Stage("campaign", "make campaign-short", after=("parts",)),
    Stage("jobs", "make workloads", after=("parts", "cluster"), exclusive="bed"),
    Stage("release", "make release-test", after=("parts",)),
    Stage("fleet", 'make fleet N=500 ARGS="--short --quiet-seconds 8"', after=("cluster",), exclusive="bed"),
    Stage("site", "make docs-site"),
)


@dataclass
class Result:
    """How a stage ended; a stage whose predecessor failed is not run."""

    code: int | None = None
    started: float = 0.0
    seconds: float = 0.0
    tests: list[tuple[float, str]] = field(default_factory=list)
    skipped: int = 0

    @property
    def word(self) -> str:
        return {None: "not run", 0: "passed"}.get(self.code, "FAILED")


class Run:
    """Starts stages when their predecessors are done, at most AT_ONCE at a time."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._waiting = list(stages)
        self._names = {stage.name for stage in stages}
        self._running: list[Stage] = []
        self._changed = threading.Condition()
        self._begun = time.monotonic()
        self.results = {stage.name: Result() for stage in stages}

    def all(self) -> None:
        with self._changed:
            while self._waiting or self._running:
                self._drop_unreachable()
                while (stage := self._next()) is not None:
                    self._start(stage)
                if self._running:
                    self._changed.wait()

    def _drop_unreachable(self) -> None:
        failed = {name for name, result in self.results.items() if result.code}
        self._waiting = [stage for stage in self._waiting if not failed & set(stage.after)]

    def _next(self) -> Stage | None:
        if len(self._running) >= AT_ONCE:
            return None
        held = {stage.exclusive for stage in self._running if stage.exclusive}
        unfinished = {stage.name for stage in (*self._waiting, *self._running)}
        return next((s for s in self._waiting if s.exclusive not in held and not unfinished & set(s.after)), None)

    def _start(self, stage: Stage) -> None:
        self._waiting.remove(stage)
        self._running.append(stage)
        self._say(f"start   {stage.name}: {stage.command}")
        threading.Thread(target=self._run, args=(stage,), daemon=True).start()

    def _run(self, stage: Stage) -> None:
        result = self.results[stage.name]
        result.started = time.monotonic()
        junit = LOGS / f"{stage.name}.xml"
        options = f"{os.environ.get('PYTEST_ADDOPTS', '')} --junitxml={junit}".strip()
        with (LOGS / f"{stage.name}.log").open("wb") as log:
            environment = {**os.environ, "PYTEST_ADDOPTS": options}
            done = subprocess.run(
                ["bash", "-c", stage.command],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        with self._changed:
            result.code = done.returncode
            result.seconds = time.monotonic() - result.started
            result.tests, result.skipped = _tests(junit)
            self._running.remove(stage)
            self._say(f"{result.word:7} {stage.name} after {result.seconds:.0f} s; {_last_line(stage)}")
            if result.code:
                print((LOGS / f"{stage.name}.log").read_text(errors="replace")[-20000:], flush=True)
            self._changed.notify_all()

    def _say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._begun:5.0f} s] {text}", flush=True)


def _tests(junit: Path) -> tuple[list[tuple[float, str]], int]:
    """Seconds and names of the tests of a stage, and how many were skipped; nothing where a stage has none."""
    if not junit.exists():
        return [], 0
    found = ElementTree.parse(junit)
    cases = [
        (float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}") for case in found.iter("testcase")
    ]
    return cases, sum(1 for _ in found.iter("skipped"))


def _last_line(stage: Stage) -> str:
    """pytest's own closing line, or whatever the stage printed last."""
    lines = (LOGS / f"{stage.name}.log").read_text(errors="replace").splitlines()
    counted = [line for line in lines if " passed" in line and " in " in line]
    return next(iter(counted[-1:] or lines[-1:]), "")


def summary(run: Run, total: float) -> Iterator[str]:
    yield f"{'stage':12} {'result':8} {'seconds':>7} {'tests':>6} {'skipped':>7}"
    for name, result in run.results.items():
        yield f"{name:12} {result.word:8} {result.seconds:7.0f} {len(result.tests):6} {result.skipped:7}"
    yield f"{'all':12} {'':8} {total:7.0f}"
    slowest = sorted((test for result in run.results.values() for test in result.tests), reverse=True)[:SLOWEST]
    yield "\nslowest tests"
    yield from (f"{seconds:7.1f} s  {name}" for seconds, name in slowest)


def main(names: Sequence[str]) -> int:
    unknown = set(names) - {stage.name for stage in STAGES}
    if unknown:
        print(
            f"no such stage: {', '.join(sorted(unknown))}; stages: {', '.join(s.name for s in STAGES)}", file=sys.stderr
        )
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    for old in LOGS.iterdir():
        old.unlink()
    chosen = [stage for stage in STAGES if not names or stage.name in names]
    begun = time.monotonic()
    run = Run(chosen)
    run.all()
    tests = sum(len(result.tests) - result.skipped for result in run.results.values())
    failed = [name for name, result in run.results.items() if result.code != 0]
    print("\n" + "\n".join(summary(run, time.monotonic() - begun)))
    print(f"\n{tests} passed, {len(failed)} failed" if not failed else f"\nfailed or not run: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
