"""Allocation problems about features that are off by default: lists, derived attributes, groups, node operations.

The same seed gives the same problems, so that a recording can be made again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

DRIVER = "dev.example.com"
NODE = "node-1"
_EXPRESSIONS = (
    f'device.attributes["{DRIVER}"].root',
    f'device.attributes["{DRIVER}"].?missing.orValue("none")',
    f'device.attributes["{DRIVER}"].index / 2',
    f'device.attributes["{DRIVER}"].index % 2 == 0',
    f'device.attributes["{DRIVER}"].roots',
    f'device.attributes["{DRIVER}"].fw',
    f'[device.attributes["{DRIVER}"].index / 3, 7]',
    'semver("1.2.3")',
    "[]",
    f'device.attributes["{DRIVER}"].missing',
    f'device.attributes["{DRIVER}"].index + 0.5',
    f'device.capacity["{DRIVER}"].memory',
    f'{{"a": device.attributes["{DRIVER}"].index}}',
    f'[device.attributes["{DRIVER}"].root, device.attributes["{DRIVER}"].index]',
    "nope",
    "1.5",
)


def feature_questions(count: int = 600, seed: int = 37) -> Iterator[str]:
    """One JSON line each, with the fields of the other allocation problems."""
    dice = random.Random(seed)
    for number in range(count):
        yield json.dumps(_question(dice, number), separators=(",", ":")) + "\n"


def _question(dice: random.Random, number: int) -> dict[str, Any]:
    profile = ("lists", "derived", "groups", "operations")[number % 4]
    slices = _slices(dice, profile)
    names = [device["name"] for one in slices for device in one["spec"].get("devices", ())]
    held = [{"driver": DRIVER, "pool": "pool", "device": name} for name in names if dice.random() < 0.15]
    declared = ["DRAOptionalNodeOperations"] if dice.random() < 0.5 else []
    claims = [_claim(dice, profile, f"claim-{i}") for i in range(dice.choice([1, 1, 2]))]
    return {
        "id": number,
        "profile": profile,
        "features": [],
        "node": {"name": NODE, "labels": {}, "declaredFeatures": declared},
        "slices": slices,
        "classes": [{"metadata": {"name": "any"}, "spec": {}}],
        "allocated": held,
        "claims": claims,
    }


def _slices(dice: random.Random, profile: str) -> list[dict[str, Any]]:
    devices = [_device(dice, profile, i) for i in range(dice.randint(2, 7))]
    half = dice.randint(0, len(devices))
    parts: list[dict[str, Any]] = [{"devices": part} for part in (devices[:half], devices[half:]) if part]
    if profile == "groups":
        sets = [{"name": name, "counters": {"n": {"value": str(dice.randint(2, 6))}}} for name in ("left", "right")]
        parts.append({"sharedCounters": sets})
    if profile == "operations":
        for part in parts:
            if dice.random() < 0.5:
                part["skipNodeOperations"] = ["*"]
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": len(parts)}
    return [
        {"metadata": {"name": f"slice-{i}"}, "spec": {"driver": DRIVER, "pool": pool, "nodeName": NODE, **part}}
        for i, part in enumerate(parts)
    ]


def _device(dice: random.Random, profile: str, index: int) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "index": {"int": index},
        "fw": {"version": dice.choice(["1.0.0", "1.0.0+b", "2.0.0"])},
    }
    if dice.random() < 0.9:
        attributes["root"] = {"string": dice.choice("abc")}
    if dice.random() < 0.8:
        attributes["roots"] = _list(dice)
    made: dict[str, Any] = {
        "name": f"d{index}",
        "attributes": attributes,
        "capacity": {"memory": {"value": f"{index + 1}Gi"}},
    }
    if profile == "groups" and dice.random() < 0.85:
        made["consumesCounters"] = [
            _consumes(dice, name) for name in dice.sample(["left", "right"], dice.randint(1, 2))
        ]
    return made


def _list(dice: random.Random) -> dict[str, Any]:
    kind = dice.choice(["strings", "strings", "strings", "ints", "string", "versions", "bools"])
    some = dice.randint(1, 3)
    choices: dict[str, dict[str, Any]] = {
        "strings": {"strings": dice.sample("abcd", some)},
        "ints": {"ints": dice.sample(range(4), some)},
        "string": {"string": dice.choice("abcd")},
        "versions": {"versions": dice.sample(["1.0.0", "1.0.0+b", "2.0.0"], some)},
        "bools": {"bools": [dice.random() < 0.5]},
    }
    return choices[kind]


def _consumes(dice: random.Random, counter_set: str) -> dict[str, Any]:
    groups = dice.sample(["g1", "g2", "g3"], dice.choice([0, 1, 1, 2]))
    found: dict[str, Any] = {"counterSet": counter_set, "counters": {"n": {"value": "1"}}}
    return {**found, "compatibilityGroups": groups} if groups else found


def _claim(dice: random.Random, profile: str, name: str) -> dict[str, Any]:
    requests = [_request(dice, profile, f"r{i}") for i in range(dice.choice([1, 1, 2]))]
    attribute = f"{DRIVER}/{dice.choice(['root', 'roots', 'roots', 'fw'])}"
    if profile == "derived":
        attribute = dice.choice([f"{DRIVER}/root", "calc.example.com/made"])
    constraints = [{dice.choice(["matchAttribute", "matchAttribute", "distinctAttribute"]): attribute}]
    if dice.random() < 0.3:
        constraints[0]["requests"] = ["r0"]  # type: ignore[assignment]
    devices = {"requests": requests, "constraints": constraints if dice.random() < 0.85 else []}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}}


def _request(dice: random.Random, profile: str, name: str) -> dict[str, Any]:
    def exactly() -> dict[str, Any]:
        made: dict[str, Any] = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": dice.randint(1, 3)}
        if dice.random() < 0.1:
            made = {"deviceClassName": "any", "allocationMode": "All"}
        if profile == "derived":
            expressions = dice.choice([_EXPRESSIONS[:9], _EXPRESSIONS])
            made["derivedAttributes"] = [
                {"name": attribute, "expression": dice.choice(expressions)}
                for attribute in (f"{DRIVER}/root", "calc.example.com/made")
                if dice.random() < 0.8
            ]
        return made

    if dice.random() < 0.2:
        return {"name": name, "firstAvailable": [{"name": f"s{i}", **exactly()} for i in range(2)]}
    return {"name": name, "exactly": exactly()}
