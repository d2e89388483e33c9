"""LimitRanges: what a namespace adds to containers that say nothing, and what it does not allow.

Items for containers and for pods; those for volume claims concern no pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from dranet.model.untyped import at, mapping, mappings, name_of
from dranet.scheduling.amounts import container_requests, exact, exact_limits, exact_requests

_GROUPS = ("initContainers", "containers")
_BOUNDS = (("min", "requests", "at least", -1), ("max", "limits", "at most", 1))
"""Bound, the amounts that must be said for it, words, and the sign of what is too much."""


def with_defaults(spec: Mapping[str, Any], ranges: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The pod spec as the API server keeps it: what its containers do not say, the namespace says."""
    items = [item for raw in ranges for item in _items(raw, "Container")]
    if not items:
        return spec
    changed = dict(spec)
    for group in _GROUPS:
        if group in spec:
            changed[group] = [_filled(container, items) for container in mappings(spec[group])]
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
        for one in (found for group in _GROUPS for found in mappings(spec.get(group))):
            yield f"container {one.get('name')}", container_requests(one), _exact(at(one, "resources", "limits")), item
    for item in _items(raw, "Pod"):  # overhead does not count here
        whole = {key: value for key, value in spec.items() if key != "overhead"}
        yield "the pod as a whole", exact_requests(whole), exact_limits(whole), item


def _items(raw: Mapping[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    for item in mappings(at(raw, "spec", "limits")):
        if item.get("type") != kind:
            continue
        if kind != "Container":  # only containers get defaults
            yield item
        else:
            most = mapping(item.get("max"))
            limits = {**most, **mapping(item.get("default"))}
            requests = {**mapping(item.get("min")), **limits, **mapping(item.get("defaultRequest"))}
            yield {**item, "default": limits, "defaultRequest": requests}


def _filled(container: Mapping[str, Any], items: list[dict[str, Any]]) -> dict[str, Any]:
    resources = mapping(container.get("resources"))
    # A request that is not written equals the limit, before any default is looked at.
    limits = dict(mapping(resources.get("limits")))
    requests = {**limits, **mapping(resources.get("requests"))}
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
        for resource, value in mapping(item.get(bound)).items():
            if resource not in dict(sides)[needed]:
                yield f"{resource} is not in the {needed} of {{whose}}, which must be {words} {value}"
            for which, asked in sorted(sides, key=lambda side: side[0] != needed):
                if resource in asked and (asked[resource] - exact(str(value))) * sign > 0:
                    yield f"{resource} in the {which} of {{whose}} must be {words} {value}"
    for resource, value in mapping(item.get("maxLimitRequestRatio")).items():
        least, most = requests.get(resource), limits.get(resource)
        if not least or not most or most / least > exact(str(value)):
            yield f"the limit of {resource} of {{whose}} may be {value} times its request at most"


def _exact(raw: Any) -> dict[str, Any]:
    return {name: exact(str(value)) for name, value in mapping(raw).items()}
