"""LimitRanges: what a namespace adds to containers that say nothing, and what it does not allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dranet.model.untyped import at, mapping, mappings, name_of
from dranet.scheduling.amounts import container_requests, exact

_GROUPS = ("initContainers", "containers")
_BOUNDS = (("min", "requests", "below the least", -1), ("max", "limits", "above the most", 1))


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
    found = (text for raw in ranges for item in _items(raw, "Container") for text in _objections(spec, item, raw))
    return next(found, "")


def _items(raw: Mapping[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    for item in mappings(at(raw, "spec", "limits")):
        if item.get("type") == kind:
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


def _objections(spec: Mapping[str, Any], item: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[str]:
    for container in (one for group in _GROUPS for one in mappings(spec.get(group))):
        asked = {"requests": container_requests(container), "limits": _exact(at(container, "resources", "limits"))}
        for bound, which, words, sign in _BOUNDS:
            for resource, value in mapping(item.get(bound)).items():
                mine = asked[which].get(resource)
                if mine is not None and (mine - exact(str(value))) * sign > 0:
                    what = f"{resource} in the {which} of container {container.get('name')}"
                    yield f"LimitRange {name_of(raw)} forbids the pod: {what} is {words}, {value}"


def _exact(raw: Any) -> dict[str, Any]:
    return {name: exact(str(value)) for name, value in mapping(raw).items()}
