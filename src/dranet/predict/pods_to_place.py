"""The pods to place: names, claims in v1 shape, and GPUs asked of a device plugin.

Each pod gets its own copy of a template's claim, under the name its controller would begin with. A claim that is
named directly is one object, however many pods name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from dranet.manifests.claim_views import Claim, World
from dranet.manifests.reading import Object
from dranet.manifests.workloads import ClaimSource, PodSpec, mapping
from dranet.manifests.yaml_nodes import FieldPath, dotted
from dranet.model.untyped import at, mappings, texts
from dranet.predict import limit_ranges
from dranet.predict.api_checks import claim_problems
from dranet.predict.limit_ranges import with_defaults
from dranet.predict.matching import Tester
from dranet.scheduling.amounts import container_requests, containers, is_extended
from dranet.scheduling.selectors import Selector, read_selector

ADMIN = "resource.kubernetes.io/admin-access"


class PodClaim(msgspec.Struct, frozen=True):
    """A claim of a pod as the scheduler gets it."""

    ref: str
    """The pod's own name for it."""
    claim: dict[str, Any]
    shared: bool = False
    """True for a ResourceClaim named by the pod: other pods may name it too."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        metadata = self.claim["metadata"]
        return metadata["namespace"], metadata["name"]


class Pod(msgspec.Struct, frozen=True):
    """One pod to place."""

    name: str
    namespace: str
    workload: str
    claims: tuple[PodClaim, ...] = ()
    plugin_gpus: Mapping[str, int] = msgspec.field(default_factory=dict)
    """GPUs by device plugin: resource name and count."""
    node_name: str = ""
    """The node it names itself; no scheduler sees such a pod."""
    daemon_node: str = ""
    """The node that a DaemonSet's controller means it for."""
    spec: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """As the API server would keep it."""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    controller: Selector | None = None
    """What its ReplicaSet or StatefulSet selects its pods by: such pods are spread."""
    problem: str = ""
    """Why no server or scheduler would ever place it."""
    exists: bool = False
    """A cluster has it already; quotas have counted it."""
    alone: bool = False
    """A template that nothing uses: tried by itself on an empty cluster."""


def pods_to_place(world: World, nodes: list[str], tester: Tester) -> list[Pod]:
    """All pods of the workloads, with devices or without; a claim that stands alone counts as a pod of its own.

    Pods that have a node already are left out, and a workload that is written twice counts once, the last time.
    """
    wanted = [spec for spec in _latest(world.pods) if not spec.placed]
    found = [pod for spec in wanted for pod in _pods(world, spec, nodes, tester)]
    return found or [lone_pod(claim, tester) for claim in world.claims if not _allocated(claim.owner)]


def _latest(specs: list[PodSpec]) -> list[PodSpec]:
    """Each workload as it was written last, as a second kubectl apply would leave it."""
    last = {_identity(spec.owner): spec.owner for spec in specs}
    return [spec for spec in specs if last[_identity(spec.owner)] is spec.owner]


def _identity(obj: Object) -> object:
    named = bool(mapping(obj.data.get("metadata")).get("name"))
    return (obj.kind, obj.namespace, obj.name) if named else id(obj)


def _pods(world: World, spec: PodSpec, nodes: list[str], tester: Tester) -> Iterator[Pod]:
    names = [(f"{spec.owner.name}-{node}", node) for node in nodes] if spec.per_node else [(n, "") for n in spec.names]
    found = [(ref, world.claim_of(spec, ref)) for ref in spec.claims]
    ranges = [obj.data for obj in world.by_kind.get("LimitRange", ()) if obj.namespace == spec.namespace]
    full = with_defaults(spec.spec, ranges)
    problem = _first(_problem(world, spec, ref, claim, tester) for ref, claim in found)
    problem = problem or _fractions(full) or limit_ranges.problem(full, ranges)
    known = [(ref, claim) for ref, claim in found if claim is not None]
    labels, controller = texts(spec.metadata.get("labels")), controller_of(world, spec.owner)
    for name, node in names:
        yield Pod(
            name,
            spec.namespace,
            f"{spec.owner.kind}/{spec.owner.name}",
            tuple(_claim(name, ref, claim) for ref, claim in known),
            spec.gpu_limits,
            spec.node_name,
            node,
            full,
            labels,
            texts(spec.metadata.get("annotations")),
            controller,
            problem,
            bool(spec.phase),
        )


