"""Inference servers: Dynamo's graphs, Grove's PodCliqueSet, DisaggregatedSet, and KServe's LLMInferenceService.

Roles of a server (prefill, decode) exchange requests, not collectives: each group of pods that serves one model replica
is a job of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from dranet.advise.manifests.objects import Object
from dranet.advise.manifests.workload_kinds.base import (
    FindObject,
    Made,
    PodSet,
    Skipped,
    count_of,
    join_notes,
    numbered,
    pods_at,
    spec_of,
    workload,
)
from dranet.advise.manifests.workload_kinds.jobset import leader_worker_set
from dranet.advise.manifests.yaml_nodes import FieldPath
from dranet.core.untyped import as_dict, as_list, as_strings, get_path

_DYNAMO = "nvidia.com/dynamo-"
_GROVE_NOTE = "Grove schedules its cliques together; planned one pod after the other"


@workload("nvidia.com", "DynamoGraphDeployment")
def dynamo_graph(obj: Object, find: FindObject) -> Iterator[Made]:
    """Pods of Grove's cliques: ``graph-0-component``, or a leader and workers for each replica of several nodes."""
    spec = spec_of(obj)
    for i, one in enumerate(map(as_dict, as_list(spec.get("components")))):
        path: FieldPath = ("spec", "components", i, "podTemplate", "spec")
        yield from _component(obj, str(one.get("name") or i), one, path, as_dict(get_path(obj.data, *path)))
    for name, raw in as_dict(spec.get("services")).items():
        service = as_dict(raw)
        yield from _component(obj, name, service, ("spec", "services", name, "extraPodSpec"), _service_pod(service))


def _component(obj: Object, name: str, one: dict[str, Any], path: FieldPath, pod: dict[str, Any]) -> Iterator[PodSet]:
    replicas, nodes = count_of(one.get("replicas"), 1), count_of(get_path(one, "multinode", "nodeCount"), 1)
    labels = as_strings(as_dict(one.get("labels"))) | _component_labels(obj, name, one)
    base = f"{obj.name}-0-{name.lower()}"
    for i in range(replicas):
        names = (f"{base}-{i}",) if nodes < 2 else (f"{base}-{i}-ldr", *numbered(f"{base}-{i}-wkr", nodes - 1))
        yield PodSet(obj, obj, path, names, pod, name, added_labels=labels, job=f"{name} {i}")


def _component_labels(obj: Object, name: str, one: dict[str, Any]) -> dict[str, str]:
    kind = str(one.get("type") or one.get("componentType") or "")
    role = str(one.get("subComponentType") or (kind if kind in {"prefill", "decode"} else ""))
    made = {"graph-deployment-name": obj.name, "component": name, "component-type": kind, "sub-component-type": role}
    return {f"{_DYNAMO}{key}": value for key, value in made.items() if value}


def _service_pod(service: dict[str, Any]) -> dict[str, Any]:
    """The pod of a v1alpha1 service: its extraPodSpec with the container ``main`` and the service's resources."""
    extra = as_dict(service.get("extraPodSpec"))
    main = as_dict(extra.get("mainContainer"))
    own, wanted = as_dict(main.get("resources")), as_dict(service.get("resources"))
    resources = {
        **{key: {**_amounts(as_dict(wanted.get(key))), **as_dict(own.get(key))} for key in ("limits", "requests")},
        "claims": [*as_list(own.get("claims")), *as_list(wanted.get("claims"))],
    }
    containers = [{"name": "main", **main, "resources": resources}, *as_list(extra.get("containers"))]
    return {**{key: value for key, value in extra.items() if key != "mainContainer"}, "containers": containers}


