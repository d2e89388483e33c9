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
    Made,
    MadeService,
    PodSet,
    Skipped,
    count_of,
    numbered,
    pods_at,
    spec_of,
    suspended,
    workload,
)
from dranet.advise.manifests.workload_kinds.builtin import index_labels, job_labels
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
_TRAINING = "training.kubeflow.org/"
_TRAINER = "trainer.kubeflow.org"
_INDEX = f"{_TRAINING}replica-index"
_STEP = f"{_TRAINER}/trainjob-ancestor-step"
_RUNTIME_JOBS: FieldPath = ("spec", "template", "spec")


@workload("kubeflow.org", *_ROLES)
def training_job(obj: Object, find: FindObject) -> Iterator[Made]:
    """One kind per framework: ``job-role-index``. The launcher of an MPIJob is a Job and has no index."""
    key, spec = _ROLES[obj.kind], spec_of(obj)
    note = suspended(as_dict(spec.get("runPolicy")))
    if obj.kind == "MPIJob":
        yield MadeService(obj, {f"{_TRAINING}operator-name": "mpi-operator", f"{_TRAINING}job-name": obj.name})
    for role, raw in as_dict(spec.get(key)).items():
        name, count = f"{obj.name}-{role.lower()}", count_of(as_dict(raw).get("replicas"), 1)
        launcher = obj.kind == "MPIJob" and role == "Launcher"
        names = (name,) * min(count, 1) if launcher else numbered(name, count)
        padded = int(spec.get("runLauncherAsWorker") is True and not launcher)
        yield from pods_at(
            obj,
            ("spec", key, role, "template", "spec"),
            names,
            role.lower(),
            note=note,
            labels=_role_labels(obj, role) | (job_labels(name) if launcher else {}),
            pod_labels={} if launcher else {n: {_INDEX: str(i + padded)} for i, n in enumerate(names)},
        )


def _role_labels(obj: Object, role: str) -> dict[str, str]:
    """The MPI Operator and the training operator add the same labels, except the one of the role."""
    mpi = obj.kind == "MPIJob"
    operator = "mpi-operator" if mpi else f"{obj.kind.lower()}-controller"
    labels = {f"{_TRAINING}operator-name": operator, f"{_TRAINING}job-name": obj.name}
    if mpi:
        return {**labels, f"{_TRAINING}job-role": role.lower()}
    leads = role == "Master" or role == "Chief"
    leading = {f"{_TRAINING}job-role": "master"} if leads else {}
    return {**labels, f"{_TRAINING}replica-type": role.lower(), **leading}


@workload(_TRAINER, "TrainJob")
def train_job(obj: Object, find: FindObject) -> Iterator[Made]:
    ref = as_dict(spec_of(obj).get("runtimeRef"))
    kind, name = str(ref.get("kind") or "ClusterTrainingRuntime"), str(ref.get("name") or "")
    runtime = find(kind, obj.namespace, name)
    if runtime is None:
        yield Skipped(obj, f"its pods are made from {kind} {name!r}, which is in none of the files: add it with -f")
        return
    for made in replicated_jobs(obj, runtime, _RUNTIME_JOBS, suspended(spec_of(obj))):
        yield _with_overrides(obj, made) if isinstance(made, PodSet) else made


@workload(_TRAINER, "ClusterTrainingRuntime", "TrainingRuntime")
def training_runtime(obj: Object, find: FindObject) -> Iterator[Made]:
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
    job = f"{obj.name}-{pods.role}-0"
    names = numbered(job, count_of(trainer.get("numNodes"), default))
    labels = {
        name: {**job_labels(job), **own} for name, own in index_labels({"completionMode": "Indexed"}, names).items()
    }
    return replace(
        pods, names=names, pod_labels=labels, spec=_with_resources(spec, as_dict(trainer.get("resourcesPerNode")))
    )


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
