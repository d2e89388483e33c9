"""ResourceQuotas: how much a namespace may ask for, in pods, amounts and devices of each class.

A pod that exceeds one is never created; a claim that does is not either, and its pod waits. What is in use already is
what the quota's own status says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from dranet.allocation.requests import MAX_RESULTS
from dranet.model.untyped import at, mapping, mappings, name_of, namespace_of, whole
from dranet.predict.pods_to_place import Pod
from dranet.scheduling.amounts import CPU, HUGE, MEMORY, STORAGE, Exact, containers, exact, exact_limits, exact_requests

CLAIMS = "count/resourceclaims.resource.k8s.io"
OF_CLASS = ".deviceclass.resource.k8s.io/devices"
_COMPUTE = (CPU, MEMORY, STORAGE)


class Quotas:
    """The quotas of all namespaces, as pods and claims are created."""

    def __init__(self, quotas: Iterable[Mapping[str, Any]]) -> None:
        self.notes: set[str] = set()
        self._quotas: dict[str, list[tuple[str, Exact, Exact]]] = {}
        self._counted: set[tuple[str, str]] = set()
        self._said: dict[tuple[str, str, str], str] = {}
        for raw in quotas:
            if at(raw, "spec", "scopes") or at(raw, "spec", "scopeSelector"):
                self.notes.add(f"ResourceQuota {name_of(raw)}: it has scopes")
                continue
            hard, used = (_exact(at(raw, *path)) for path in (("spec", "hard"), ("status", "used")))
            if uncounted := ", ".join(name for name in hard if not _counts(name)):
                self.notes.add(f"ResourceQuota {name_of(raw)}: {uncounted}; only pods and claims are counted")
            self._quotas.setdefault(namespace_of(raw), []).append((name_of(raw), hard, used))

    def charge(self, pod: Pod) -> str:
        """Count a pod and its claims, once however often it is tried; what forbids them, or nothing."""
        if pod.namespace not in self._quotas:
            return ""
        key = (pod.namespace, pod.workload, pod.name)
        if key not in self._said:
            self._said[key] = self._charge(pod)
        return self._said[key]

    def _charge(self, pod: Pod) -> str:
        asked = [] if pod.exists else [("the pod", pod_usage(pod.spec))]
        for one in pod.claims:
            if one.key not in self._counted and not at(one.claim, "metadata", "uid"):
                self._counted.add(one.key)
                asked.append((f"claim {one.ref}", claim_usage(one.claim)))
        return next((text for what, usage in asked if (text := self._count(pod, what, usage))), "")

    def _count(self, pod: Pod, what: str, usage: Exact) -> str:
        mine = self._quotas[pod.namespace]
        for name, hard, used in mine:
            if what == "the pod" and (missing := _missing(pod.spec, hard)):
                return f"ResourceQuota {name} forbids the pod: its containers must say {missing}"
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
    if name in {"pods", "count/pods", CLAIMS, *_COMPUTE} or name.endswith(OF_CLASS) or name.startswith(HUGE):
        return True
    return name.startswith(("requests.", "limits.")) and name != "requests.storage"


def pod_usage(spec: Mapping[str, Any]) -> Exact:
    """What a pod counts for, under every name a quota may use."""
    found: Exact = {"pods": Fraction(1), "count/pods": Fraction(1)}
    for name, value in exact_requests(spec).items():
        found[f"requests.{name}"] = value
        if name in _COMPUTE or name.startswith(HUGE):
            found[name] = value
    return found | {f"limits.{name}": value for name, value in exact_limits(spec).items() if name in _COMPUTE}


def claim_usage(claim: Mapping[str, Any]) -> Exact:
    """What a claim counts for: all devices of a class as many as a claim can hold, alternatives as the largest."""
    found: Exact = {CLAIMS: Fraction(1)}
    for request in mappings(at(claim, "spec", "devices", "requests")):
        parts = mappings(request.get("firstAvailable")) or [mapping(request.get("exactly"))]
        most: dict[str, int] = {}
        for part in parts:
            count = MAX_RESULTS if part.get("allocationMode") == "All" else whole(part.get("count"), 1)
            name = f"{part.get('deviceClassName')}{OF_CLASS}"
            most[name] = max(most.get(name, 0), count)
        for name, count in most.items():
            found[name] = found.get(name, Fraction(0)) + count
    return found


def _missing(spec: Mapping[str, Any], hard: Mapping[str, Fraction]) -> str:
    """Amounts that a quota counts must be said by every container."""
    counted = [resource for resource in hard if resource in _MUST]
    return ", ".join(sorted(one for one in counted if not all(_says(each, one) for each in _each(spec))))


_MUST = {CPU, MEMORY, *(f"{kind}.{name}" for kind in ("requests", "limits") for name in (CPU, MEMORY))}


def _says(container: Mapping[str, Any], resource: str) -> bool:
    kind, _, name = resource.rpartition(".")
    limits = mapping(at(container, "resources", "limits"))
    if kind == "limits":
        return name in limits
    return name in limits or name in mapping(at(container, "resources", "requests"))


def _each(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    whole_pod = mapping(spec.get("resources"))
    return (container for _, container in containers(spec)) if not whole_pod else iter(())


def _exact(raw: Any) -> Exact:
    return {str(name): exact(str(value)) for name, value in mapping(raw).items()}


def _text(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else f"{float(value):g}"
