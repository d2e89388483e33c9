"""TrainJob: names a runtime, and its pods are those of the runtime's JobSet with a few things changed.

What would surprise: the pod spec stands in another object. `source` is the runtime, so that findings point at the line
somebody wrote; `spec` is what the pods get. The job called ``trainer`` by its label takes the TrainJob's number of
nodes and resources.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from dranet.manifests.objects import Object
from dranet.manifests.plain_values import mapping, reach, sequence
from dranet.manifests.workload_kinds.base import (
    Lookup,
    Omitted,
    PodGroup,
    count_of,
    numbered,
    spec_of,
    suspended,
    workload,
)
from dranet.manifests.workload_kinds.job_set import replicated_jobs
from dranet.manifests.yaml_nodes import FieldPath

API_GROUP = "trainer.kubeflow.org"
STEP = f"{API_GROUP}/trainjob-ancestor-step"
_JOBS: FieldPath = ("spec", "template", "spec")


@workload(API_GROUP, "TrainJob")
def pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    ref = mapping(spec_of(obj).get("runtimeRef"))
    kind, name = str(ref.get("kind") or "ClusterTrainingRuntime"), str(ref.get("name") or "")
    runtime = look(kind, obj.namespace, name)
    if runtime is None:
        yield Omitted(f"its pods are made from {kind} {name!r}, which is in none of the files: add it with -f")
        return
    for group in replicated_jobs(runtime, obj.name, _JOBS, suspended(spec_of(obj))):
        yield _changed(obj, runtime, group)


@workload(API_GROUP, "ClusterTrainingRuntime", "TrainingRuntime")
def runtime_pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    yield Omitted("makes pods only for a TrainJob that names it")


def _changed(obj: Object, runtime: Object, group: PodGroup) -> PodGroup:
    """The group with the TrainJob's own wishes: later overrides win, and its trainer wins over all."""
    spec = group.spec
    for key in ("podTemplateOverrides", "podSpecOverrides"):
        for raw in sequence(spec_of(obj).get(key)):
            one = mapping(raw)
            if any(mapping(target).get("name") == group.role for target in sequence(one.get("targetJobs"))):
                wishes = one if key == "podSpecOverrides" else mapping(one.get("spec"))
                spec = {**spec, **{k: v for k, v in wishes.items() if k != "targetJobs"}}
    if not _trains(runtime, group):
        return replace(group, spec=spec)
    trainer = mapping(spec_of(obj).get("trainer"))
    nodes = count_of(trainer.get("numNodes"), count_of(reach(runtime.data, ("spec", "mlPolicy", "numNodes")), 1))
    names = numbered(f"{obj.name}-{group.role}-0", nodes)
    return replace(group, names=names, spec=_with_resources(spec, mapping(trainer.get("resourcesPerNode"))))


def _trains(runtime: Object, group: PodGroup) -> bool:
    job = group.path[:-3]  # .../template of the replicated job
    labels = mapping(reach(runtime.data, (*job, "metadata", "labels")))
    return str(labels.get(STEP, "trainer" if group.role == "node" else "")) == "trainer"


def _with_resources(spec: dict[str, Any], resources: dict[str, Any]) -> dict[str, Any]:
    """The trainer's resources are those of the container called node, or of the only one."""
    containers = [mapping(raw) for raw in sequence(spec.get("containers"))]
    if not resources or not containers:
        return spec
    chosen = next((i for i, one in enumerate(containers) if one.get("name") == "node"), 0)
    own = mapping(containers[chosen].get("resources"))
    containers[chosen] = {**containers[chosen], "resources": {**own, **resources}}
    return {**spec, "containers": containers}
