"""`dranet golden FILE`: compare this implementation with recorded answers of the real one.

Three kinds of file are understood, plain or gzipped, one JSON object a line: allocation problems with kube-scheduler's
answer, CEL expressions with the answers of the selector environment (the first line then holds the devices), and small
clusters with what kube-scheduler said of pods given to it one after the other.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from dranet.allocation import Allocation, AllocationError, Allocator, SelectorCompiler, device_input
from dranet.allocation.selectors import DeviceInput, runtime_type_name
from dranet.cli.golden_worlds import compare_world

# Where the real implementation panics, any clear error of ours agrees.
_PANIC = "internal error:"
_SHOWN = 5


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    raise click.ClickException(f"{path}:{number}: not JSON: {error}") from error


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _without_empty(allocation: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """`"requests": null` is an empty list."""
    for result in allocation or ():
        for config in result["devices"].get("config") or ():
            if not config.get("requests"):
                config.pop("requests", None)
    return allocation


def compare_allocation(line: dict[str, Any]) -> str | None:
    """What differs for one allocation problem; None if nothing does."""
    allocator = Allocator(
        line["node"], line["slices"], line["classes"],
        allocated=line.get("allocated") or (), version=_minor(line.get("kubernetes", "1.36")),
    )  # fmt: skip
    outcome = allocator.allocate(line["claims"])
    expected = line["result"]
    error = expected.get("error") or ""
    if _PANIC in error:
        return None if isinstance(outcome, AllocationError) else f"expected an error ({error}), got {outcome}"
    if isinstance(outcome, AllocationError):
        ours: tuple[Any, ...] = (None, outcome.message, outcome.kind)
    else:
        ours = (outcome.results if isinstance(outcome, Allocation) else None, "", None)
    theirs = (_without_empty(expected.get("allocation")), error, expected.get("error_kind"))
    if ours != theirs:
        return f"expected {json.dumps(theirs)}\n    got      {json.dumps(ours)}"
    steps = (line.get("stats") or {}).get("allocateOne")
    if steps is not None and outcome.steps != steps:
        return f"expected {steps} steps, got {outcome.steps}"
    return None


class CelComparison:
    """Compares expressions, given the header line with devices and version."""

    def __init__(self, header: dict[str, Any]) -> None:
        version = _minor(header.get("kubernetes", "1.36"))
        self._stored = SelectorCompiler(version)
        self._new = SelectorCompiler(version, stored=False)
        self._devices: list[DeviceInput] = [
            device_input(entry["driver"], entry["device"]) for entry in header["devices"]
        ]

    def compare(self, line: dict[str, Any]) -> str | None:
        selector, new = self._stored.compile(line["expression"]), self._new.compile(line["expression"])
        if selector.error != line["compile_error"]:
            return f"compile error: expected {line['compile_error']!r}, got {selector.error!r}"
        if new.error != line["compile_error_new"]:
            return f"compile error of a new object: expected {line['compile_error_new']!r}, got {new.error!r}"
        if selector.output_type is None:
            return None
        if runtime_type_name(selector.output_type) != line["output_type"]:
            return f"type: expected {line['output_type']}, got {runtime_type_name(selector.output_type)}"
        if selector.cost_estimate() != line["cost_estimate"]:
            return f"cost estimate: expected {line['cost_estimate']}, got {selector.cost_estimate()}"
        for place, device in enumerate(self._devices):
            verdict = selector.evaluate(device)
            ours = verdict.matches if verdict.error is None else {"error": verdict.error}
            found = _result_difference(line["results"][place], ours) or _cost_difference(
                line["actual_cost"][place], verdict.cost, line["results"][place]
            )
            if found:
                return f"device #{place}: {found}"
        return None


def _is_panic(expected: Any) -> bool:
    return isinstance(expected, dict) and expected["error"].startswith(_PANIC)


def _result_difference(expected: Any, ours: Any) -> str | None:
    if expected == ours or (_is_panic(expected) and isinstance(ours, dict)):
        return None
    return f"expected {expected}, got {ours}"


def _cost_difference(expected: int | None, ours: int | None, result: Any) -> str | None:
    """No recorded cost means that it depends on the order of a map."""
    if expected is None or expected == ours or _is_panic(result):
        return None
    return f"expected cost {expected}, got {ours}"


def compare_file(path: Path) -> Iterator[tuple[str, str | None]]:
    """Name and difference (None: agrees) of each case of a file."""
    comparison: CelComparison | None = None
    for line in read_lines(path):
        if "slices" in line and "claims" in line:
            yield f"problem {line.get('id')}", compare_allocation(line)
        elif "objects" in line and "steps" in line:
            yield from compare_world(line)
        elif "devices" in line:
            comparison = CelComparison(line)
        elif comparison is not None:
            yield line["expression"], comparison.compare(line)
        else:
            known = "an allocation problem, a small cluster with its pods, or CEL lines that start with their devices"
            raise click.ClickException(f"{path}: a line is none of {known}")


@click.command("golden")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def golden(file: Path) -> None:
    """Compare with recorded answers of the real scheduler, its allocator or its CEL environment."""
    total = agreeing = shown = 0
    for name, difference in compare_file(file):
        total += 1
        if difference is None:
            agreeing += 1
        elif shown < _SHOWN:
            shown += 1
            click.echo(f"{name}\n    {difference}")
    click.echo(f"{agreeing} of {total} agree")
    if agreeing != total or not total:
        raise SystemExit(1)
