"""Taints of nodes and devices, and the tolerations of pods and requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dranet.core.untyped import as_dict, as_dicts

_BLOCKING = ("NoSchedule", "NoExecute")


class Taint(msgspec.Struct, frozen=True):
    """A taint of a node or a device."""

    key: str
    value: str
    effect: str


def read_taints(raw: Any) -> tuple[Taint, ...]:
    """From a list of v1 taints."""
    return tuple(
        Taint(str(one.get("key") or ""), str(one.get("value") or ""), str(one.get("effect") or ""))
        for one in as_dicts(raw)
    )


def with_taint_rules(slices: Iterable[dict[str, Any]], rules: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """ResourceSlices with the taints of v1 DeviceTaintRules, as kube-scheduler's tracker adds them.

    A rule without a device selector taints every device there, although its documentation says none.
    """
    specs = [as_dict(rule.get("spec")) for rule in rules]
    return [_with_rules(raw, specs) for raw in slices] if specs else list(slices)


def _with_rules(raw: dict[str, Any], rules: list[dict[str, Any]]) -> dict[str, Any]:
    spec = as_dict(raw.get("spec"))
    pool = as_dict(spec.get("pool")).get("name")
    devices, changed = [], False
    for device in as_dicts(spec.get("devices")):
        names = {"driver": spec.get("driver"), "pool": pool, "device": device.get("name")}
        added = [rule["taint"] for rule in rules if "taint" in rule and _selects(rule.get("deviceSelector"), names)]
        devices.append({**device, "taints": [*as_dicts(device.get("taints")), *added]} if added else device)
        changed = changed or bool(added)
    return {**raw, "spec": {**spec, "devices": devices}} if changed else raw


def _selects(selector: Any, names: Mapping[str, Any]) -> bool:
    return all(value is None or names.get(field) == value for field, value in as_dict(selector).items())


def blocks(taints: Iterable[Taint], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Whether some taint prevents scheduling and is not tolerated."""
    return any(taint.effect in _BLOCKING and not is_tolerated(taint, tolerations) for taint in taints)


def is_tolerated(taint: Taint, tolerations: Iterable[Mapping[str, Any]]) -> bool:
    return any(_tolerates(one, taint) for one in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    if (toleration.get("effect") or taint.effect) != taint.effect:
        return False
    if (toleration.get("key") or taint.key) != taint.key:
        return False
    # Gt and Lt are behind a feature gate that is off by default.
    operator = toleration.get("operator") or "Equal"
    return operator == "Exists" or (operator == "Equal" and str(toleration.get("value") or "") == taint.value)
