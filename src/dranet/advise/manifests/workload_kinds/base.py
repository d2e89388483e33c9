"""Workload kinds: a function per API group and kind yields the sets of pods that its controller creates.

Pod names are those the controller gives. Where the real name ends in random letters, an index stands for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha1
from typing import Any

import msgspec
from msgspec.structs import replace

from dranet.advise.manifests.objects import Object
from dranet.advise.manifests.yaml_nodes import FieldPath
from dranet.core.untyped import as_dict, as_list, as_strings, get_path

MAX_REPLICAS = 100_000


class ClaimSource(msgspec.Struct, frozen=True):
    """An entry of a pod's ``resourceClaims``: by template, or by name."""

    name: str
    template: str | None = None
    claim: str | None = None
    generated: str | None = None
    """The claim that a cluster already created from the template."""


class Rollout(msgspec.Struct, frozen=True):
    """How a controller replaces running pods."""

    surge: int = 0
    """How many more pods than wanted may exist meanwhile."""
    unavailable: int = 1
    """How many fewer pods than wanted may run meanwhile."""
    at_once: bool = False
    """All running pods are deleted before the first new one is created."""
    each: bool = False
    """Each new pod takes the place of the running pod of its name or node, which is deleted just before."""


class PodSet(msgspec.Struct, frozen=True):
    """The pods of one pod template of a workload; they differ only in their names."""

    owner: Object
    source: Object
    """The object that contains `path`: the owner, or the runtime that the owner names."""
    path: FieldPath
    """Where the pod spec is in its source."""
    names: tuple[str, ...]
    spec: dict[str, Any]
    """The pod spec as the controller writes it into the pods."""
    role: str = ""
    per_node: bool = False
    """A DaemonSet: one pod on every node, whatever `names` contains."""
    note: str = ""
    """What was assumed about these pods."""
    added_labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Labels that the controller adds to all of these pods."""
    pod_labels: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    """By pod name, labels that the controller adds to that pod alone, such as its index."""
    selector: Mapping[str, Any] | None = None
    """The selector of the ReplicaSet or StatefulSet that owns the pods: the scheduler spreads those it selects."""
    job: str = ""
    """Which part of the workload communicates, if not all of it: a group of a LeaderWorkerSet."""
    kept: tuple[str, ...] = ()
    """Running pods that stay."""
    replaced: tuple[str, ...] = ()
    """Running pods that new ones replace."""
    removed: tuple[str, ...] = ()
    """Running pods that are deleted and not replaced."""
    rollout: Rollout | None = None
    """How replaced pods make room for new ones."""
    on_nodes: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By node, the running pod of a DaemonSet."""
    after: tuple[tuple[str, str], ...] = ()
    """Roles of the workload, each with the status that its pods must have before these are created: Ready, Complete."""
    in_order: bool = False
    """Each pod is created when the one before it is ready."""
    built: bool = False
    """Whether the controller builds the pod spec from other fields, so that the path has no pod spec."""

    @property
    def labels(self) -> dict[str, str]:
        """The labels that all of these pods have."""
        return {**as_strings(self.metadata.get("labels")), **self.added_labels}

    @property
    def phase(self) -> str:
        """``status.phase`` of a pod in a cluster; empty for a pod that exists only in a file."""
        status = as_dict(self.owner.data.get("status")) if self.owner.kind == "Pod" else {}
        return str(status.get("phase") or "")

    @property
    def node_name(self) -> str:
        """``spec.nodeName``."""
        return str(self.spec.get("nodeName") or "")

    @property
    def placed(self) -> bool:
        """Whether a cluster has assigned a node to the pod, or the pod has completed."""
        return self.phase not in {"", "Pending"} or bool(self.phase and self.node_name)

    @property
    def namespace(self) -> str:
        """The namespace of the workload."""
        return self.owner.namespace

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the pod template: labels and annotations."""
        return as_dict(get_path(self.source.data, *self.path[:-1], "metadata"))

    @property
    def claims(self) -> tuple[ClaimSource, ...]:
        """The claims of each pod."""
        return tuple(_claim_sources(self.spec, _generated_claims(self.owner)))

    @property
    def gpu_limits(self) -> dict[str, int]:
        """GPUs from a device plugin (``nvidia.com/gpu`` and similar) that each pod needs at the same time."""
        return gpu_limits(self.spec)


class Skipped(msgspec.Struct, frozen=True):
    """An object, or a part of one, that gets no pods in a plan, and why."""

    owner: Object
    why: str


class MadeService(msgspec.Struct, frozen=True):
    """A Service that a controller creates for its pods: the scheduler spreads the pods that it selects."""

    owner: Object
    selector: Mapping[str, str]

    @property
    def data(self) -> dict[str, Any]:
        """As a v1 Service."""
        return {"metadata": {"namespace": self.owner.namespace}, "spec": {"selector": dict(self.selector)}}


Made = PodSet | Skipped | MadeService
"""What a controller makes of a workload."""
FindObject = Callable[[str, str, str], Object | None]
"""Returns an object by kind, namespace and name: some workloads only name the object their pods are made from."""
WorkloadKind = Callable[[Object, FindObject], Iterator[Made]]
KINDS: dict[tuple[str, str], WorkloadKind] = {}
"""By API group and kind."""


def workload(api_group: str, *kinds: str) -> Callable[[WorkloadKind], WorkloadKind]:
    """Register a function for these kinds of an API group."""

    def register(function: WorkloadKind) -> WorkloadKind:
        for kind in kinds:
            assert (api_group, kind) not in KINDS, f"{api_group} {kind} is registered twice"
            KINDS[api_group, kind] = function
        return function

    return register


def group_of(obj: Object) -> str:
    """The API group of an object; empty for the core group."""
    return obj.api_version.rpartition("/")[0]


def numbered(base: str, count: int, first: int = 0) -> tuple[str, ...]:
    """``base-0``, ``base-1``, ..."""
    return tuple(f"{base}-{i}" for i in range(first, first + count))


def count_of(value: Any, default: int) -> int:
    """A number of pods as written, else the default; between 0 and `MAX_REPLICAS`."""
    if isinstance(value, bool) or not isinstance(value, int):
        return default
    return max(0, min(value, MAX_REPLICAS))


def pods_at(
    obj: Object,
    path: FieldPath,
    names: tuple[str, ...],
    role: str = "",
    *,
    source: Object | None = None,
    per_node: bool = False,
    note: str = "",
    labels: Mapping[str, str] | None = None,
    pod_labels: Mapping[str, Mapping[str, str]] | None = None,
    selector: Mapping[str, Any] | None = None,
    job: str = "",
    after: tuple[tuple[str, str], ...] = (),
    in_order: bool = False,
) -> Iterator[PodSet]:
    """The pods of the pod spec at this path of the source (the object itself by default), if there is one."""
    source = source or obj
    spec = get_path(source.data, *path)
    if isinstance(spec, dict):
        names = names[:MAX_REPLICAS]
        found = PodSet(obj, source, path, names, spec, role, per_node, note, labels or {}, pod_labels or {}, selector)
        yield replace(found, job=job, after=after, in_order=in_order)


def template_hash(template: Any) -> str:
    """A hash that stands for the one that controllers write into labels: equal for equal templates."""
    return sha1(json.dumps(template, sort_keys=True, default=str).encode(), usedforsecurity=False).hexdigest()[:10]


def name_hash(namespace: str, name: str) -> str:
    """The hash of a name that JobSet and LeaderWorkerSet write into labels."""
    return sha1(f"{namespace}/{name}".encode(), usedforsecurity=False).hexdigest()


def suspended(spec: dict[str, Any]) -> str:
    """The note for a workload whose controller or queue holds it back."""
    return "suspended: its pods are planned as if it were resumed" if spec.get("suspend") is True else ""


def spec_of(obj: Object) -> dict[str, Any]:
    """The object's ``spec``."""
    return as_dict(obj.data.get("spec"))


