"""From workloads to the pods they become, with the claims each pod asks for.

Every controller names its pods in its own way; where the real name has a random part, a number stands for it. Pods of
a cluster carry a status: those that have a node already are not placed again, and the claims that were made for the
others are known by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dranet.manifests.reading import Object
from dranet.manifests.schema import NODE_SELECTOR, known_part
from dranet.manifests.yaml_nodes import FieldPath

MAX_REPLICAS = 100_000

NodeTerm = dict[str, Any]
"""A term of a node selector: ``matchExpressions`` and ``matchFields``."""
Template = tuple[str, FieldPath, int]
"""Suffix of the pods' names, where their spec stands in the object, how many there are."""


@dataclass(frozen=True, slots=True)
class ClaimSource:
    """A claim of a pod: by template, or by name."""

    name: str
    template: str | None = None
    claim: str | None = None
    generated: str | None = None
    """The claim a cluster already made from the template."""


@dataclass(frozen=True, slots=True)
class PodSpec:
    """The pods of one template of a workload: all alike."""

    owner: Object
    path: FieldPath
    """Where the pod spec stands in the owner."""
    names: tuple[str, ...]
    role: str = ""
    per_node: bool = False
    """A DaemonSet: one pod on every node, whatever `names` says."""
    claims: tuple[ClaimSource, ...] = ()
    gpu_limits: dict[str, int] = field(default_factory=dict)
    """Extended resources for GPUs: ``nvidia.com/gpu`` and its like, what the pod needs at once."""
    node_name: str = ""
    node_terms: tuple[NodeTerm, ...] = ()
    """The nodes it may go to, by label and name: terms are alternatives, none means all nodes."""

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
    def spec(self) -> dict[str, Any]:
        """The pod spec as written."""
        return mapping(reach(self.owner.data, self.path))


def pod_specs(objects: Iterable[Object]) -> list[PodSpec]:
    """Every group of pods the objects ask for, in the order they stand."""
    return [spec for obj in objects for spec in _of(obj)]


def reach(data: Any, path: FieldPath) -> Any:
    """The value at a path, or None."""
    for step in path:
        if isinstance(data, dict) and isinstance(step, str):
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            return None
    return data


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def _of(obj: Object) -> Iterator[PodSpec]:
    for suffix, path, count in _templates(obj):
        spec = reach(obj.data, path)
        if isinstance(spec, dict):
            yield _pod_spec(obj, path, suffix, count, spec)


def _templates(obj: Object) -> Iterator[Template]:
    spec = mapping(obj.data.get("spec"))
    template: FieldPath = ("spec", "template", "spec")
    match obj.kind:
        case "Pod":
            yield "", ("spec",), 1
        case "StatefulSet" | "Deployment" | "ReplicaSet" | "ReplicationController":
            yield "", template, _count(spec.get("replicas"), 1)
        case "DaemonSet":
            yield "", template, 1
        case "Job":
            parallel = _count(spec.get("parallelism"), 1)
            yield "", template, min(parallel, _count(spec.get("completions"), parallel))
        case "MPIJob":
            for role, replica in mapping(spec.get("mpiReplicaSpecs")).items():
                path = ("spec", "mpiReplicaSpecs", role, "template", "spec")
                yield role.lower(), path, _count(mapping(replica).get("replicas"), 1)
        case "RayCluster" | "RayJob" | "RayService":
            yield from _ray(obj.kind, spec)


def _ray(kind: str, spec: dict[str, Any]) -> Iterator[Template]:
    key = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}.get(kind)
    base: FieldPath = ("spec", key) if key else ("spec",)
    cluster = mapping(spec.get(key)) if key else spec
    yield "head", (*base, "headGroupSpec", "template", "spec"), 1
    for i, group in enumerate(sequence(cluster.get("workerGroupSpecs"))):
        one = mapping(group)
        least = _count(one.get("minReplicas"), 0)
        wanted = max(least, _count(one.get("replicas"), least or 1))
        count = min(wanted, _count(one.get("maxReplicas"), MAX_REPLICAS)) * _count(one.get("numOfHosts"), 1)
        name = f"{one.get('groupName', i)}-worker"
        yield name, (*base, "workerGroupSpecs", i, "template", "spec"), min(count, MAX_REPLICAS)


def _count(value: Any, default: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        return default
    return max(0, min(value, MAX_REPLICAS))


def _pod_spec(obj: Object, path: FieldPath, suffix: str, count: int, spec: dict[str, Any]) -> PodSpec:
    base = f"{obj.name}-{suffix}" if suffix else obj.name
    single = obj.kind == "Pod" or suffix in {"launcher", "head"}
    names = (base,) * min(count, 1) if single else tuple(f"{base}-{i}" for i in range(count))
    return PodSpec(
        owner=obj,
        path=path,
        names=names,
        role=suffix,
        per_node=obj.kind == "DaemonSet",
        claims=tuple(_claims(spec, _generated(obj))),
        gpu_limits=gpu_limits(spec),
        node_name=str(spec.get("nodeName") or ""),
        node_terms=_node_terms(spec),
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