def _amounts(wanted: dict[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in wanted.items() if key in {"cpu", "memory"}}
    gpus = {str(wanted.get("gpuType") or "nvidia.com/gpu"): wanted["gpu"]} if "gpu" in wanted else {}
    return {**plain, **gpus, **as_dict(wanted.get("custom"))}


@workload("grove.io", "PodCliqueSet")
def pod_clique_set(obj: Object, find: FindObject) -> Iterator[Made]:
    """Cliques, each in every replica of the set, and of its scaling group if it is in one."""
    template = as_dict(spec_of(obj).get("template"))
    groups = {
        str(name): as_dict(group)
        for group in as_list(template.get("podCliqueScalingGroups"))
        for name in as_list(as_dict(group).get("cliqueNames"))
    }
    note = join_notes(_GROVE_NOTE, _operator_claims(template))
    for i, one in enumerate(map(as_dict, as_list(template.get("cliques")))):
        name, path = str(one.get("name") or i), ("spec", "template", "cliques", i, "spec", "podSpec")
        pods = count_of(as_dict(one.get("spec")).get("replicas"), 1)
        for base in _cliques(obj, name, groups.get(name)):
            yield from pods_at(obj, path, numbered(base, pods), name, note=note, labels=_clique_labels(obj, base))


def _cliques(obj: Object, name: str, group: Mapping[str, Any] | None) -> Iterator[str]:
    for i in range(count_of(spec_of(obj).get("replicas"), 1)):
        if group is None:
            yield f"{obj.name}-{i}-{name}"
        else:
            for j in range(count_of(group.get("replicas"), 1)):
                yield f"{obj.name}-{i}-{group.get('name')}-{j}-{name}"


def _clique_labels(obj: Object, clique: str) -> dict[str, str]:
    return {"app.kubernetes.io/part-of": obj.name, "grove.io/podclique": clique}


def _operator_claims(template: dict[str, Any]) -> str:
    shared = [template, *as_list(template.get("cliques")), *as_list(template.get("podCliqueScalingGroups"))]
    if any(as_dict(part).get("resourceSharing") or as_dict(part).get("resourceClaimTemplates") for part in shared):
        return "the ResourceClaims of resourceSharing, which the operator creates, are not planned"
    return ""


@workload("disaggregatedset.x-k8s.io", "DisaggregatedSet")
def disaggregated_set(obj: Object, find: FindObject) -> Iterator[Made]:
    """A LeaderWorkerSet for each slice and role."""
    spec = spec_of(obj)
    placement = as_dict(spec.get("placementPolicy")).get("type")
    note = f"placementPolicy {placement} is not considered" if placement else ""
    for part in range(count_of(spec.get("slices"), 1)):
        for i, role in enumerate(map(as_dict, as_list(spec.get("roles")))):
            name, base = str(role.get("name") or i), ("spec", "roles", i)
            for one in _worker_set(obj, find, f"{obj.name}-{part}-{name}", as_dict(role.get("spec"))):
                if isinstance(one, PodSet):
                    job = join_notes(f"{name} {part}", one.job)
                    one = replace(one, path=(*base, *one.path), role=f"{name} {one.role}", note=note, job=job)
                yield one


def _worker_set(obj: Object, find: FindObject, name: str, spec: dict[str, Any]) -> Iterator[Made]:
    """What the LeaderWorkerSet controller makes of a set that an operator creates, as pods of the operator's object."""
    metadata = {"name": name, "namespace": obj.namespace}
    made = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata, "spec": spec}
    for one in leader_worker_set(Object(made, obj.file, obj.locate, obj.source), find):
        yield replace(one, owner=obj, source=obj) if isinstance(one, PodSet) else replace(one, owner=obj)


@workload("serving.kserve.io", "LLMInferenceService")
def llm_inference_service(obj: Object, find: FindObject) -> Iterator[Made]:
    """Deployments, or LeaderWorkerSets where workers are given. The templates are pod specs without ``spec``."""
    bases = [str(as_dict(ref).get("name")) for ref in as_list(spec_of(obj).get("baseRefs"))]
    note = f"what LLMInferenceServiceConfig {', '.join(bases)} adds is not considered" if bases else ""
    spec = spec_of(obj)
    if not as_dict(spec.get("template")) and not as_dict(spec.get("prefill")):
        yield Skipped(obj, "has no template of its own: KServe's default LLMInferenceServiceConfigs have its pods")
    for part, base, suffix in ((spec, ("spec",), ""), (as_dict(spec.get("prefill")), ("spec", "prefill"), "-prefill")):
        yield from _llm_pods(obj, find, part, base, suffix, note)


def _llm_pods(
    obj: Object, find: FindObject, part: dict[str, Any], base: FieldPath, suffix: str, note: str
) -> Iterator[Made]:
    replicas, role = count_of(part.get("replicas"), 1), suffix.strip("-") or "decode"
    if not as_dict(part.get("worker")):
        for i, name in enumerate(numbered(f"{obj.name}-kserve{suffix}", replicas)):
            yield from pods_at(obj, (*base, "template"), (name,), role, note=note, job=f"{role} {i}")
        return
    templates = {"leaderTemplate": {"spec": part.get("template")}, "workerTemplate": {"spec": part["worker"]}}
    spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": _group_size(part), **templates}}
    for one in _worker_set(obj, find, f"{obj.name}-kserve-mn{suffix}", spec):
        if isinstance(one, PodSet):
            where = (*base, "template" if "leaderTemplate" in one.path else "worker")
            one = replace(one, path=where, role=f"{role} {one.role}", note=note, job=join_notes(role, one.job))
        yield one


def _group_size(part: dict[str, Any]) -> int:
    """Pods of one replica: data parallelism over that of one pod, else pipeline parallelism."""
    parallelism = as_dict(part.get("parallelism"))
    data, local = count_of(parallelism.get("data"), 0), count_of(parallelism.get("dataLocal"), 1)
    return max(data // max(local, 1) or count_of(parallelism.get("pipeline"), 1), 1)
