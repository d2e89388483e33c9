"""What pods ask for and nodes offer, in the scheduler's whole numbers: CPU in thousandths, everything else in ones.

Sums are made of exact quantities and rounded up once, at the end. A container that asks for limits only asks for as
much, as the API server would write it down. Four sums of one pod differ: what must fit, what the pod takes from its
node, and what two of the scores count, which is not the same where a container says nothing or a pod has resources of
its own (`spec.resources`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import msgspec

from dranet.model.quantity import QuantityError, parse_quantity
from dranet.model.untyped import at, mapping, mappings

CPU, MEMORY, STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"
HUGE = "hugepages-"
Exact = dict[str, Fraction]
Amounts = dict[str, int]
UNSAID: Exact = {CPU: Fraction(1, 10), MEMORY: Fraction(200 * 1024 * 1024)}
"""What a container that says nothing counts for in scores."""


class Requests(msgspec.Struct, frozen=True):
    """The sums of one pod."""

    needed: Amounts
    """What must be free, and what the pod then takes."""
    counted: tuple[int, int]
    """CPU and memory the pod counts for on its node, never nothing."""
    scored: tuple[int, int]
    """CPU and memory it counts for while a node is chosen; pod-level resources are left out, as the scheduler does."""


def is_scalar(name: str) -> bool:
    """Whether the scheduler counts such a resource at all, next to CPU, memory and storage."""
    return "/" in name or name.startswith((HUGE, "attachable-volumes-"))


def is_extended(name: str) -> bool:
    """A resource of somebody else than Kubernetes: ``nvidia.com/gpu``."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


@lru_cache(maxsize=65536)
def exact(text: str) -> Fraction:
    """A quantity; what is none counts as nothing, since the API server refuses it before any scheduler sees it."""
    try:
        return parse_quantity(text).value
    except QuantityError:
        return Fraction(0)


def whole_amounts(raw: Mapping[str, Fraction]) -> Amounts:
    """Rounded up, CPU to thousandths; names the scheduler does not know are left out."""
    return {
        name: _up(value * 1000) if name == CPU else _up(value)
        for name, value in raw.items()
        if name in (CPU, MEMORY, STORAGE, PODS) or is_scalar(name)
    }


def offered(node: Mapping[str, Any]) -> Amounts:
    """The allocatable amounts of a Node."""
    return whole_amounts(_exact(at(node, "status", "allocatable")))


def exact_requests(spec: Mapping[str, Any]) -> Exact:
    """What a pod asks for as a whole."""
    return _plus(_with(_of_containers(spec, {}), _of_the_pod(spec)), _exact(spec.get("overhead")))


def exact_limits(spec: Mapping[str, Any]) -> Exact:
    """What a pod may use as a whole, where it says so."""
    return _with(_container_limits(spec), _exact(at(spec, "resources", "limits")))


def requests_of(spec: Mapping[str, Any]) -> Requests:
    """All sums of a pod spec."""
    own = _of_the_pod(spec)
    overhead = _exact(spec.get("overhead"))
    needed = exact_requests(spec)
    unsaid = UNSAID if not own else {name: value for name, value in UNSAID.items() if name not in needed}
    counted = _plus(_with(_of_containers(spec, unsaid), own), overhead)
    scored = _plus(_of_containers(spec, UNSAID), overhead)
    return Requests(whole_amounts(needed), _pair(counted), _pair(scored))


def containers(spec: Mapping[str, Any]) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Init containers, then the others: whether each runs before the others and ends, and the container."""
    for container in mappings(spec.get("initContainers")):
        yield container.get("restartPolicy") != "Always", container
    for container in mappings(spec.get("containers")):
        yield False, container


def container_requests(container: Mapping[str, Any]) -> Exact:
    """Requests, and limits where there is no request."""
    return {**_exact(at(container, "resources", "limits")), **_exact(at(container, "resources", "requests"))}


def _of_containers(spec: Mapping[str, Any], unsaid: Exact) -> Exact:
    total: Exact = {}
    for container in mappings(spec.get("containers")):
        total = _plus(total, {**unsaid, **container_requests(container)})
    sidecars: Exact = {}
    peak: Exact = {}
    for container in mappings(spec.get("initContainers")):
        wanted = {**unsaid, **container_requests(container)}
        if container.get("restartPolicy") == "Always":
            total, sidecars = _plus(total, wanted), _plus(sidecars, wanted)
            peak = _most(peak, sidecars)
        else:
            peak = _most(peak, _plus(wanted, sidecars))
    return _most(total, peak)


def _of_the_pod(spec: Mapping[str, Any]) -> Exact:
    """Requests of the pod as a whole with the API server's defaults: they stand in for its containers'."""
    limits, asked = _exact(at(spec, "resources", "limits")), _exact(at(spec, "resources", "requests"))
    if limits or asked:
        for name, value in _container_limits(spec).items():
            if name.startswith(HUGE) and name not in asked:
                limits.setdefault(name, value)
    if limits:
        for name, value in _of_containers(spec, {}).items():
            if name in (CPU, MEMORY):
                asked.setdefault(name, value)
        asked = {**limits, **asked}
    return {name: value for name, value in asked.items() if name in (CPU, MEMORY) or name.startswith(HUGE)}


def _container_limits(spec: Mapping[str, Any]) -> Exact:
    only_limits = {
        group: [{**one, "resources": {"limits": at(one, "resources", "limits")}} for one in mappings(spec.get(group))]
        for group in ("containers", "initContainers")
    }
    return _of_containers(only_limits, {})


def _exact(raw: Any) -> Exact:
    return {str(name): exact(str(value)) for name, value in mapping(raw).items()}


def _with(amounts: Exact, instead: Exact) -> Exact:
    return {**amounts, **instead}


def _plus(one: Exact, other: Exact) -> Exact:
    return {name: one.get(name, Fraction(0)) + other.get(name, Fraction(0)) for name in {**one, **other}}


def _most(one: Exact, other: Exact) -> Exact:
    return {name: max(one.get(name, Fraction(0)), other.get(name, Fraction(0))) for name in {**one, **other}}


def _pair(amounts: Exact) -> tuple[int, int]:
    found = whole_amounts(amounts)
    return found.get(CPU, 0), found.get(MEMORY, 0)


def _up(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
