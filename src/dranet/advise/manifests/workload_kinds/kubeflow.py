"""Kubeflow: the jobs of its training operator, MPIJob and TrainJob.

The pod spec of a TrainJob is in another object, the runtime it names. `source` is the runtime, so that findings point
at a line that exists; `spec` is what the pods get. The job that the runtime labels as ``trainer`` takes the number of
nodes and the resources from the TrainJob.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from dranet.advise.manifests.objects import Object
from dranet.advise.manifests.workload_kinds.base import (
    FindObject,
    PodSet,
    Skipped,
    count_of,
    numbered,
    pods_at,
    spec_of,
    suspended,
    workload,
)
from dranet.advise.manifests.workload_kinds.jobset import replicated_jobs
from dranet.advise.manifests.yaml_nodes import FieldPath
from dranet.core.untyped import as_dict, as_list, get_path

_ROLES = {
    "MPIJob": "mpiReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}
_TRAINER = "trainer.kubeflow.org"
_STEP = f"{_TRAINER}/trainjob-ancestor-step"
_RUNTIME_JOBS: FieldPath = ("spec", "template", "spec")


@workload("kubeflow.org", *_ROLES)
def training_job(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    """One kind per framework: ``job-role-index``. The launcher of an MPIJob is a Job and has no index."""
    key, spec = _ROLES[obj.kind], spec_of(obj)
    note = suspended(as_dict(spec.get("runPolicy")))
    for role, raw in as_dict(spec.get(key)).items():
        name, count = f"{obj.name}-{role.lower()}", count_of(as_dict(raw).get("replicas"), 1)
        launcher = obj.kind == "MPIJob" and role == "Launcher"
        names = (name,) * min(count, 1) if launcher else numbered(name, count)
        yield from pods_at(obj, ("spec", key, role, "template", "spec"), names, role.lower(), note=note)


@workload(_TRAINER, "TrainJob")
def train_job(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    ref = as_dict(spec_of(obj).get("runtimeRef"))
    kind, name = str(ref.get("kind") or "ClusterTrainingRuntime"), str(ref.get("name") or "")
    runtime = find(kind, obj.namespace, name)
    if runtime is None:
        yield Skipped(obj, f"its pods are made from {kind} {name!r}, which is in none of the files: add it with -f")
        return
    for pods in replicated_jobs(obj, runtime, _RUNTIME_JOBS, suspended(spec_of(obj))):
        yield _with_overrides(obj, pods)


@workload(_TRAINER, "ClusterTrainingRuntime", "TrainingRuntime")
def training_runtime(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    yield Skipped(obj, "makes pods only for a TrainJob that names it")


def _with_overrides(obj: Object, pods: PodSet) -> PodSet:
    """The pods with the TrainJob's overrides: later overrides win, and its trainer wins over all."""
    spec = pods.spec
    for key in ("podTemplateOverrides", "podSpecOverrides"):
        for one in map(as_dict, as_list(spec_of(obj).get(key))):
            if any(as_dict(target).get("name") == pods.role for target in as_list(one.get("targetJobs"))):
                overrides = one if key == "podSpecOverrides" else as_dict(one.get("spec"))
                spec = {**spec, **{k: v for k, v in overrides.items() if k != "targetJobs"}}
    if not _is_trainer(pods):
        return replace(pods, spec=spec)
    trainer = as_dict(spec_of(obj).get("trainer"))
    default = count_of(get_path(pods.source.data, "spec", "mlPolicy", "numNodes"), 1)
    names = numbered(f"{obj.name}-{pods.role}-0", count_of(trainer.get("numNodes"), default))
    return replace(pods, names=names, spec=_with_resources(spec, as_dict(trainer.get("resourcesPerNode"))))


def _is_trainer(pods: PodSet) -> bool:
    job = pods.path[:-3]  # .../template of the replicated job
    labels = as_dict(get_path(pods.source.data, *job, "metadata", "labels"))
    return str(labels.get(_STEP, "trainer" if pods.role == "node" else "")) == "trainer"


def _with_resources(spec: dict[str, Any], resources: dict[str, Any]) -> dict[str, Any]:
    """The trainer's resources go to the container named ``node``, or to the only one."""
    containers = [as_dict(raw) for raw in as_list(spec.get("containers"))]
    if not resources or not containers:
        return spec
    chosen = next((i for i, one in enumerate(containers) if one.get("name") == "node"), 0)
    own = as_dict(containers[chosen].get("resources"))
    containers[chosen] = {**containers[chosen], "resources": {**own, **resources}}
    return {**spec, "containers": containers}