def join_notes(*notes: str) -> str:
    """The notes that are not empty, as one."""
    return "; ".join(filter(None, notes))


def _generated_claims(owner: Object) -> dict[str, str]:
    """By the pod's own names for them, the claims that a cluster created for the pod."""
    entries = as_list(get_path(owner.data, "status", "resourceClaimStatuses")) if owner.kind == "Pod" else []
    pairs = [(as_dict(raw).get("name"), as_dict(raw).get("resourceClaimName")) for raw in entries]
    return {name: claim for name, claim in pairs if isinstance(name, str) and isinstance(claim, str)}


def _claim_sources(spec: dict[str, Any], generated: dict[str, str]) -> Iterator[ClaimSource]:
    for entry in map(as_dict, as_list(spec.get("resourceClaims"))):
        template, claim = entry.get("resourceClaimTemplateName"), entry.get("resourceClaimName")
        if isinstance(entry.get("name"), str):
            yield ClaimSource(
                entry["name"],
                template if isinstance(template, str) else None,
                claim if isinstance(claim, str) else None,
                generated.get(entry["name"]),
            )


def containers(spec: dict[str, Any]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Every container with the name of its list and its index."""
    for group in ("initContainers", "containers"):
        for i, raw in enumerate(as_list(spec.get(group))):
            yield group, i, as_dict(raw)


def is_gpu_resource(name: str) -> bool:
    """``nvidia.com/gpu``, ``amd.com/gpu``, ``gpu.intel.com/xe``, and MIG profiles."""
    domain, _, resource = name.partition("/")
    return "." in domain and (resource == "gpu" or domain.startswith("gpu.") or resource.startswith("mig-"))


def gpu_limits(spec: dict[str, Any]) -> dict[str, int]:
    """The GPUs that a pod needs from device plugins at the same time.

    Containers run together with init containers that are sidecars; other init containers run alone, before them.
    """
    together: dict[str, int] = {}
    before: dict[str, int] = {}
    for group, _, container in containers(spec):
        alone = group == "initContainers" and container.get("restartPolicy") != "Always"
        for name, count in _whole_limits(container).items():
            if is_gpu_resource(name) and alone:
                before[name] = max(before.get(name, 0), count)
            elif is_gpu_resource(name):
                together[name] = together.get(name, 0) + count
    names = sorted({*together, *before})
    return {name: max(together.get(name, 0), before.get(name, 0)) for name in names}


def _whole_limits(container: dict[str, Any]) -> dict[str, int]:
    """Resources in whole numbers; limits win over requests, which must equal them."""
    resources = as_dict(container.get("resources"))
    wanted = {**as_dict(resources.get("requests")), **as_dict(resources.get("limits"))}
    texts = {name: str(value) for name, value in wanted.items()}
    return {
        name: int(text)
        for name, text in sorted(texts.items())
        if text.isascii() and text.isdigit() and 0 < int(text) <= MAX_REPLICAS
    }
