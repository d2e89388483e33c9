"""Compares this implementation with recorded answers of kube-scheduler: `python -m tests.golden FILE`.

A file holds one JSON object a line, plain or gzipped, of one of three kinds: allocation problems with the allocator's
answer, CEL expressions with the results of the selector environment (the first line lists the devices), and small
clusters with kube-scheduler's decision for each pod in turn.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dranet.scheduler.allocation import (
    Allocation,
    AllocationError,
    CelFeatures,
    ClusterDevices,
    SelectorCompiler,
    device_input,
)
from dranet.scheduler.allocation.selectors import DeviceInput, runtime_type_name
from dranet.scheduler.releases import Gate, Release, as_release, gate_state
from tests.golden.clusters import compare_world

# Where the real implementation panics, any clear error of ours agrees.
_PANIC = "internal error:"


class MalformedFile(ValueError):
    """A line of a file does not hold a recorded answer."""


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    raise MalformedFile(f"{path}:{number}: not JSON: {error}") from error


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _without_empty(allocation: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """`"requests": null` is an empty list."""
    for result in allocation or ():
        for config in result["devices"].get("config") or ():
            if not config.get("requests"):
                config.pop("requests", None)
    return allocation


def all_gates(version: str) -> Release:
    """The release with all gates of device allocation that need no other gate."""
    found = as_release(version)
    known = [gate for gate in Gate if gate.startswith("DRA") and gate_state(gate, found)]
    needy = (Gate.WORKLOAD_CLAIMS, Gate.PARTITIONABLE_DEVICES_TYPE)
    return Release(found, {gate: True for gate in known if gate not in needy})


def compare_allocation(line: dict[str, Any], *, gates: bool = False) -> str | None:
    """What differs for one allocation problem, by default or with all feature gates; None if nothing does."""
    version = _minor(line.get("kubernetes", "1.36"))
    cluster = ClusterDevices(
        line["slices"], line["classes"],
        allocated=line.get("allocated") or (), version=all_gates(version) if gates else version,
    )  # fmt: skip
    outcome = cluster.allocate(line["node"], line["claims"])
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
        gates = header.get("cel_features") or {}
        features = CelFeatures(
            consumable_capacity=gates.get("EnableConsumableCapacity", True),
            list_attributes=gates.get("EnableListTypeAttributes", False),
        )
        self._stored = SelectorCompiler(version, features=features)
        self._new = SelectorCompiler(version, stored=False, features=features)
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
            yield f"problem {line.get('id')}", compare_allocation(line, gates="-all-gates" in path.name)
        elif "objects" in line and "steps" in line:
            yield from compare_world(line)
        elif "devices" in line:
            comparison = CelComparison(line)
        elif comparison is not None:
            yield line["expression"], comparison.compare(line)
        else:
            raise MalformedFile(
                f"{path}: expected allocation problems, clusters with steps, or devices and expressions"
            )
