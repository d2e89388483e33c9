"""A pod as the scheduler looks at it, with what the API server would have filled in.

`Traits` is all of a pod but its name and its claims. Pods with equal traits are interchangeable, and most pods are:
they come from templates. So the traits are one object for all of them (`TraitsReader`), compared by identity, and
everything found out about them is found out once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dranet.model.untyped import at, mapping, mappings, name_of, namespace_of, sequence, texts, whole
from dranet.scheduling.amounts import Requests, containers, requests_of
from dranet.scheduling.selectors import Labels, Selector, equal_to, label_keys, read_selector

HOST = "kubernetes.io/hostname"
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_SEEN = (
    "containers", "initContainers", "tolerations", "nodeSelector", "affinity", "topologySpreadConstraints", "nodeName",
    "overhead", "resources", "hostNetwork", "hostUsers", "runtimeClassName", "volumes", "priority",
    "priorityClassName", "preemptionPolicy",
)  # fmt: skip
"""The parts of a pod spec that decide where it may go."""


class Port(msgspec.Struct, frozen=True):
    """A port of the node that a pod wants."""

    address: str
    protocol: str
    number: int

    def collides(self, other: Port) -> bool:
        """Whether both cannot be on one node; the address 0.0.0.0 stands for all of them."""
        if (self.protocol, self.number) != (other.protocol, other.number):
            return False
        return self.address == other.address or "0.0.0.0" in (self.address, other.address)


class SpreadConstraint(msgspec.Struct, frozen=True):
    """One of ``topologySpreadConstraints``."""

    key: str
    max_skew: int
    hard: bool
    selector: Selector
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


class AffinityTerm(msgspec.Struct, frozen=True):
    """Other pods, and how far away counts as together."""

    key: str
    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector
    weight: int = 0
    """Above nought for a preference."""

    def matches(self, traits: Traits, namespace_labels: Labels) -> bool:
        """Whether a pod is meant."""
        meant = traits.namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        return meant and self.selector.matches(traits.labels)


class Traits(msgspec.Struct, frozen=True, eq=False):
    """Everything about a pod that decides where it may go, but its claims."""

    namespace: str
    labels: Labels
    requests: Requests
    node_name: str = ""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    required_nodes: Mapping[str, Any] | None = None
    """A v1 NodeSelector."""
    preferred_nodes: tuple[tuple[int, Mapping[str, Any]], ...] = ()
    """Weights and terms."""
    ports: tuple[Port, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred_affinity: tuple[AffinityTerm, ...] = ()
    preferred_anti_affinity: tuple[AffinityTerm, ...] = ()
    images: tuple[str, ...] = ()
    containers: int = 1
    priority: int = 0
    may_preempt: bool = True
    spread_by: Selector | None = None
    """What spreads such pods where they do not say so themselves: the selectors of their services and controller."""
    spec: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def terms(self) -> tuple[AffinityTerm, ...]:
        """All terms about other pods."""
        return (*self.affinity, *self.anti_affinity, *self.preferred_affinity, *self.preferred_anti_affinity)


class Pod(msgspec.Struct, frozen=True):
    """One pod and its claims in v1 shape, in the order in which it names them."""

    name: str
    traits: Traits
    claims: tuple[Mapping[str, Any], ...] = ()

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.traits.namespace


@dataclass
class TraitsReader:
    """Reads pods, so that pods which are alike share their traits. What they name is looked up in these objects."""

    priority_classes: Iterable[Mapping[str, Any]] = ()
    runtime_classes: Iterable[Mapping[str, Any]] = ()
    services: Iterable[Mapping[str, Any]] = ()
    _known: dict[str, Traits] = field(default_factory=dict)
    _by_spec: dict[object, tuple[Any, Traits]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._priorities = {name_of(raw): raw for raw in self.priority_classes}
        self._default = next((raw for raw in self._priorities.values() if raw.get("globalDefault") is True), {})
        self._runtimes = {name_of(raw): raw for raw in self.runtime_classes}
        self._selected: dict[str, list[Labels]] = {}
        for raw in self.services:
            if selector := texts(at(raw, "spec", "selector")):
                self._selected.setdefault(namespace_of(raw), []).append(selector)

    def read(
        self, spec: Mapping[str, Any], *, namespace: str, labels: Labels, controller: Selector | None = None
    ) -> Traits:
        """The traits of pods with such a spec; ``controller`` is what a ReplicaSet or StatefulSet selects them by."""
        # Pods of one template share the very spec; it is kept beside the answer, so its id cannot be another's.
        key = (id(spec), namespace, tuple(labels.items()), controller)
        known = self._by_spec.get(key)
        if known is None or known[0] is not spec:
            seen = {part: spec[part] for part in _SEEN if part in spec}
            text = json.dumps([namespace, labels, seen, repr(controller)], sort_keys=True, default=str)
            if text not in self._known:
                full = self._with_runtime_class(spec)
                self._known[text] = self._traits(
                    full, namespace, labels, self._spread_by(namespace, labels, controller)
                )
            known = self._by_spec[key] = (spec, self._known[text])
        return known[1]

    def read_pod(self, raw: Mapping[str, Any], claims: Iterable[Mapping[str, Any]] = ()) -> Pod:
        """A v1 Pod."""
        labels = texts(at(raw, "metadata", "labels"))
        traits = self.read(mapping(raw.get("spec")), namespace=namespace_of(raw), labels=labels)
        return Pod(name_of(raw), traits, tuple(claims))

    def _spread_by(self, namespace: str, labels: Labels, controller: Selector | None) -> Selector | None:
        """What services and controller select such pods by, all at once; None for pods that nothing selects."""
        meant = [one for one in self._selected.get(namespace, ()) if all(labels.get(k) == v for k, v in one.items())]
        merged = {key: value for one in meant for key, value in one.items()}
        found = Selector(equal_to(merged)).also(controller.requirements if controller else ())
        return found if found.requirements else None

    def _with_runtime_class(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the API server adds for a runtime class: its overhead, and where it can run."""
        found = self._runtimes.get(str(spec.get("runtimeClassName") or ""))
        if found is None:
            return spec
        selector = {**texts(at(found, "scheduling", "nodeSelector")), **texts(spec.get("nodeSelector"))}
        tolerations = [*mappings(spec.get("tolerations")), *mappings(at(found, "scheduling", "tolerations"))]
        overhead = mapping(at(found, "overhead", "podFixed")) or spec.get("overhead")
        return {**spec, "nodeSelector": selector, "tolerations": tolerations, "overhead": overhead}

    def _traits(self, spec: Mapping[str, Any], namespace: str, labels: Labels, spread_by: Selector | None) -> Traits:
        node, near, apart = (mapping(at(spec, "affinity", kind)) for kind in _AFFINITIES)
        every = [container for _, container in containers(spec)]
        priority, may_preempt = self._priority(spec)
        required = node.get(_REQUIRED)
        return Traits(
            namespace=namespace,
            labels=labels,
            requests=requests_of(spec),
            node_name=str(spec.get("nodeName") or ""),
            tolerations=_tolerations(spec),
            node_selector=tuple(texts(spec.get("nodeSelector")).items()),
            required_nodes=required if isinstance(required, dict) else None,
            preferred_nodes=_preferred_nodes(node),
            ports=_ports(spec),
            spread=tuple(_spread(raw, labels) for raw in mappings(spec.get("topologySpreadConstraints"))),
            affinity=_required_terms(near, namespace, labels),
            anti_affinity=_required_terms(apart, namespace, labels),
            preferred_affinity=_preferred_terms(near, namespace, labels),
            preferred_anti_affinity=_preferred_terms(apart, namespace, labels),
            images=tuple(_image(name) for name in (*(c.get("image") for c in every), *_image_volumes(spec)) if name),
            containers=len(every),
            priority=priority,
            may_preempt=may_preempt,
            spread_by=spread_by,
            spec=spec,
        )

    def _priority(self, spec: Mapping[str, Any]) -> tuple[int, bool]:
        named = str(spec.get("priorityClassName") or "")
        found = self._priorities.get(named, {}) if named else self._default
        priority = whole(spec.get("priority"), whole(found.get("value"), _SYSTEM_PRIORITIES.get(named, 0)))
        policy = spec.get("preemptionPolicy") or found.get("preemptionPolicy")
        return priority, policy != "Never"


