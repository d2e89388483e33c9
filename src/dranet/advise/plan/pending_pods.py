"""The pods to place: names, claims as v1, and GPUs requested from a device plugin.

Each pod gets its own copy of a template's claim, named with the prefix that the controller uses. A ResourceClaim that
pods name directly is one object, however many pods name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from dranet.advise.manifests import Claim, ClaimSource, Manifests, Object, PodSet, Rollout, dotted, is_served
from dranet.advise.plan import admission, limit_ranges
from dranet.advise.plan.claim_validation import claim_problems
from dranet.advise.plan.limit_ranges import with_defaults
from dranet.advise.plan.selectors import SelectorTester
from dranet.core.untyped import as_dict, as_dicts, as_list, as_strings, get_path
from dranet.scheduler.label_selectors import LabelSelector, read_label_selector
from dranet.scheduler.resources import all_containers, container_requests, is_extended

ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"


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


class PendingPod(msgspec.Struct, frozen=True):
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
    controller: LabelSelector | None = None
    """What its ReplicaSet or StatefulSet selects its pods by: such pods are spread."""
    problem: str = ""
    """Why no server or scheduler would ever place it."""
    refused: str = ""
    """What the API server answers when the pod is created, if it refuses it."""
    exists: bool = False
    """A cluster has it already; quotas have counted it."""
    standalone: bool = False
    """A template that nothing uses: tried by itself on an empty cluster."""
    replaces: tuple[str, ...] = ()
    """Running pods of its namespace that are deleted just before this one is created."""
    rollout: Rollout | None = None
    """How the pods of its workload replace those that run."""
    old: tuple[str, ...] = ()
    """The running pods that its rollout replaces."""
    stage: str = ""
    """The role in its workload, or its own name where pods are created in order."""
    after: tuple[tuple[str, str], ...] = ()
    """Stages of the same workload, each with the status it must have before the pod is created."""
    part: str = ""
    """The part of the workload that communicates, if not all of it."""

    @property
    def job(self) -> str:
        """The pods that communicate with each other, as users know them: workload, namespace and part."""
        kind, _, name = self.workload.partition("/")
        where = name if self.namespace == "default" else f"{self.namespace}/{name}"
        return " ".join(filter(None, (f"{kind}/{where}", self.part)))


def list_pending_pods(manifests: Manifests, nodes: list[str], tester: SelectorTester) -> list[PendingPod]:
    """All pods of the workloads, with devices or without. If there are none, each claim counts as a pod of its own.

    Pods that have a node already are left out, and a workload that is written twice counts once, the last time.
    """
    wanted = [spec for spec in _latest(manifests.pods) if not spec.placed]
    read = selected_labels(manifests)
    found = _with_own_claims(manifests, [pod for spec in wanted for pod in _pods(manifests, spec, nodes, tester, read)])
    return found or [pod_for_claim(claim, tester) for claim in manifests.claims if not _allocated(claim.owner)]


def _latest(specs: list[PodSet]) -> list[PodSet]:
    """Each workload as it was written last, as a second kubectl apply would leave it."""
    last = {_identity(spec.owner): spec.owner for spec in specs}
    return [spec for spec in specs if last[_identity(spec.owner)] is spec.owner]


def _identity(obj: Object) -> object:
    named = bool(as_dict(obj.data.get("metadata")).get("name"))
    return (obj.kind, obj.namespace, obj.name) if named else id(obj)


def _with_own_claims(manifests: Manifests, pods: list[PendingPod]) -> list[PendingPod]:
    """The pods, each with claims of its own: pods of two workloads may have the same name here."""
    used = {(obj.namespace, obj.name) for obj in manifests.by_kind.get("ResourceClaim", ())}
    return [
        replace(pod, claims=tuple(one if one.shared else _unused(one, used) for one in pod.claims))
        if pod.claims
        else pod
        for pod in pods
    ]


def _unused(one: PodClaim, used: set[tuple[str, str]]) -> PodClaim:
    base, number = one.claim["metadata"]["name"], 1
    while one.key in used:
        number += 1
        metadata = {**one.claim["metadata"], "name": f"{base}-{number}"}
        one = PodClaim(one.ref, {**one.claim, "metadata": metadata})
    used.add(one.key)
    return one


def selected_labels(manifests: Manifests) -> frozenset[str]:
    """The label keys that a selector reads. Pods that differ only in other labels are the same to the scheduler."""
    found: set[str] = set()
    for spec in manifests.pods:
        _add_keys((spec.spec.get("affinity"), spec.spec.get("topologySpreadConstraints"), spec.selector), found)
    for obj in manifests.existing:
        _add_keys((get_path(obj.data, "spec", "affinity"), get_path(obj.data, "spec", "selector")), found)
        _add_keys(get_path(obj.data, "spec", "topologySpreadConstraints"), found)
    for service in manifests.services:
        found.update(as_dict(get_path(service, "spec", "selector")))
    return frozenset(found)


def _add_keys(value: Any, found: set[str]) -> None:
    """Add the keys of all label selectors in the value."""
    if isinstance(value, list | tuple):
        for item in value:
            _add_keys(item, found)
    elif isinstance(value, dict):
        found.update(as_dict(value.get("matchLabels")))
        found.update(str(item) for key in ("matchLabelKeys", "mismatchLabelKeys") for item in as_list(value.get(key)))
        if isinstance(value.get("key"), str):
            found.add(value["key"])
        for item in value.values():
            _add_keys(item, found)


def _pods(
    manifests: Manifests, spec: PodSet, nodes: list[str], tester: SelectorTester, read: frozenset[str]
) -> Iterator[PendingPod]:
    names = _daemon_names(spec, nodes) if spec.per_node else [(name, "") for name in spec.names]
    stages = _stages(spec)
    found = [(ref, manifests.claim_of(spec, ref)) for ref in spec.claims]
    ranges = [obj.data for obj in manifests.by_kind.get("LimitRange", ()) if obj.namespace == spec.namespace]
    full = with_defaults(spec.spec, ranges)
    problem = _first(_problem(manifests, spec, ref, claim, tester) for ref, claim in found)
    problem = problem or _fractions(full) or limit_ranges.problem(full, ranges)
    refused = "" if spec.phase else admission.refusal(manifests, spec.namespace, full)
    known = [(ref, claim) for ref, claim in found if claim is not None]
    labels, controller = spec.labels, controller_of(manifests, spec)
    for name, node in names:
        yield PendingPod(
            name,
            spec.namespace,
            f"{spec.owner.kind}/{spec.owner.name}",
            tuple(_claim(name, ref, claim) for ref, claim in known),
            spec.gpu_limits,
            spec.node_name,
            node,
            full,
            _labels(spec, name, labels, read),
            as_strings(spec.metadata.get("annotations")),
            controller,
            problem,
            admission.message(name, refused) if refused else "",
            bool(spec.phase),
            replaces=_replaced(spec, name, node),
            rollout=None if spec.rollout is None or spec.rollout.each else spec.rollout,
            old=spec.replaced,
            stage=name if spec.in_order else spec.role,
            after=(*spec.after, *stages.get(name, ())),
            part=spec.job,
        )


def _daemon_names(spec: PodSet, nodes: list[str]) -> list[tuple[str, str]]:
    """One pod for each node that has none, or whose pod is replaced."""
    missing = [node for node in nodes if node not in spec.on_nodes or spec.rollout]
    return [(f"{spec.owner.name}-{node}", node) for node in missing]


def _replaced(spec: PodSet, name: str, node: str) -> tuple[str, ...]:
    """The running pod whose place this one takes: of the same name, or on the same node."""
    if spec.rollout is None or not spec.rollout.each:
        return ()
    return ((spec.on_nodes[node],) if node in spec.on_nodes else ()) if node else (name,)


def _stages(spec: PodSet) -> dict[str, tuple[tuple[str, str], ...]]:
    """By pod, the pod before it, where pods are created in order."""
    if not spec.in_order:
        return {}
    return {name: ((before, "Ready"),) for before, name in zip(spec.names, spec.names[1:], strict=False)}


def _labels(spec: PodSet, name: str, common: dict[str, str], read: frozenset[str]) -> dict[str, str]:
    """The labels of one pod. One object for all pods without labels of their own: it is compared often."""
    own = {key: value for key, value in spec.pod_labels.get(name, {}).items() if key in read}
    return {**common, **own} if own else common


def _fractions(spec: Mapping[str, Any]) -> str:
    """Extended resources come in whole numbers; the API server takes no others."""
    for _, container in all_containers(spec):
        for name, value in container_requests(container).items():
            if is_extended(name) and value.denominator != 1:
                return f"container {container.get('name')}: {name} must be a whole number, not {float(value):g}"
    return ""


def controller_of(manifests: Manifests, pods: PodSet) -> LabelSelector | None:
    """What the ReplicaSet or StatefulSet of such pods selects them by; None for pods of other kinds."""
    owner = pods.owner
    if pods.selector is not None:
        return read_label_selector(pods.selector)
    refs = [
        ref for ref in as_dicts(get_path(owner.data, "metadata", "ownerReferences")) if ref.get("controller") is True
    ]
    found = [manifests.controllers.get((str(ref.get("kind")), owner.namespace, str(ref.get("name")))) for ref in refs]
    return next((read_label_selector(get_path(obj.data, "spec", "selector")) for obj in found if obj is not None), None)


def _claim(pod: str, ref: ClaimSource, claim: Claim) -> PodClaim:
    v1, metadata = claim.v1, {"namespace": claim.owner.namespace}
    if claim.owner.kind == "ResourceClaimTemplate":
        made = {**v1, "kind": "ResourceClaim", "metadata": {**metadata, "name": f"{pod}-{ref.name}"}}
        return PodClaim(ref.name, {**made, "spec": v1["spec"].get("spec") or {}})
    return PodClaim(ref.name, {**v1, "metadata": {**v1["metadata"], **metadata, "name": claim.owner.name}}, True)


def pod_for_claim(claim: Claim, tester: SelectorTester) -> PendingPod:
    """A claim or template as a pod of its own, under its own name."""
    ref = ClaimSource(claim.owner.name, claim.owner.name if claim.owner.kind == "ResourceClaimTemplate" else None)
    made = _claim(claim.owner.name, ref, claim)
    metadata = {**made.claim["metadata"], "name": claim.owner.name}
    lone = PodClaim(claim.owner.name, {**made.claim, "metadata": metadata}, made.shared)
    workload = f"{claim.owner.kind}/{claim.owner.name}"
    broken, standalone = _broken(claim, tester), claim.owner.kind == "ResourceClaimTemplate"
    return PendingPod(claim.owner.name, claim.owner.namespace, workload, (lone,), problem=broken, standalone=standalone)


def _allocated(obj: Object) -> bool:
    return bool(as_dict(as_dict(obj.data.get("status")).get("allocation")))


def _first(texts: Iterator[str]) -> str:
    return next((text for text in texts if text), "")


def _problem(manifests: Manifests, pod: PodSet, ref: ClaimSource, claim: Claim | None, tester: SelectorTester) -> str:
    if claim is not None:
        return _being_deleted(claim) or _broken(claim, tester) or _no_admin(manifests, claim)
    kind, name = ("resourceclaimtemplate", ref.template) if ref.template else ("resourceclaim", ref.claim)
    if name is None:
        return f"claim {ref.name!r} of the pod names neither a template nor a ResourceClaim"
    return f'could not find {kind} "{pod.namespace}/{name}": add its file with -f'


def _being_deleted(claim: Claim) -> str:
    deleted = claim.owner.kind == "ResourceClaim" and get_path(claim.owner.data, "metadata", "deletionTimestamp")
    return f'resourceclaim "{claim.owner.name}" is being deleted' if deleted else ""


def _broken(claim: Claim, tester: SelectorTester) -> str:
    """What the API server refuses: such a claim never exists."""
    if not is_served(claim.owner.api_version):
        return f"{claim.owner.kind} {claim.owner.name!r}: no API server serves {claim.owner.api_version} any more"
    for path, message, _ in claim_problems(claim):
        return f"{claim.owner.kind} {claim.owner.name!r} ({claim.owner.position(path)}): {message}"
    for request in claim.requests:
        for selector in request.selectors:
            error, _ = tester.problems(selector.text)
            if error:
                place = selector.owner.position(selector.path)
                first = error.splitlines()[0]
                return f"{claim.owner.kind} {claim.owner.name!r} ({place}): {dotted(selector.path)}: {first}"
    return ""


def _no_admin(manifests: Manifests, claim: Claim) -> str:
    """Admin access is for namespaces that are labelled for it."""
    if not any(request.fields.get("adminAccess") is True for request in claim.requests):
        return ""
    space = next((o for o in manifests.by_kind.get("Namespace", ()) if o.name == claim.owner.namespace), None)
    if space is None or as_strings(get_path(space.data, "metadata", "labels")).get(ADMIN_ACCESS_LABEL) == "true":
        return ""
    where = f'namespace {claim.owner.namespace} needs the label {ADMIN_ACCESS_LABEL}: "true"'
    return f"adminAccess: {where}; the API server refuses the claim without it"
