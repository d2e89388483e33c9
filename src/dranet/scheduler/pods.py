"""Pods as the scheduler model reads them, with the API server's defaults.

A `PodInfo` holds everything about a pod but its name and its claims. Pods of one template have equal PodInfos, so
`PodInfoReader` returns the same object for all of them: it is compared by identity, and results are cached by it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dranet.core.untyped import as_dict, as_dicts, as_int, as_list, as_strings, get_path, name_of, namespace_of
from dranet.scheduler.label_selectors import Labels, LabelSelector, equal_to, match_label_keys, read_label_selector
from dranet.scheduler.resources import PodRequests, all_containers, read_pod_requests

HOSTNAME_LABEL = "kubernetes.io/hostname"
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_SCHEDULING_FIELDS = (
    "containers", "initContainers", "tolerations", "nodeSelector", "affinity", "topologySpreadConstraints", "nodeName",
    "overhead", "resources", "hostNetwork", "hostUsers", "runtimeClassName", "volumes", "priority",
    "priorityClassName", "preemptionPolicy",
)  # fmt: skip
"""The fields of a pod spec that scheduling depends on."""


class HostPort(msgspec.Struct, frozen=True):
    """A port of the node that a pod uses."""

    address: str
    protocol: str
    number: int

    def collides(self, other: HostPort) -> bool:
        """Whether both cannot be on one node; the address 0.0.0.0 includes all others."""
        if (self.protocol, self.number) != (other.protocol, other.number):
            return False
        return self.address == other.address or "0.0.0.0" in (self.address, other.address)


class SpreadConstraint(msgspec.Struct, frozen=True):
    """One of ``topologySpreadConstraints``."""

    key: str
    max_skew: int
    hard: bool
    selector: LabelSelector
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


class AffinityTerm(msgspec.Struct, frozen=True):
    """A term about other pods in the same topology domain."""

    key: str
    selector: LabelSelector
    namespaces: frozenset[str]
    namespace_selector: LabelSelector
    weight: int = 0
    """0 for a required term."""

    def matches(self, info: PodInfo, namespace_labels: Labels) -> bool:
        """Whether the term selects the pod."""
        selected = info.namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        return selected and self.selector.matches(info.labels)


class PodInfo(msgspec.Struct, frozen=True, eq=False):
    """Everything about a pod that scheduling depends on, except its claims."""

    namespace: str
    labels: Labels
    requests: PodRequests
    node_name: str = ""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    required_nodes: Mapping[str, Any] | None = None
    """A v1 NodeSelector."""
    preferred_nodes: tuple[tuple[int, Mapping[str, Any]], ...] = ()
    """Weights and terms."""
    ports: tuple[HostPort, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred_affinity: tuple[AffinityTerm, ...] = ()
    preferred_anti_affinity: tuple[AffinityTerm, ...] = ()
    images: tuple[str, ...] = ()
    containers: int = 1
    priority: int = 0
    may_preempt: bool = True
    default_spread: LabelSelector | None = None
    """The selectors of the pod's services and controller; used if the pod has no topologySpreadConstraints."""
    spec: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def terms(self) -> tuple[AffinityTerm, ...]:
        """All affinity and anti-affinity terms."""
        return (*self.affinity, *self.anti_affinity, *self.preferred_affinity, *self.preferred_anti_affinity)


class Pod(msgspec.Struct, frozen=True):
    """One pod and its v1 ResourceClaims in the order of spec.resourceClaims."""

    name: str
    info: PodInfo
    claims: tuple[Mapping[str, Any], ...] = ()

    @property
    def namespace(self) -> str:
        return self.info.namespace


