"""A user's own workload with aligned devices: its file with claims added, planned before it is shown.

Every pod template that asks for GPUs or NICs gets one claim for both. GPUs of a device plugin are removed, because a
device plugin and a claim would each hand out GPUs, and only those of a claim can be aligned. The claims that the new
one replaces are removed with their templates; their driver configuration is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import yaml
from msgspec.structs import replace

from dranet.advise.manifests import Claim, Manifests, Object, PodSet, containers, group_of, is_gpu_resource, read_text
from dranet.advise.manifests.yaml_edit import append, put, remove, split_documents
from dranet.advise.manifests.yaml_nodes import FieldPath
from dranet.advise.plan.hardware import Hardware
from dranet.advise.plan.planning import Plan, plan
from dranet.advise.plan.summary import verdict
from dranet.advise.suggest.fleet import suggest_fleet
from dranet.advise.suggest.rails import suggest_same_rails
from dranet.advise.suggest.suggestion import compute_domain, machine_kinds
from dranet.core.errors import InvalidInput, did_you_mean
from dranet.core.names import DRIVER_NAME
from dranet.core.untyped import as_dict, as_dicts, as_list, get_path
from dranet.machines.distance import Distance

_LIBRARIES = {"MPIJob": ["nccl", "mpi"], "RayCluster": ["nccl", "gloo"], "RayJob": ["nccl", "gloo"]}
_PRIVILEGED = {"IPC_LOCK", "CAP_IPC_LOCK", "ALL"}
_INDEPENDENT = {"Deployment", "ReplicaSet", "ReplicationController", "DaemonSet"}
_SHARED_VPC = re.compile(r"gpu\d+rdma\d+")
"""NICs that GKE numbers: their VPC may route between the subnets of the rails."""
_RAILS_OPEN = (
    "# dranet: ignore[rails-not-forced] pods may get different rails; for isolated rails: suggest --same-rails\n"
)
CLAIM = "devices"
"""The pods' own name for the claim."""


class Rewritten(msgspec.Struct, frozen=True):
    """Files with aligned workloads, and the plan of the result."""

    before: str
    after: str
    plan: Plan


class _Document(msgspec.Struct):
    """One YAML document of the input."""

    file: str
    text: str
    objects: list[Object]


class _Demand(msgspec.Struct, frozen=True):
    """What the pods of one template need, and the claims that the new one replaces."""

    pods: PodSet
    gpus: int
    nics: int
    replaced: tuple[Claim, ...]


class _Template(msgspec.Struct, frozen=True):
    """A ResourceClaimTemplate as text, and comments about it."""

    name: str
    text: str


def align_workloads(
    texts: Sequence[tuple[str, str]],
    existing: Sequence[Object],
    hardware: Hardware,
    counts: tuple[int | None, int | None] = (None, None),
    kubernetes: tuple[int, int] = (1, 36),
) -> Rewritten:
    """The files (name and text) with claims for aligned devices. ``counts`` are GPUs and NICs of a pod, if given."""
    documents = [one for file, text in texts for one in _documents(file, text)]
    manifests = Manifests([obj for one in documents for obj in one.objects], existing)
    demands = _once([found for pods in manifests.pods if (found := _demand(manifests, pods, hardware, counts))])
    if not demands:
        raise InvalidInput(_no_demand(manifests, texts))
    before = "".join(one.text for one in documents)
    options = [_options(one, manifests, hardware, existing) for one in demands]
    tried = [_planned(documents, demands, chosen, existing, hardware, kubernetes) for chosen in _choices(options)]
    best = min(tried, key=lambda one: (len(one.plan.unschedulable) + len(one.plan.unknown), _worst(one.plan)))
    return Rewritten(before, f"# {verdict(best.plan)}\n{best.after}", best.plan)


def _documents(file: str, text: str) -> Iterator[_Document]:
    """The documents of a file; each keeps its ``---`` line."""
    if text and not text.endswith("\n"):
        text += "\n"
    for part in split_documents(text):
        objects, problems = read_text(part, file)
        fatal = [problem for problem in problems if problem.fatal]
        if fatal:
            raise InvalidInput(str(fatal[0]))
        yield _Document(file, part, objects)


