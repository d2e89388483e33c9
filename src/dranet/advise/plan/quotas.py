"""ResourceQuotas: how much a namespace may request, in pods, amounts and devices of each class.

The API server rejects a pod that exceeds a quota, and a claim as well, whose pod then waits. The usage before the plan
is the status of the quota.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from dranet.advise.plan.pending_pods import PendingPod
from dranet.core.untyped import as_dict, as_dicts, as_int, get_path, name_of, namespace_of
from dranet.scheduler.allocation.requests import MAX_RESULTS
from dranet.scheduler.resources import (
    CPU,
    HUGE_PAGES_PREFIX,
    MEMORY,
    STORAGE,
    Quantities,
    all_containers,
    pod_limits,
    pod_requests,
    quantity,
)

CLAIMS = "count/resourceclaims.resource.k8s.io"
_OF_CLASS = ".deviceclass.resource.k8s.io/devices"
_COMPUTE = (CPU, MEMORY, STORAGE)


class Quotas:
    """The quotas of all namespaces, as pods and claims are created."""

    def __init__(self, quotas: Iterable[Mapping[str, Any]]) -> None:
        self.notes: set[str] = set()
        self._quotas: dict[str, list[tuple[str, Quantities, Quantities]]] = {}
        self._counted: set[tuple[str, str]] = set()
        self._answers: dict[tuple[str, str, str], str] = {}
        for raw in quotas:
            if get_path(raw, "spec", "scopes") or get_path(raw, "spec", "scopeSelector"):
                self.notes.add(f"ResourceQuota {name_of(raw)}: it has scopes")
                continue
            hard, used = (_exact(get_path(raw, *path)) for path in (("spec", "hard"), ("status", "used")))
            if uncounted := ", ".join(name for name in hard if not _counts(name)):
                self.notes.add(f"ResourceQuota {name_of(raw)}: {uncounted}; only pods and claims are counted")
            self._quotas.setdefault(namespace_of(raw), []).append((name_of(raw), hard, used))

    def charge(self, pod: PendingPod) -> str:
        """Count a pod and its claims, once however often it is tried; what forbids them, or nothing."""
        if pod.namespace not in self._quotas:
            return ""
        key = (pod.namespace, pod.workload, pod.name)
        if key not in self._answers:
            self._answers[key] = self._charge(pod)
        return self._answers[key]

    def _charge(self, pod: PendingPod) -> str:
        asked = [] if pod.exists else [("the pod", _pod_usage(pod.spec))]
        for one in pod.claims:
            if one.key not in self._counted and not get_path(one.claim, "metadata", "uid"):
                self._counted.add(one.key)
                asked.append((f"claim {one.ref}", _claim_usage(one.claim)))
        return next((text for what, usage in asked if (text := self._count(pod, what, usage))), "")

    def _count(self, pod: PendingPod, what: str, usage: Quantities) -> str:
        mine = self._quotas[pod.namespace]
        for name, hard, used in mine:
            if what == "the pod" and (missing := _missing(pod.spec, hard)):
                return f"ResourceQuota {name} forbids the pod: its containers must set {missing}"
            for resource, most in hard.items():
                wanted = usage.get(resource, Fraction(0))
                if wanted and used.get(resource, Fraction(0)) + wanted > most:
                    left = max(most - used.get(resource, Fraction(0)), Fraction(0))
                    return f"ResourceQuota {name} forbids {what}: {resource} {_text(wanted)} wanted, {_text(left)} left"
        for _, hard, used in mine:
            used.update({key: used.get(key, Fraction(0)) + usage[key] for key in hard if key in usage})
        return ""


def _counts(name: str) -> bool:
    """Whether a quota by this name is about pods or claims."""
    if (
        name in {"pods", "count/pods", CLAIMS, *_COMPUTE}
        or name.endswith(_OF_CLASS)
        or name.startswith(HUGE_PAGES_PREFIX)
    ):
        return True
    return name.startswith(("requests.", "limits.")) and name != "requests.storage"


def _pod_usage(spec: Mapping[str, Any]) -> Quantities:
    """What a pod counts for, under every name a quota may use."""
    found: Quantities = {"pods": Fraction(1), "count/pods": Fraction(1)}
    for name, value in pod_requests(spec).items():
        found[f"requests.{name}"] = value
        if name in _COMPUTE or name.startswith(HUGE_PAGES_PREFIX):
            found[name] = value
    return found | {f"limits.{name}": value for name, value in pod_limits(spec).items() if name in _COMPUTE}


def _claim_usage(claim: Mapping[str, Any]) -> Quantities:
    """What a claim counts for: all devices of a class as many as a claim can hold, alternatives as the largest."""
    found: Quantities = {CLAIMS: Fraction(1)}
    for request in as_dicts(get_path(claim, "spec", "devices", "requests")):
        parts = as_dicts(request.get("firstAvailable")) or [as_dict(request.get("exactly"))]
        most: dict[str, int] = {}
        for part in parts:
            count = MAX_RESULTS if part.get("allocationMode") == "All" else as_int(part.get("count"), 1)
            name = f"{part.get('deviceClassName')}{_OF_CLASS}"
            most[name] = max(most.get(name, 0), count)
        for name, count in most.items():
            found[name] = found.get(name, Fraction(0)) + count
    return found


def _missing(spec: Mapping[str, Any], hard: Mapping[str, Fraction]) -> str:
    """Amounts that a quota counts and that some container does not set."""
    counted = [resource for resource in hard if resource in _MUST]
    return ", ".join(sorted(one for one in counted if not all(_sets_amount(each, one) for each in _each(spec))))


_MUST = {CPU, MEMORY, *(f"{kind}.{name}" for kind in ("requests", "limits") for name in (CPU, MEMORY))}


def _sets_amount(container: Mapping[str, Any], resource: str) -> bool:
    kind, _, name = resource.rpartition(".")
    limits = as_dict(get_path(container, "resources", "limits"))
    if kind == "limits":
        return name in limits
    return name in limits or name in as_dict(get_path(container, "resources", "requests"))


def _each(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    whole_pod = as_dict(spec.get("resources"))
    return (container for _, container in all_containers(spec)) if not whole_pod else iter(())


def _exact(raw: Any) -> Quantities:
    return {str(name): quantity(str(value)) for name, value in as_dict(raw).items()}


def _text(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else f"{float(value):g}"
