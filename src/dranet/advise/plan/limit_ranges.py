"""LimitRanges: the defaults that a namespace sets for containers, and the limits it enforces.

Only items for containers and pods: items for PersistentVolumeClaims do not concern pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from dranet.core.untyped import as_dict, as_dicts, get_path, name_of
from dranet.scheduler.resources import container_requests, pod_limits, pod_requests, quantity

_GROUPS = ("initContainers", "containers")
_BOUNDS = (("min", "requests", "at least", -1), ("max", "limits", "at most", 1))
"""Bound, the amounts that it requires, its text, and the sign of a violation."""


def with_defaults(spec: Mapping[str, Any], ranges: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The pod spec as the API server stores it, with the defaults of the namespace."""
    items = [item for raw in ranges for item in _items(raw, "Container")]
    if not items:
        return spec
    changed = dict(spec)
    for group in _GROUPS:
        if group in spec:
            changed[group] = [_filled(container, items) for container in as_dicts(spec[group])]
    return changed


def problem(spec: Mapping[str, Any], ranges: Iterable[Mapping[str, Any]]) -> str:
    """What the API server refuses such a pod for; empty where it takes it."""
    for raw in ranges:
        for whose, asked, limited, item in _bounded(spec, raw):
            for text in _objections(asked, limited, item):
                return f"LimitRange {name_of(raw)} forbids the pod: {text.format(whose=whose)}"
    return ""


def _bounded(
    spec: Mapping[str, Any], raw: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Fraction], Mapping[str, Fraction], dict[str, Any]]]:
    """Who is bounded by what: name, requests, limits, and the item that bounds them."""
    for item in _items(raw, "Container"):
        for one in (found for group in _GROUPS for found in as_dicts(spec.get(group))):
            yield (
                f"container {one.get('name')}",
                container_requests(one),
                _exact(get_path(one, "resources", "limits")),
                item,
            )
    for item in _items(raw, "Pod"):  # overhead does not count here
        whole = {key: value for key, value in spec.items() if key != "overhead"}
        yield "the pod as a whole", pod_requests(whole), pod_limits(whole), item


def _items(raw: Mapping[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    for item in as_dicts(get_path(raw, "spec", "limits")):
        if item.get("type") != kind:
            continue
        if kind != "Container":  # only containers get defaults
            yield item
        else:
            most = as_dict(item.get("max"))
            limits = {**most, **as_dict(item.get("default"))}
            requests = {**as_dict(item.get("min")), **limits, **as_dict(item.get("defaultRequest"))}
            yield {**item, "default": limits, "defaultRequest": requests}


def _filled(container: Mapping[str, Any], items: list[dict[str, Any]]) -> dict[str, Any]:
    resources = as_dict(container.get("resources"))
    # A missing request equals the limit; the API server applies this before the defaults.
    limits = dict(as_dict(resources.get("limits")))
    requests = {**limits, **as_dict(resources.get("requests"))}
    for item in items:
        limits = {**item["default"], **limits}
        requests = {**item["defaultRequest"], **requests}
    return {**container, "resources": {**resources, "limits": limits, "requests": requests}}


def _objections(
    requests: Mapping[str, Fraction], limits: Mapping[str, Fraction], item: Mapping[str, Any]
) -> Iterator[str]:
    """Sentences with room for whose amounts these are."""
    sides = (("requests", requests), ("limits", limits))
    for bound, needed, words, sign in _BOUNDS:
        for resource, value in as_dict(item.get(bound)).items():
            if resource not in dict(sides)[needed]:
                yield f"{resource} is not in the {needed} of {{whose}}, which must be {words} {value}"
            for which, asked in sorted(sides, key=lambda side: side[0] != needed):
                if resource in asked and (asked[resource] - quantity(str(value))) * sign > 0:
                    yield f"{resource} in the {which} of {{whose}} must be {words} {value}"
    for resource, value in as_dict(item.get("maxLimitRequestRatio")).items():
        least, most = requests.get(resource), limits.get(resource)
        if not least or not most or most / least > quantity(str(value)):
            yield f"the limit of {resource} of {{whose}} may be {value} times its request at most"


def _exact(raw: Any) -> dict[str, Any]:
    return {name: quantity(str(value)) for name, value in as_dict(raw).items()}