def _no_demand(manifests: Manifests, texts: Sequence[tuple[str, str]]) -> str:
    files = ", ".join(file for file, _ in texts)
    if not manifests.pods:
        return f"{files}: no workload in the input: name the file of a Job, MPIJob, RayCluster, JobSet or Deployment"
    return f"{files}: no pod requests a GPU or a NIC; set their numbers with --gpus and --nics"


def _demand(
    manifests: Manifests, pods: PodSet, hardware: Hardware, counts: tuple[int | None, int | None]
) -> _Demand | None:
    replaced = tuple(claim for claim in _claims(manifests, pods) if _kinds(manifests, claim) <= {"gpu", "nic"})
    machine = max(machine_kinds(hardware), key=lambda one: (len(one.gpus), len(one.nics)))
    gpus = sum(pods.gpu_limits.values()) + _count(manifests, replaced, "gpu", len(machine.gpus))
    nics = _count(manifests, replaced, "nic", len(machine.nics))
    if not gpus and not nics:
        only = len(manifests.pods) == 1 and counts != (None, None)
        return _Demand(pods, counts[0] or 0, counts[1] or 0, replaced) if only else None
    gpus = gpus if counts[0] is None else counts[0]
    nics = (nics or min(gpus, len(machine.nics))) if counts[1] is None else counts[1]
    return _Demand(pods, gpus, nics, replaced)


def _once(demands: Sequence[_Demand]) -> list[_Demand]:
    """One for each pod template: some kinds make several sets of pods from one."""
    found: dict[tuple[int, FieldPath], _Demand] = {}
    for one in demands:
        first = found.setdefault((id(one.pods.source), one.pods.path), one)
        if first is not one:
            names = (*first.pods.names, *one.pods.names)
            found[id(one.pods.source), one.pods.path] = replace(first, pods=replace(first.pods, names=names))
    return list(found.values())


def _claims(manifests: Manifests, pods: PodSet) -> Iterator[Claim]:
    """The claims of the pods; all must be in the input, or what they request is not known."""
    for i, ref in enumerate(pods.claims):
        claim = manifests.claim_of(pods, ref)
        if claim is None:
            name = ref.template or ref.claim or ""
            kind = "ResourceClaimTemplate" if ref.template else "ResourceClaim"
            known = [obj.name for obj in manifests.by_kind.get(kind, ())]
            where = pods.source.position((*pods.path, "resourceClaims", i))
            hint = did_you_mean(name, known) or "; add its file with -f, so that suggest can replace it"
            raise InvalidInput(f"{where}: no {kind} {name!r} in the input{hint}")
        yield claim


def _kinds(manifests: Manifests, claim: Claim) -> set[str]:
    return {_kind(manifests, request.device_class) for request in claim.requests}


def _kind(manifests: Manifests, device_class: str) -> str:
    """``nic``, ``gpu`` or ``other``, by the driver that the class selects."""
    text = " ".join((device_class, *manifests.class_selectors.get(device_class, ())))
    if DRIVER_NAME in text or device_class.startswith("dranet"):
        return "nic"
    return "gpu" if re.search(r"\bgpu\.(nvidia|amd|intel)\.com", text) else "other"


def _count(manifests: Manifests, claims: Sequence[Claim], kind: str, every: int) -> int:
    """Devices of one kind; alternatives of one request count once."""
    requests = {(claim.owner.name, r.parent): r for claim in claims for r in claim.requests}
    mine = [r for r in requests.values() if _kind(manifests, r.device_class) == kind]
    return sum(every if request.mode == "All" else request.count for request in mine)


def _options(demand: _Demand, manifests: Manifests, hardware: Hardware, existing: Sequence[Object]) -> list[_Template]:
    """The templates that may be used, the preferred first; several where devices are chosen by NUMA node."""
    found = suggest_fleet(hardware, demand.gpus, demand.nics)
    parts = [part.removeprefix("---\n") for part in split_documents(found.manifest)]
    if (is_isolated := _open_rails(demand, hardware)) is not None:
        forced = _on_same_rails(demand, hardware, existing) if is_isolated else []
        parts = [*forced, *(_RAILS_OPEN + part for part in parts)]
    taken = {claim.owner.name for claim in manifests.all_claims} - {one.owner.name for one in demand.replaced}
    return [_completed(part, demand, taken) for part in parts]


