"""The search against an oracle that cannot be clever: every assignment in order, checked only when it is complete.

The scheduler takes the first assignment in the order claims, requests, alternatives, combinations of devices. Trying
all of them says the same without any of the search's shortcuts, for problems small enough.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest

from dranet.scheduler.allocation import Allocation, ClusterDevices, NoFit
from tests.scheduler.allocation.allocation_objects import DRIVER, claim, class_, device, slice_, taken

NODE = {"name": "n1", "labels": {}}
KINDS, ROOTS = ("big", "small"), ("r0", "r1", "r2")
Pick = tuple[str, tuple[str, ...]]
"""Full name of a request and the devices it got."""


def problem(seed: int) -> dict[str, Any]:
    """Up to seven devices in up to three pools, up to two claims with up to three requests."""
    dice = random.Random(seed)
    devices = [
        (f"d{i}", {"kind": dice.choice(KINDS), **({"root": dice.choice(ROOTS)} if dice.random() < 0.9 else {})})
        for i in range(dice.randint(1, 7))
    ]
    claims = [_claim(dice, f"c{i}") for i in range(dice.randint(1, 2))]
    held = [name for name, _ in devices if dice.random() < 0.15]
    return {"devices": devices, "pools": dice.randint(1, 3), "claims": claims, "held": held}


def _claim(dice: random.Random, name: str) -> dict[str, Any]:
    requests: dict[str, list[dict[str, Any]]] = {}
    for i in range(dice.randint(1, 3)):
        alternatives = dice.choice([1, 1, 1, 2, 3])
        requests[f"q{i}"] = [
            {"kind": dice.choice([None, *KINDS]), "count": dice.choice([1, 1, 2, 3])} for _ in range(alternatives)
        ]
    constraints = [
        {
            "how": dice.choice(["matchAttribute", "distinctAttribute"] if len(requests) == 1 else ["matchAttribute"]),
            "requests": dice.choice([[], sorted(dice.sample(sorted(requests), dice.randint(1, len(requests))))]),
        }
        for _ in range(dice.choice([0, 1, 1]))
    ]
    return {"name": name, "requests": requests, "constraints": constraints}


def in_order(given: dict[str, Any]) -> list[tuple[str, dict[str, str]]]:
    """Devices as the scheduler meets them: pools by name, then slice order."""
    return [entry for pool in range(given["pools"]) for entry in given["devices"][pool :: given["pools"]]]


def full_name(request: str, options: list[Any], alternative: int) -> str:
    return request if len(options) == 1 else f"{request}/a{alternative}"


def assignments(wanted: list[tuple[str, str, list[Any]]], free: list[str], kinds: dict[str, str]) -> Iterator[Any]:
    """Every way to serve all requests, first ways first; constraints are nobody's business here."""
    if not wanted:
        yield []
        return
    owner, request, options = wanted[0]
    for i, option in enumerate(options):
        fitting = [name for name in free if option["kind"] in (None, kinds[name])]
        for chosen in itertools.combinations(fitting, option["count"]):
            left = [name for name in free if name not in chosen]
            for rest in assignments(wanted[1:], left, kinds):
                yield [(owner, request, full_name(request, options, i), chosen), *rest]


def holds(given: dict[str, Any], found: list[Any], attributes: dict[str, dict[str, str]]) -> bool:
    for one in given["claims"]:
        for constraint in one["constraints"]:
            covered = [
                attributes[name].get("root")
                for owner, request, _, names in found
                if owner == one["name"] and (not constraint["requests"] or request in constraint["requests"])
                for name in names
            ]
            distinct = len(set(covered))
            if None in covered or (constraint["how"] == "matchAttribute" and distinct > 1):
                return False
            if constraint["how"] == "distinctAttribute" and distinct < len(covered):
                return False
    return True


def by_trying_all(given: dict[str, Any]) -> list[Pick] | None:
    attributes = dict(given["devices"])
    free = [name for name, _ in in_order(given) if name not in given["held"]]
    wanted = [(one["name"], name, options) for one in given["claims"] for name, options in one["requests"].items()]
    ways = assignments(wanted, free, {name: values["kind"] for name, values in attributes.items()})
    first = next((way for way in ways if holds(given, way, attributes)), None)
    return None if first is None else [(name, names) for _, _, name, names in first]


def by_the_allocator(given: dict[str, Any]) -> list[Pick] | None:
    slices = [
        slice_(f"pool-{pool}", [device(name, **values) for name, values in given["devices"][pool :: given["pools"]]],
               nodeName="n1")
        for pool in range(given["pools"])
    ]  # fmt: skip
    held = [
        {**taken(name), "pool": f"pool-{place % given['pools']}"}
        for place, (name, _) in enumerate(given["devices"])
        if name in given["held"]
    ]
    cluster = ClusterDevices(slices, [class_()], allocated=held, version="1.37")
    outcome = cluster.allocate(NODE, [_object(one) for one in given["claims"]])
    assert isinstance(outcome, (Allocation, NoFit))
    if isinstance(outcome, NoFit):
        return None
    picks: list[Pick] = []
    for result in outcome.results:
        for request, group in itertools.groupby(result["devices"]["results"], key=lambda entry: entry["request"]):
            picks.append((request, tuple(entry["device"] for entry in group)))
    return picks


def _object(one: dict[str, Any]) -> Any:
    made = claim(one["name"])
    requests = []
    for name, options in one["requests"].items():
        parts = [_part(option) for option in options]
        named = [{"name": f"a{i}", **part} for i, part in enumerate(parts)]
        requests.append({"name": name, **({"exactly": parts[0]} if len(parts) == 1 else {"firstAvailable": named})})
    constraints = [
        {entry["how"]: f"{DRIVER}/root", **({"requests": entry["requests"]} if entry["requests"] else {})}
        for entry in one["constraints"]
    ]
    return {**made, "spec": {"devices": {"requests": requests, "constraints": constraints}}}


def _part(option: dict[str, Any]) -> dict[str, Any]:
    selectors = [{"cel": {"expression": f'device.attributes["{DRIVER}"].kind == "{option["kind"]}"'}}]
    part = {"deviceClassName": class_()["metadata"]["name"], "allocationMode": "ExactCount", "count": option["count"]}
    return {**part, "selectors": selectors} if option["kind"] else part


@pytest.mark.parametrize("hundred", range(6))
def test_the_first_of_all_assignments_is_the_one_that_is_found(hundred: int) -> None:
    for seed in range(hundred * 100, hundred * 100 + 100):
        given = problem(seed)
        assert (seed, by_the_allocator(given)) == (seed, by_trying_all(given))


def test_the_problems_are_of_both_kinds() -> None:
    answers = [by_trying_all(problem(seed)) is not None for seed in range(100)]
    assert 20 < sum(answers) < 80