def _fractions(spec: Mapping[str, Any]) -> str:
    """Extended resources come in whole numbers; the API server takes no others."""
    for _, container in containers(spec):
        for name, value in container_requests(container).items():
            if is_extended(name) and value.denominator != 1:
                return f"container {container.get('name')}: {name} must be a whole number, not {float(value):g}"
    return ""


def controller_of(world: World, owner: Object) -> Selector | None:
    """What the ReplicaSet or StatefulSet of such pods selects them by; None for pods of other kinds."""
    if owner.kind in {"Deployment", "ReplicaSet", "StatefulSet"}:
        return read_selector(at(owner.data, "spec", "selector"))
    refs = [ref for ref in mappings(at(owner.data, "metadata", "ownerReferences")) if ref.get("controller") is True]
    found = [world.controllers.get((str(ref.get("kind")), owner.namespace, str(ref.get("name")))) for ref in refs]
    return next((read_selector(at(obj.data, "spec", "selector")) for obj in found if obj is not None), None)


def _claim(pod: str, ref: ClaimSource, claim: Claim) -> PodClaim:
    v1, metadata = claim.v1, {"namespace": claim.owner.namespace}
    if claim.owner.kind == "ResourceClaimTemplate":
        made = {**v1, "kind": "ResourceClaim", "metadata": {**metadata, "name": f"{pod}-{ref.name}"}}
        return PodClaim(ref.name, {**made, "spec": v1["spec"].get("spec") or {}})
    return PodClaim(ref.name, {**v1, "metadata": {**v1["metadata"], **metadata, "name": claim.owner.name}}, True)


def lone_pod(claim: Claim, tester: Tester) -> Pod:
    """A claim or template as a pod of its own, under its own name."""
    ref = ClaimSource(claim.owner.name, claim.owner.name if claim.owner.kind == "ResourceClaimTemplate" else None)
    made = _claim(claim.owner.name, ref, claim)
    metadata = {**made.claim["metadata"], "name": claim.owner.name}
    lone = PodClaim(claim.owner.name, {**made.claim, "metadata": metadata}, made.shared)
    workload = f"{claim.owner.kind}/{claim.owner.name}"
    broken, alone = _broken(claim, tester), claim.owner.kind == "ResourceClaimTemplate"
    return Pod(claim.owner.name, claim.owner.namespace, workload, (lone,), problem=broken, alone=alone)


def _allocated(obj: Object) -> bool:
    return bool(mapping(mapping(obj.data.get("status")).get("allocation")))


def _first(texts: Iterator[str]) -> str:
    return next((text for text in texts if text), "")


def _problem(world: World, pod: PodSpec, ref: ClaimSource, claim: Claim | None, tester: Tester) -> str:
    if claim is not None:
        return _broken(claim, tester) or _no_admin(world, claim)
    kind, name = ("resourceclaimtemplate", ref.template) if ref.template else ("resourceclaim", ref.claim)
    if name is None:
        return f"claim {ref.name!r} of the pod names neither a template nor a ResourceClaim"
    return f'could not find {kind} "{pod.namespace}/{name}": add its file with -f'


def _broken(claim: Claim, tester: Tester) -> str:
    """What the API server refuses: such a claim never exists."""
    for path, message, _ in claim_problems(claim):
        return f"{claim.owner.kind} {claim.owner.name!r} ({_place(claim.owner, path)}): {message}"
    for request in claim.requests:
        for selector in request.selectors:
            error, _ = tester.problems(selector.text)
            if error:
                place = _place(selector.owner, selector.path)
                first = error.splitlines()[0]
                return f"{claim.owner.kind} {claim.owner.name!r} ({place}): {dotted(selector.path)}: {first}"
    return ""


def _no_admin(world: World, claim: Claim) -> str:
    """Admin access is for namespaces that are labelled for it."""
    if not any(request.fields.get("adminAccess") is True for request in claim.requests):
        return ""
    space = next((o for o in world.by_kind.get("Namespace", ()) if o.name == claim.owner.namespace), None)
    if space is None or texts(at(space.data, "metadata", "labels")).get(ADMIN) == "true":
        return ""
    return f'adminAccess needs the label {ADMIN}: "true" on namespace {claim.owner.namespace}; the server refuses it'


def _place(obj: Object, path: FieldPath) -> str:
    mark = obj.at(path)
    return f"{obj.file}:{mark.line}:{mark.column}"
