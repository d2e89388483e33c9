"""Resource requests of pods and allocatable resources of nodes, in kube-scheduler's integers: CPU in millicores.

Sums use exact quantities and are rounded up once, at the end. A container with limits only requests as much as its
limits, as the API server would default it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import msgspec

from dranet.core.quantity import QuantityError, parse_quantity
from dranet.core.untyped import as_dict, as_dicts, get_path

CPU, MEMORY, STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"
HUGE_PAGES_PREFIX = "hugepages-"
Quantities = dict[str, Fraction]
Resources = dict[str, int]
# kube-scheduler's DefaultMilliCPURequest and DefaultMemoryRequest: scores count them for a container without requests.
_NON_ZERO_DEFAULTS: Quantities = {CPU: Fraction(1, 10), MEMORY: Fraction(200 * 1024 * 1024)}


class PodRequests(msgspec.Struct, frozen=True):
    """The resource sums of one pod; filters and the two kinds of scores each use another one."""

    resources: Resources
    """What must be free on the node, and what the pod then occupies."""
    non_zero: tuple[int, int]
    """CPU and memory that scores count for a pod that is on a node, with defaults for containers without requests."""
    scoring: tuple[int, int]
    """CPU and memory that scores count for the pod to be scheduled. kube-scheduler leaves out pod-level resources."""


def is_extended(name: str) -> bool:
    """Whether it is an extended resource such as ``nvidia.com/gpu``."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


@lru_cache(maxsize=65536)
def quantity(text: str) -> Fraction:
    """An invalid quantity counts as 0: the API server rejects it before a scheduler sees it."""
    try:
        return parse_quantity(text).value
    except QuantityError:
        return Fraction(0)


def read_allocatable(node: Mapping[str, Any]) -> Resources:
    """The allocatable resources of a v1 Node."""
    return _round_up(_quantities(get_path(node, "status", "allocatable")))


def pod_requests(spec: Mapping[str, Any]) -> Quantities:
    """The requests of a whole pod."""
    return _add({**_sum_containers(spec, {}), **_pod_level_requests(spec)}, _quantities(spec.get("overhead")))


def pod_limits(spec: Mapping[str, Any]) -> Quantities:
    """The limits of a whole pod, for resources that have one."""
    return {**_container_limits(spec), **_quantities(get_path(spec, "resources", "limits"))}


def read_pod_requests(spec: Mapping[str, Any]) -> PodRequests:
    """All resource sums of a pod spec."""
    pod_level = _pod_level_requests(spec)
    overhead = _quantities(spec.get("overhead"))
    requests = pod_requests(spec)
    # With pod-level resources, the defaults apply only to resources that the pod does not request.
    defaults = {name: value for name, value in _NON_ZERO_DEFAULTS.items() if not pod_level or name not in requests}
    non_zero = _add({**_sum_containers(spec, defaults), **pod_level}, overhead)
    scoring = _add(_sum_containers(spec, _NON_ZERO_DEFAULTS), overhead)
    return PodRequests(_round_up(requests), _cpu_memory(non_zero), _cpu_memory(scoring))


def all_containers(spec: Mapping[str, Any]) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Init containers, then the others. The flag says whether it is a plain init container, which ends before they
    start; a sidecar is not."""
    for container in as_dicts(spec.get("initContainers")):
        yield container.get("restartPolicy") != "Always", container
    for container in as_dicts(spec.get("containers")):
        yield False, container


def container_requests(container: Mapping[str, Any]) -> Quantities:
    """Requests, and limits where there is no request."""
    return {
        **_quantities(get_path(container, "resources", "limits")),
        **_quantities(get_path(container, "resources", "requests")),
    }


def _sum_containers(spec: Mapping[str, Any], defaults: Quantities) -> Quantities:
    total: Quantities = {}
    for container in as_dicts(spec.get("containers")):
        total = _add(total, {**defaults, **container_requests(container)})
    sidecars: Quantities = {}
    peak: Quantities = {}
    for container in as_dicts(spec.get("initContainers")):
        requests = {**defaults, **container_requests(container)}
        if container.get("restartPolicy") == "Always":
            total, sidecars = _add(total, requests), _add(sidecars, requests)
            peak = _max(peak, sidecars)
        else:
            peak = _max(peak, _add(requests, sidecars))
    return _max(total, peak)


def _pod_level_requests(spec: Mapping[str, Any]) -> Quantities:
    """``spec.resources`` with the API server's defaults: these replace the sums of the containers."""
    limits, requests = (_quantities(get_path(spec, "resources", kind)) for kind in ("limits", "requests"))
    if limits or requests:
        for name, value in _container_limits(spec).items():
            if name.startswith(HUGE_PAGES_PREFIX) and name not in requests:
                limits.setdefault(name, value)
    if limits:
        for name, value in _sum_containers(spec, {}).items():
            if name in (CPU, MEMORY):
                requests.setdefault(name, value)
        requests = {**limits, **requests}
    return {
        name: value for name, value in requests.items() if name in (CPU, MEMORY) or name.startswith(HUGE_PAGES_PREFIX)
    }


def _container_limits(spec: Mapping[str, Any]) -> Quantities:
    only_limits = {
        group: [
            {**one, "resources": {"limits": get_path(one, "resources", "limits")}} for one in as_dicts(spec.get(group))
        ]
        for group in ("containers", "initContainers")
    }
    return _sum_containers(only_limits, {})


def _quantities(raw: Any) -> Quantities:
    return {str(name): quantity(str(value)) for name, value in as_dict(raw).items()}


def _add(one: Quantities, other: Quantities) -> Quantities:
    return {name: one.get(name, Fraction(0)) + other.get(name, Fraction(0)) for name in {**one, **other}}


def _max(one: Quantities, other: Quantities) -> Quantities:
    return {name: max(one.get(name, Fraction(0)), other.get(name, Fraction(0))) for name in {**one, **other}}


def _cpu_memory(quantities: Quantities) -> tuple[int, int]:
    found = _round_up(quantities)
    return found.get(CPU, 0), found.get(MEMORY, 0)


def _round_up(raw: Mapping[str, Fraction]) -> Resources:
    """CPU to millicores, others to ones; without resources that kube-scheduler ignores."""
    return {
        name: _ceil(value * 1000) if name == CPU else _ceil(value)
        for name, value in raw.items()
        if name in (CPU, MEMORY, STORAGE, PODS) or _is_scalar(name)
    }


def _is_scalar(name: str) -> bool:
    return "/" in name or name.startswith((HUGE_PAGES_PREFIX, "attachable-volumes-"))


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
