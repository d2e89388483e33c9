"""From workloads to the pods they become, with the claims each pod asks for.

Which pods a kind makes and how they are called stands in `workload_kinds`, one file a kind. Pods of a cluster carry a
status: those that have a node already are not placed again, and the claims that were made for the others are known by
name. What comes to no pods is said, object by object: silence would look like an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dranet.manifests.objects import Object
from dranet.manifests.plain_values import mapping as mapping
from dranet.manifests.plain_values import reach as reach
from dranet.manifests.plain_values import sequence as sequence
from dranet.manifests.schema import NODE_SELECTOR, known_part
from dranet.manifests.workload_kinds import KINDS, Lookup, Omitted, PodGroup, group_of
from dranet.manifests.workload_kinds.base import MAX_REPLICAS
from dranet.manifests.workload_kinds.by_shape import guessed_pods
from dranet.manifests.yaml_nodes import FieldPath

NodeTerm = dict[str, Any]
"""A term of a node selector: ``matchExpressions`` and ``matchFields``."""


class ClaimSource(msgspec.Struct, frozen=True):
    """A claim of a pod: by template, or by name."""

    name: str
    template: str | None = None
    claim: str | None = None
    generated: str | None = None
    """The claim a cluster already made from the template."""


class PodSpec(msgspec.Struct, frozen=True):
    """The pods of one template of a workload: all alike."""

    owner: Object
    path: FieldPath
    """Where the pod spec stands in its source."""
    names: tuple[str, ...]
    source: Object
    """The object in which `path` stands: the owner, or what the owner is made from."""
    spec: dict[str, Any]
    """The pod spec, as the pods get it."""
    role: str = ""
    per_node: bool = False
    """A DaemonSet: one pod on every node, whatever `names` says."""
    claims: tuple[ClaimSource, ...] = ()
    gpu_limits: dict[str, int] = msgspec.field(default_factory=dict)
    """Extended resources for GPUs: ``nvidia.com/gpu`` and its like, what the pod needs at once."""
    node_name: str = ""
    node_terms: tuple[NodeTerm, ...] = ()
    """The nodes it may go to, by label and name: terms are alternatives, none means all nodes."""
    note: str = ""
    """What was assumed about these pods."""

    @property
    def phase(self) -> str:
        """Where a cluster is with the pod; empty for one that only stands in a file."""
        status = mapping(self.owner.data.get("status")) if self.owner.kind == "Pod" else {}
        return str(status.get("phase") or "")

    @property
    def placed(self) -> bool:
        """Whether a cluster has given it a node, or is done with it."""
        return self.phase not in {"", "Pending"} or bool(self.phase and self.node_name)

    @property
    def namespace(self) -> str:
        """The namespace of the workload."""
        return self.owner.namespace

    @property
    def metadata(self) -> dict[str, Any]:
        """What the pods have beside their spec: labels and annotations."""
        return mapping(reach(self.source.data, (*self.path[:-1], "metadata")))


class LeftOut(msgspec.Struct, frozen=True):
    """An object, or a part of one, that no pod is planned for, and why."""

    owner: Object
    why: str


def pod_specs(objects: Iterable[Object]) -> list[PodSpec]:
    """Every group of pods the objects ask for, in the order they stand."""
    return read_workloads(objects)[0]


def read_workloads(objects: Iterable[Object], others: Iterable[Object] = ()) -> tuple[list[PodSpec], list[LeftOut]]:
    """Every group of pods the objects ask for, in the order they stand, and the objects that come to none.

    ``others`` are only looked up. Pods that are among the objects already are not asked for a second time by what made
    them.
    """
    asked = list(objects)
    made = _Made(asked)
    known = {(obj.kind, obj.namespace, obj.name): obj for obj in (*others, *asked)}

    def look(kind: str, namespace: str, name: str) -> Object | None:
        return known.get((kind, "default" if kind.startswith("Cluster") else namespace, name))

    found: list[PodSpec] = []
    left: list[LeftOut] = []
    for obj in asked:
        for one in _of(obj, made, look):
            if isinstance(one, PodSpec):
                found.append(one)
            else:
                left.append(one)
    return found, left


READ = {
    "ResourceClaim",
    "ResourceClaimTemplate",
    "DeviceClass",
    "ResourceSlice",
    "Node",
    "ComputeDomain",
    "PodGroup",
    "Topology",
}
"""Kinds that make no pods and still count in a plan."""
_OVER = {"Complete", "Completed", "Succeeded", "Failed", "Finished"}


def _of(obj: Object, made: _Made, look: Lookup) -> Iterator[PodSpec | LeftOut]:
    if obj.kind in READ:
        return
    if over := _over(obj):
        yield LeftOut(obj, over)
        return
    if child := made.child(obj):
        yield LeftOut(obj, f"{child.kind} {child.name}, which it made, stands for it")
        return
    kind = KINDS.get((group_of(obj), obj.kind))
    groups = list(kind(obj, look) if kind else guessed_pods(obj))
    if not groups:
        yield LeftOut(obj, _no_pods(obj, known=kind is not None))
    for group in groups:
        yield LeftOut(obj, group.why) if isinstance(group, Omitted) else _pod_spec(obj, group, made)


def _over(obj: Object) -> str:
    """Whether a workload has run to its end."""
    conditions = map(mapping, sequence(mapping(obj.data.get("status")).get("conditions")))
    ended = [c["type"] for c in conditions if c.get("type") in _OVER and c.get("status") == "True"]
    return f"has run to its end ({ended[0]})" if ended and obj.kind != "Pod" else ""


def _no_pods(obj: Object, *, known: bool) -> str:
    group = group_of(obj)
    if known:
        return "it has no pod template"
    builtin = "." not in group or (group.endswith(".k8s.io") and not group.endswith(".x-k8s.io"))
    return "makes no pods" if builtin else "a kind not known here, and nothing in it looks like a pod template"


class _Made:
    """What is among the objects because something else among them made it."""

    def __init__(self, objects: list[Object]) -> None:
        self._names = {(obj.namespace, obj.name) for obj in objects if obj.kind == "Pod"}
        self._pods: dict[tuple[str, str, str], list[str]] = {}
        self._others: dict[tuple[str, str, str], Object] = {}
        for obj in objects:
            key = _maker(obj)
            if key and obj.kind == "Pod":
                self._pods.setdefault(key, []).append(obj.name)
            elif key and obj.kind != "Workload" and (group_of(obj), obj.kind) in KINDS:
                self._others.setdefault(key, obj)

    def child(self, obj: Object) -> Object | None:
        """A workload this one made."""
        return self._others.get((obj.kind, obj.namespace, obj.name))

    def still_to_make(self, obj: Object, group: PodGroup) -> tuple[str, ...]:
        """Names of the pods that are not there yet; random names are told by what they begin with."""
        if obj.kind == "Pod":
            return group.names
        absent = [name for name in group.names if (obj.namespace, name) not in self._names]
        base = group.names[0].rpartition("-")[0] if group.names else ""
        own = self._pods.get((obj.kind, obj.namespace, obj.name), ())
        random = [name for name in own if name.startswith(f"{base}-") and name not in group.names]
        return tuple(absent[: max(len(absent) - len(random), 0)])


def _maker(obj: Object) -> tuple[str, str, str] | None:
    for raw in sequence(mapping(obj.data.get("metadata")).get("ownerReferences")):
        ref = mapping(raw)
        if ref.get("controller") is True:
            return str(ref.get("kind")), obj.namespace, str(ref.get("name"))
    return None


def _pod_spec(obj: Object, group: PodGroup, made: _Made) -> PodSpec:
    return PodSpec(
        owner=obj,
        path=group.path,
        names=made.still_to_make(obj, group),
        role=group.role,
        per_node=group.per_node,
        claims=tuple(_claims(group.spec, _generated(obj))),
        gpu_limits=gpu_limits(group.spec),
        node_name=str(group.spec.get("nodeName") or ""),
        node_terms=_node_terms(group.spec),
        source=group.source,
        spec=group.spec,
        note=group.note,
    )


def _node_terms(spec: dict[str, Any]) -> tuple[NodeTerm, ...]:
    """Required node affinity and nodeSelector as one: what the selector asks is asked in every term."""
    chosen = [
        {"key": key, "operator": "In", "values": [str(value)]}
        for key, value in mapping(spec.get("nodeSelector")).items()
    ]
    required = reach(spec, ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"))
    terms = known_part(mapping(required), NODE_SELECTOR).get("nodeSelectorTerms") or ([{}] if chosen else [])
    return tuple({**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *chosen]} for term in terms)


def _generated(obj: Object) -> dict[str, str]:
    """By the pod's own names, the claims a cluster made for it."""
    entries = sequence(reach(obj.data, ("status", "resourceClaimStatuses"))) if obj.kind == "Pod" else []
    pairs = [(mapping(raw).get("name"), mapping(raw).get("resourceClaimName")) for raw in entries]
    return {name: claim for name, claim in pairs if isinstance(name, str) and isinstance(claim, str)}