def _open_rails(demand: _Demand, hardware: Hardware) -> bool | None:
    """Whether the rails that pods of one job may get are isolated; None if all get the same."""
    if not demand.nics or len(demand.pods.names) < 2 or demand.pods.owner.kind in _INDEPENDENT:
        return None
    kinds = machine_kinds(hardware)
    nics = [nic for one in kinds for nic in ([nic for nic in one.nics if nic.rdma] or one.nics) if nic.rail]
    if len({nic.rail for nic in nics}) <= demand.nics:
        return None
    return not all(_SHARED_VPC.fullmatch(nic.interface) for nic in nics)


def _on_same_rails(demand: _Demand, hardware: Hardware, existing: Sequence[Object]) -> list[str]:
    """A template for the first rails that are free on as many nodes as the job has pods; none if there are not."""
    try:
        pods = len(demand.pods.names)
        found = suggest_same_rails(Manifests([], existing), hardware, demand.gpus, demand.nics, pods)
    except InvalidInput:
        return []
    return [found[0].manifest]


def _completed(text: str, demand: _Demand, taken: set[str]) -> _Template:
    """A suggested template with the namespace of the workload and the configuration of the claims it replaces."""
    name = str(yaml.safe_load(text)["metadata"]["name"])
    if name in taken:
        text, name = put(text, ("metadata", "name"), f"{name}-aligned"), f"{name}-aligned"
    namespace = as_dict(demand.pods.owner.data.get("metadata")).get("namespace")
    if namespace:
        text = put(text, ("metadata", "namespace"), namespace)
    if config := list(_configs(text, demand)):
        text = put(text, ("spec", "spec", "devices", "config"), config)
    return _Template(name, text)


def _configs(text: str, demand: _Demand) -> Iterator[dict[str, Any]]:
    """For the NICs: what the replaced claims had, and settings for the libraries that such a workload uses."""
    requests = as_dicts(get_path(yaml.safe_load(text), "spec", "spec", "devices", "requests"))
    names = [str(one["name"]) for one in requests]
    nics = [name for name in names if name.startswith("nic")]
    parameters: dict[str, Any] = {}
    for claim in demand.replaced:
        for config in (*claim.configs, *as_dicts(get_path(claim.owner.data, *claim.base, "config"))):
            opaque = as_dict(config.get("opaque"))
            if opaque.get("driver") == DRIVER_NAME:
                parameters |= as_dict(opaque.get("parameters"))
            elif opaque:
                yield {"requests": [name for name in names if name not in nics], "opaque": opaque}
    if nics and demand.gpus:
        parameters.setdefault("environment", _LIBRARIES.get(demand.pods.owner.kind, ["nccl"]))
    if nics and parameters:
        yield {"requests": nics, "opaque": {"driver": DRIVER_NAME, "parameters": parameters}}


def _choices(options: list[list[_Template]]) -> Iterator[list[_Template]]:
    """Which template each set of pods uses: the first one of each, or the second one of each, ..."""
    for i in range(max(map(len, options))):
        yield [one[min(i, len(one) - 1)] for one in options]


def _planned(
    documents: Sequence[_Document],
    demands: Sequence[_Demand],
    chosen: Sequence[_Template],
    existing: Sequence[Object],
    hardware: Hardware,
    kubernetes: tuple[int, int],
) -> Rewritten:
    texts = [one.text for one in documents]
    added = dict.fromkeys(template.text for template in chosen)
    for demand, template in zip(demands, chosen, strict=True):
        domain = _domain(demand, demands, hardware)
        where = next(i for i, one in enumerate(documents) if demand.pods.source in one.objects)
        channel = _domain_channel(domain)
        texts[where] = _rewritten(texts[where], documents[where], demand, template.name, channel)
        added |= {domain.removeprefix("---\n"): None} if domain else {}
    replaced = {id(claim.owner) for demand in demands for claim in demand.replaced}
    kept = [
        text
        for text, one in zip(texts, documents, strict=True)
        if not (one.objects and all(id(obj) in replaced and _unused(obj, demands, documents) for obj in one.objects))
    ]
    after = "".join([_joined(kept), *(f"---\n{text}" for text in added)])
    found = Manifests(read_text(after, "<suggested>")[0], existing)
    return Rewritten("", after, plan(found, hardware, kubernetes))


