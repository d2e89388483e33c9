"""The table at the end: every test of the guest, its result and its seconds there, then one line that counts."""

import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    name: str
    outcome: str
    seconds: float


def results(junit: str) -> list[Result]:
    return [_result(case) for case in ElementTree.fromstring(junit).iter("testcase")]


def _result(case: ElementTree.Element) -> Result:
    marks = [mark for mark in ("failure", "error", "skipped") if case.find(mark) is not None]
    outcome = {"failure": "FAILED", "error": "ERROR", "skipped": "skipped"}[marks[0]] if marks else "passed"
    name = f"{case.get('classname', '').removeprefix('tests.')}::{case.get('name', '')}"
    return Result(name, outcome, float(case.get("time", "0")))


def table(found: list[Result], wall_seconds: float) -> str:
    width = max((len(result.name) for result in found), default=4)
    lines = [f"{'test':{width}}  result   seconds in guest"]
    lines += [f"{result.name:{width}}  {result.outcome:7}  {result.seconds:8.2f}" for result in found]
    counts = Counter(result.outcome for result in found)
    summary = ", ".join(f"{counts[outcome]} {outcome}" for outcome in sorted(counts)) or "no test ran"
    return "\n".join([*lines, f"{summary}; wall time {wall_seconds:.1f} s"])