_AFFINITIES = ("nodeAffinity", "podAffinity", "podAntiAffinity")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _tolerations(spec: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Those written, and those every pod gets for nodes that are not ready."""
    written = mappings(spec.get("tolerations"))
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute"}
        for key in _NOT_READY
        if not any(
            one.get("key") in (None, "", key) and one.get("effect") in (None, "", "NoExecute") for one in written
        )
    ]
    return (*written, *added)


def _preferred_nodes(node: Mapping[str, Any]) -> tuple[tuple[int, Mapping[str, Any]], ...]:
    found = [(whole(raw.get("weight")), mapping(raw.get("preference"))) for raw in mappings(node.get(_PREFERRED))]
    return tuple((weight, term) for weight, term in found if weight and term)


def _ports(spec: Mapping[str, Any]) -> tuple[Port, ...]:
    lasting = [container for ends, container in containers(spec) if not ends]
    raw_ports = [raw for container in lasting for raw in mappings(container.get("ports"))]
    shared = spec.get("hostNetwork") is True
    numbered = [
        (whole(raw.get("hostPort")) or (whole(raw.get("containerPort")) if shared else 0), raw) for raw in raw_ports
    ]
    return tuple(
        Port(str(raw.get("hostIP") or "0.0.0.0"), str(raw.get("protocol") or "TCP"), number)
        for number, raw in numbered
        if number > 0
    )


def _spread(raw: dict[str, Any], labels: Labels) -> SpreadConstraint:
    selector = read_selector(raw.get("labelSelector")).also(label_keys(raw.get("matchLabelKeys"), "In", labels))
    return SpreadConstraint(
        key=str(raw.get("topologyKey")),
        max_skew=whole(raw.get("maxSkew"), 1),
        hard=raw.get("whenUnsatisfiable") == "DoNotSchedule",
        selector=selector,
        min_domains=whole(raw.get("minDomains"), 1),
        honors_affinity=raw.get("nodeAffinityPolicy") != "Ignore",
        honors_taints=raw.get("nodeTaintsPolicy") == "Honor",
    )


def _required_terms(raw: Mapping[str, Any], namespace: str, labels: Labels) -> tuple[AffinityTerm, ...]:
    return tuple(_term(term, namespace, labels, 0) for term in mappings(raw.get(_REQUIRED)))


def _preferred_terms(raw: Mapping[str, Any], namespace: str, labels: Labels) -> tuple[AffinityTerm, ...]:
    entries = mappings(raw.get(_PREFERRED))
    return tuple(
        _term(mapping(entry.get("podAffinityTerm")), namespace, labels, whole(entry.get("weight"))) for entry in entries
    )


def _term(raw: Mapping[str, Any], namespace: str, labels: Labels, weight: int) -> AffinityTerm:
    selector = read_selector(raw.get("labelSelector"))
    more = label_keys(raw.get("matchLabelKeys"), "In", labels) + label_keys(
        raw.get("mismatchLabelKeys"), "NotIn", labels
    )
    named = frozenset(str(name) for name in sequence(raw.get("namespaces")))
    own = not named and raw.get("namespaceSelector") is None
    return AffinityTerm(
        str(raw.get("topologyKey")),
        selector.also(more),
        frozenset({namespace}) if own else named,
        read_selector(raw.get("namespaceSelector")),
        weight,
    )


def _image(name: Any) -> str:
    text = str(name)
    return text if text.rfind(":") > text.rfind("/") else f"{text}:latest"


def _image_volumes(spec: Mapping[str, Any]) -> list[Any]:
    return [at(volume, "image", "reference") for volume in mappings(spec.get("volumes"))]