def _domain(demand: _Demand, demands: Sequence[_Demand], hardware: Hardware) -> str:
    """One ComputeDomain for all pods of a workload that has several."""
    owner = demand.pods.owner
    job = [one for one in demands if one.pods.owner is owner]
    if sum(len(one.pods.names) for one in job) < 2:
        return ""
    text = compute_domain(hardware, max(one.gpus for one in job), 0, owner.name)
    namespace = as_dict(owner.data.get("metadata")).get("namespace")
    return put(text, ("metadata", "namespace"), namespace) if text and namespace else text


def _joined(texts: Sequence[str]) -> str:
    """Documents, each but the first with its separator."""
    return "".join(text if i == 0 or text.startswith("---") else f"---\n{text}" for i, text in enumerate(texts))


def _unused(obj: Object, demands: Sequence[_Demand], documents: Sequence[_Document]) -> bool:
    """Whether only pods that get another claim used this one."""
    changed = {(id(one.pods.source), one.pods.path) for one in demands}
    every = Manifests([found for one in documents for found in one.objects]).pods
    others = [pods for pods in every if (id(pods.source), pods.path) not in changed]
    return not any(obj.name in {ref.template, ref.claim} for pods in others for ref in pods.claims)


def _domain_channel(domain: str) -> str:
    if not domain:
        return ""
    return str(get_path(yaml.safe_load(domain), "spec", "channel", "resourceClaimTemplate", "name"))


def _rewritten(text: str, document: _Document, demand: _Demand, template: str, channel: str) -> str:
    """The document with the claim in one pod template."""
    base = (*_prefix(document, demand.pods.source), *demand.pods.path)
    spec = demand.pods.spec
    users = list(_users(demand))
    dropped = {ref.name for ref, claim in zip(demand.pods.claims, _found(demand), strict=True) if claim}
    claims = [(CLAIM, template), *([("channel", channel)] if channel else [])]
    for name, of in claims:
        text = append(text, (*base, "resourceClaims"), {"name": name, "resourceClaimTemplateName": of})
    for group, i, container in users:
        for name, _ in claims:
            text = append(text, (*_resources_path(demand, base, group, i), "claims"), {"name": name})
        if demand.nics and not _may_lock(container):
            where = (*_container_path(base, group, i), "securityContext", "capabilities", "add")
            text = append(text, where, "IPC_LOCK")
    # The old entries go last, so that the new ones take their place.
    text = _without_plugin(_without_claims(text, base, demand, dropped), base, spec)
    return _with_ray_gpus(text, base, demand)


_DYNAMO_POD = "extraPodSpec"
"""The pod of a service of a v1alpha1 DynamoGraphDeployment. Its first container is ``mainContainer``; the service has
the resources of that container, with GPUs as ``gpu``."""


def _container_path(base: FieldPath, group: str, i: int) -> FieldPath:
    if base[-1] != _DYNAMO_POD or group != "containers":
        return (*base, group, i)
    return (*base, "mainContainer") if i == 0 else (*base, group, i - 1)


def _resources_path(demand: _Demand, base: FieldPath, group: str, i: int) -> FieldPath:
    """Where the resources of a container are; those of a Dynamo service replace those of its main container."""
    service = base[-1] == _DYNAMO_POD and group == "containers" and i == 0
    if service and "resources" in as_dict(get_path(demand.pods.source.data, *demand.pods.path[:-1])):
        return (*base[:-1], "resources")
    return (*_container_path(base, group, i), "resources")


def _found(demand: _Demand) -> list[bool]:
    names = {claim.owner.name for claim in demand.replaced}
    return [bool({ref.template, ref.claim} & names) for ref in demand.pods.claims]