def _claims(spec: dict[str, Any], generated: dict[str, str]) -> Iterator[ClaimSource]:
    for raw in sequence(spec.get("resourceClaims")):
        entry = mapping(raw)
        template, claim = entry.get("resourceClaimTemplateName"), entry.get("resourceClaimName")
        if isinstance(entry.get("name"), str):
            yield ClaimSource(
                entry["name"],
                template if isinstance(template, str) else None,
                claim if isinstance(claim, str) else None,
                generated.get(entry["name"]),
            )


def containers(spec: dict[str, Any]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Every container with the list it stands in and its index."""
    for group in ("initContainers", "containers"):
        for i, raw in enumerate(sequence(spec.get(group))):
            yield group, i, mapping(raw)


def is_gpu_resource(name: str) -> bool:
    """``nvidia.com/gpu``, ``amd.com/gpu``, ``gpu.intel.com/xe``, and MIG profiles."""
    domain, _, resource = name.partition("/")
    return "." in domain and (resource == "gpu" or domain.startswith("gpu.") or resource.startswith("mig-"))


def gpu_limits(spec: dict[str, Any]) -> dict[str, int]:
    """What the pod asks of GPU device plugins at once.

    Containers run together, and so do init containers that are sidecars; other init containers run alone, before.
    """
    together: dict[str, int] = {}
    before: dict[str, int] = {}
    for group, _, container in containers(spec):
        alone = group == "initContainers" and container.get("restartPolicy") != "Always"
        for name, count in whole_limits(container).items():
            if is_gpu_resource(name) and alone:
                before[name] = max(before.get(name, 0), count)
            elif is_gpu_resource(name):
                together[name] = together.get(name, 0) + count
    names = sorted({*together, *before})
    return {name: max(together.get(name, 0), before.get(name, 0)) for name in names}


def whole_limits(container: dict[str, Any]) -> dict[str, int]:
    """Resources a container asks for in whole numbers; limits decide, requests must equal them."""
    resources = mapping(container.get("resources"))
    wanted = {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}
    texts = {name: str(value) for name, value in wanted.items()}
    return {
        name: int(text)
        for name, text in sorted(texts.items())
        if text.isascii() and text.isdigit() and 0 < int(text) <= MAX_REPLICAS
    }