@dataclass
class PodInfoReader:
    """Reads pods; equal pods share one PodInfo. The arguments are v1 objects that pods refer to."""

    priority_classes: Iterable[Mapping[str, Any]] = ()
    runtime_classes: Iterable[Mapping[str, Any]] = ()
    services: Iterable[Mapping[str, Any]] = ()
    _known: dict[str, PodInfo] = field(default_factory=dict, init=False)
    _by_spec: dict[object, tuple[Any, PodInfo]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._priorities = {name_of(raw): raw for raw in self.priority_classes}
        self._default = next((raw for raw in self._priorities.values() if raw.get("globalDefault") is True), {})
        self._runtimes = {name_of(raw): raw for raw in self.runtime_classes}
        self._service_selectors: dict[str, list[Labels]] = {}
        for raw in self.services:
            if selector := as_strings(get_path(raw, "spec", "selector")):
                self._service_selectors.setdefault(namespace_of(raw), []).append(selector)

    def read(
        self, spec: Mapping[str, Any], *, namespace: str, labels: Labels, controller: LabelSelector | None = None
    ) -> PodInfo:
        """``controller`` is the selector of the pod's ReplicaSet or StatefulSet."""
        # Pods of one template share the spec object. Keep it with the result, so that its id is not reused.
        key = (id(spec), namespace, tuple(labels.items()), controller)
        known = self._by_spec.get(key)
        if known is None or known[0] is not spec:
            fields = {name: spec[name] for name in _SCHEDULING_FIELDS if name in spec}
            text = json.dumps([namespace, labels, fields, repr(controller)], sort_keys=True, default=str)
            if text not in self._known:
                spread = self._default_spread(namespace, labels, controller)
                self._known[text] = self._pod_info(self._with_runtime_class(spec), namespace, labels, spread)
            known = self._by_spec[key] = (spec, self._known[text])
        return known[1]

    def read_pod(self, raw: Mapping[str, Any], claims: Iterable[Mapping[str, Any]] = ()) -> Pod:
        """From a v1 Pod."""
        labels = as_strings(get_path(raw, "metadata", "labels"))
        info = self.read(as_dict(raw.get("spec")), namespace=namespace_of(raw), labels=labels)
        return Pod(name_of(raw), info, tuple(claims))

    def _default_spread(self, namespace: str, labels: Labels, controller: LabelSelector | None) -> LabelSelector | None:
        """One selector of all services and the controller that select such pods; None if there is none."""
        services = self._service_selectors.get(namespace, ())
        matching = [one for one in services if all(labels.get(key) == value for key, value in one.items())]
        merged = {key: value for one in matching for key, value in one.items()}
        found = LabelSelector(equal_to(merged)).with_requirements(controller.requirements if controller else ())
        return found if found.requirements else None

    def _with_runtime_class(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the API server adds for a RuntimeClass: overhead, node selector and tolerations."""
        found = self._runtimes.get(str(spec.get("runtimeClassName") or ""))
        if found is None:
            return spec
        selector = {**as_strings(get_path(found, "scheduling", "nodeSelector")), **as_strings(spec.get("nodeSelector"))}
        tolerations = [*as_dicts(spec.get("tolerations")), *as_dicts(get_path(found, "scheduling", "tolerations"))]
        overhead = as_dict(get_path(found, "overhead", "podFixed")) or spec.get("overhead")
        return {**spec, "nodeSelector": selector, "tolerations": tolerations, "overhead": overhead}

    def _pod_info(
        self, spec: Mapping[str, Any], namespace: str, labels: Labels, default_spread: LabelSelector | None
    ) -> PodInfo:
        node, affinity, anti_affinity = (as_dict(get_path(spec, "affinity", kind)) for kind in _AFFINITIES)
        every = [container for _, container in all_containers(spec)]
        priority, may_preempt = self._priority(spec)
        required = node.get(_REQUIRED)
        return PodInfo(
            namespace=namespace,
            labels=labels,
            requests=read_pod_requests(spec),
            node_name=str(spec.get("nodeName") or ""),
            tolerations=_tolerations(spec),
            node_selector=tuple(as_strings(spec.get("nodeSelector")).items()),
            required_nodes=required if isinstance(required, dict) else None,
            preferred_nodes=_preferred_nodes(node),
            ports=_ports(spec),
            spread=tuple(_spread(raw, labels) for raw in as_dicts(spec.get("topologySpreadConstraints"))),
            affinity=_required_terms(affinity, namespace, labels),
            anti_affinity=_required_terms(anti_affinity, namespace, labels),
            preferred_affinity=_preferred_terms(affinity, namespace, labels),
            preferred_anti_affinity=_preferred_terms(anti_affinity, namespace, labels),
            images=tuple(_image(name) for name in (*(c.get("image") for c in every), *_image_volumes(spec)) if name),
            containers=len(every),
            priority=priority,
            may_preempt=may_preempt,
            default_spread=default_spread,
            spec=spec,
        )

    def _priority(self, spec: Mapping[str, Any]) -> tuple[int, bool]:
        named = str(spec.get("priorityClassName") or "")
        found = self._priorities.get(named, {}) if named else self._default
        priority = as_int(spec.get("priority"), as_int(found.get("value"), _SYSTEM_PRIORITIES.get(named, 0)))
        policy = spec.get("preemptionPolicy") or found.get("preemptionPolicy")
        return priority, policy != "Never"


_AFFINITIES = ("nodeAffinity", "podAffinity", "podAntiAffinity")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _tolerations(spec: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Those in the spec, and those that the API server adds to every pod."""
    written = as_dicts(spec.get("tolerations"))
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute"}
        for key in _NOT_READY
        if not any(
            one.get("key") in (None, "", key) and one.get("effect") in (None, "", "NoExecute") for one in written
        )
    ]
    return (*written, *added)


def _preferred_nodes(node: Mapping[str, Any]) -> tuple[tuple[int, Mapping[str, Any]], ...]:
    found = [(as_int(raw.get("weight")), as_dict(raw.get("preference"))) for raw in as_dicts(node.get(_PREFERRED))]
    return tuple((weight, term) for weight, term in found if weight and term)


def _ports(spec: Mapping[str, Any]) -> tuple[HostPort, ...]:
    lasting = [container for is_init, container in all_containers(spec) if not is_init]
    raw_ports = [raw for container in lasting for raw in as_dicts(container.get("ports"))]
    shared = spec.get("hostNetwork") is True
    numbered = [
        (as_int(raw.get("hostPort")) or (as_int(raw.get("containerPort")) if shared else 0), raw) for raw in raw_ports
    ]
    return tuple(
        HostPort(str(raw.get("hostIP") or "0.0.0.0"), str(raw.get("protocol") or "TCP"), number)
        for number, raw in numbered
        if number > 0
    )


def _spread(raw: dict[str, Any], labels: Labels) -> SpreadConstraint:
    selector = read_label_selector(raw.get("labelSelector")).with_requirements(
        match_label_keys(raw.get("matchLabelKeys"), "In", labels)
    )
    return SpreadConstraint(
        key=str(raw.get("topologyKey")),
        max_skew=as_int(raw.get("maxSkew"), 1),
        hard=raw.get("whenUnsatisfiable") == "DoNotSchedule",
        selector=selector,
        min_domains=as_int(raw.get("minDomains"), 1),
        honors_affinity=raw.get("nodeAffinityPolicy") != "Ignore",
        honors_taints=raw.get("nodeTaintsPolicy") == "Honor",
    )


def _required_terms(raw: Mapping[str, Any], namespace: str, labels: Labels) -> tuple[AffinityTerm, ...]:
    return tuple(_term(term, namespace, labels, 0) for term in as_dicts(raw.get(_REQUIRED)))


def _preferred_terms(raw: Mapping[str, Any], namespace: str, labels: Labels) -> tuple[AffinityTerm, ...]:
    entries = as_dicts(raw.get(_PREFERRED))
    return tuple(
        _term(as_dict(entry.get("podAffinityTerm")), namespace, labels, as_int(entry.get("weight")))
        for entry in entries
    )


def _term(raw: Mapping[str, Any], namespace: str, labels: Labels, weight: int) -> AffinityTerm:
    selector = read_label_selector(raw.get("labelSelector"))
    more = match_label_keys(raw.get("matchLabelKeys"), "In", labels) + match_label_keys(
        raw.get("mismatchLabelKeys"), "NotIn", labels
    )
    named = frozenset(str(name) for name in as_list(raw.get("namespaces")))
    own = not named and raw.get("namespaceSelector") is None
    return AffinityTerm(
        str(raw.get("topologyKey")),
        selector.with_requirements(more),
        frozenset({namespace}) if own else named,
        read_label_selector(raw.get("namespaceSelector")),
        weight,
    )


def _image(name: Any) -> str:
    text = str(name)
    return text if text.rfind(":") > text.rfind("/") else f"{text}:latest"


def _image_volumes(spec: Mapping[str, Any]) -> list[Any]:
    return [get_path(volume, "image", "reference") for volume in as_dicts(spec.get("volumes"))]