def _prefix(document: _Document, obj: Object) -> FieldPath:
    """Where an object is in its document: an item of a List, or the document itself."""
    return () if len(document.objects) == 1 else ("items", document.objects.index(obj))


def _users(demand: _Demand) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Containers that use the devices: those with GPUs or with a replaced claim, else the first one."""
    dropped = {ref.name for ref, is_replaced in zip(demand.pods.claims, _found(demand), strict=True) if is_replaced}
    every = [one for one in containers(demand.pods.spec) if one[0] == "containers"]
    found = [one for one in every if _plugin_keys(one[2]) or dropped & set(_named(one[2]))]
    yield from found or every[:1]


def _named(container: dict[str, Any]) -> list[str]:
    return [str(one.get("name")) for one in as_dicts(get_path(container, "resources", "claims"))]


def _plugin_keys(container: dict[str, Any]) -> list[tuple[str, str]]:
    """GPUs of a device plugin: limits or requests, and the resource."""
    resources = as_dict(container.get("resources"))
    every = [(kind, name) for kind in ("limits", "requests") for name in as_dict(resources.get(kind))]
    return [(kind, name) for kind, name in every if is_gpu_resource(name)]


def _without_plugin(text: str, base: FieldPath, spec: dict[str, Any]) -> str:
    for group, i, container in containers(spec):
        for kind, name in _plugin_keys(container):
            text = remove(text, (*_container_path(base, group, i), "resources", kind, name))
            if base[-1] == _DYNAMO_POD and group == "containers" and i == 0:
                limits = (*base[:-1], "resources", kind)
                for path in ((*limits, "gpu"), (*limits, "gpuType"), (*limits, "custom", name)):
                    text = remove(text, path)
    return text


def _without_claims(text: str, base: FieldPath, demand: _Demand, dropped: set[str]) -> str:
    spec = demand.pods.spec
    for group, i, container in containers(spec):
        for j in reversed(range(len(_named(container)))):
            if _named(container)[j] in dropped:
                text = remove(text, (*_resources_path(demand, base, group, i), "claims", j))
    entries = as_list(spec.get("resourceClaims"))
    for j in reversed(range(len(entries))):
        if as_dict(entries[j]).get("name") in dropped:
            text = remove(text, (*base, "resourceClaims", j))
    return text


def _may_lock(container: dict[str, Any]) -> bool:
    security = as_dict(container.get("securityContext"))
    added = as_list(as_dict(security.get("capabilities")).get("add"))
    return security.get("privileged") is True or bool(_PRIVILEGED & set(map(str, added)))


def _with_ray_gpus(text: str, base: FieldPath, demand: _Demand) -> str:
    """KubeRay derives the number of GPUs from the limits of a device plugin, which are removed."""
    group = get_path(demand.pods.source.data, *demand.pods.path[:-2])
    if group_of(demand.pods.owner) != "ray.io" or not demand.gpus or "num-gpus" in as_dict(group.get("rayStartParams")):
        return text
    return put(text, (*base[:-2], "rayStartParams", "num-gpus"), str(demand.gpus))


def _worst(found: Plan) -> Distance:
    return max((one.quality.alignment.worst for one in found.pods if one.quality.alignment.pairs), default=Distance.PIX)


def pod_snippet(manifest: str, gpus: int, nics: int) -> str:
    """What a pod needs to use the first template of a manifest, as comments."""
    name = re.search(r"^  name: (.+)$", manifest, re.MULTILINE)
    lines = [
        "In the pod, and then without nvidia.com/gpu in its resources:",
        "spec:",
        "  resourceClaims:",
        f"  - name: {CLAIM}",
        f"    resourceClaimTemplateName: {name[1] if name else ''}",
        "  containers:",
        "  - name: worker",
        "    resources:",
        "      claims:",
        f"      - name: {CLAIM}",
        *(["    securityContext:", "      capabilities:", "        add: [IPC_LOCK]"] if nics else []),
    ]
    return "".join(f"# {line}\n" for line in (lines if gpus else ["In the pod:", *lines[1:]]))
