"""Every kind of workload becomes the pods its controller would make, under the names it would give them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml

from dranet.advise.manifests import Manifests, read_text
from dranet.advise.manifests.workload_kinds import KINDS

POD = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 2}}}]}
TEMPLATE = {"spec": POD}
VERSIONS = {
    "": "v1", "apps": "apps/v1", "batch": "batch/v1", "ray": "ray.io/v1", "kubeflow": "kubeflow.org/v1",
    "jobset": "jobset.x-k8s.io/v1alpha2", "lws": "leaderworkerset.x-k8s.io/v1", "volcano": "batch.volcano.sh/v1alpha1",
    "kueue": "kueue.x-k8s.io/v1beta1", "trainer": "trainer.kubeflow.org/v1alpha1",
    "nvidia": "resource.nvidia.com/v1beta1",
}  # fmt: skip


def obj(group: str, kind: str, spec: object, name: str = "w", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": VERSIONS.get(group, group), "kind": kind, "metadata": metadata, "spec": spec, **more}


def manifests(*objects: dict[str, Any]) -> Manifests:
    return Manifests(read_text(yaml.safe_dump_all(objects), "f.yaml")[0])


def names(*objects: dict[str, Any]) -> list[str]:
    return [name for spec in manifests(*objects).pods for name in spec.names]


def notes(*objects: dict[str, Any]) -> list[str]:
    return [spec.note for spec in manifests(*objects).pods]


def skipped(*objects: dict[str, Any]) -> dict[str, str]:
    return {f"{left.owner.kind} {left.owner.name}": left.why for left in manifests(*objects).skipped}


def roles(**counts: int) -> dict[str, Any]:
    return {role: {"replicas": count, "template": TEMPLATE} for role, count in counts.items()}


JOB = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": TEMPLATE}


@pytest.mark.parametrize(
    ("group", "kind", "spec", "expected"),
    [
        ("", "Pod", POD, ["w"]),
        ("", "ReplicationController", {"replicas": 2, "template": TEMPLATE}, ["w-0", "w-1"]),
        ("apps", "StatefulSet", {"replicas": 2, "template": TEMPLATE}, ["w-0", "w-1"]),
        ("apps", "StatefulSet", {"replicas": 2, "ordinals": {"start": 5}, "template": TEMPLATE}, ["w-5", "w-6"]),
        ("apps", "Deployment", {"template": TEMPLATE}, ["w-0"]),
        ("apps", "Deployment", {"replicas": 0, "template": TEMPLATE}, []),
        ("apps", "ReplicaSet", {"replicas": 2, "template": TEMPLATE}, ["w-0", "w-1"]),
        ("batch", "Job", {"parallelism": 3, "completions": 2, "template": TEMPLATE}, ["w-0", "w-1"]),
        ("batch", "Job", {"parallelism": 2, "completions": 9, "template": TEMPLATE}, ["w-0", "w-1"]),
        ("batch", "Job", JOB, ["w-0", "w-1"]),
        ("batch", "CronJob", {"schedule": "@daily", "jobTemplate": {"spec": JOB}}, ["w-0", "w-1"]),
        (
            "jobset",
            "JobSet",
            {
                "replicatedJobs": [
                    {"name": "lead", "template": {"spec": {"template": TEMPLATE}}},
                    {"name": "work", "replicas": 2, "template": {"spec": JOB}},
                ]
            },
            ["w-lead-0-0", "w-work-0-0", "w-work-0-1", "w-work-1-0", "w-work-1-1"],
        ),
        (
            "lws",
            "LeaderWorkerSet",
            {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE}},
            ["w-0", "w-1", "w-0-1", "w-0-2", "w-1-1", "w-1-2"],
        ),
        (
            "kubeflow",
            "MPIJob",
            {"mpiReplicaSpecs": roles(Launcher=1, Worker=2)},
            ["w-launcher", "w-worker-0", "w-worker-1"],
        ),
        (
            "kubeflow",
            "PyTorchJob",
            {"pytorchReplicaSpecs": roles(Master=1, Worker=2)},
            ["w-master-0", "w-worker-0", "w-worker-1"],
        ),
        ("kubeflow", "TFJob", {"tfReplicaSpecs": roles(Chief=1, PS=1)}, ["w-chief-0", "w-ps-0"]),
        ("kubeflow", "JAXJob", {"jaxReplicaSpecs": roles(Worker=1)}, ["w-worker-0"]),
        ("kubeflow", "XGBoostJob", {"xgbReplicaSpecs": roles(Master=1)}, ["w-master-0"]),
        ("kubeflow", "PaddleJob", {"paddleReplicaSpecs": roles(Worker=1)}, ["w-worker-0"]),
        (
            "ray",
            "RayCluster",
            {
                "headGroupSpec": {"template": TEMPLATE},
                "workerGroupSpecs": [{"groupName": "g", "replicas": 2, "template": TEMPLATE}],
            },
            ["w-head", "w-g-worker-0", "w-g-worker-1"],
        ),
        ("ray", "RayJob", {"rayClusterSpec": {"headGroupSpec": {"template": TEMPLATE}}}, ["w-head", "w-submitter"]),
        (
            "ray",
            "RayJob",
            {"submissionMode": "HTTPMode", "rayClusterSpec": {"headGroupSpec": {"template": TEMPLATE}}},
            ["w-head"],
        ),
        ("ray", "RayService", {"rayClusterConfig": {"headGroupSpec": {"template": TEMPLATE}}}, ["w-head"]),
        (
            "volcano",
            "Job",
            {"tasks": [{"name": "ps", "replicas": 2, "template": TEMPLATE}, {"template": TEMPLATE}]},
            ["w-ps-0", "w-ps-1", "w-default1-0"],
        ),
        ("kueue", "Workload", {"podSets": [{"count": 2, "template": TEMPLATE}]}, ["w-main-0", "w-main-1"]),
        ("nvidia", "ComputeDomain", {"numNodes": 2}, []),
    ],
)  # fmt: skip
def test_pods_of_a_workload(group: str, kind: str, spec: dict[str, object], expected: list[str]) -> None:
    assert names(obj(group, kind, spec)) == expected


def test_every_registered_kind_has_a_case_here_or_with_the_custom_resources() -> None:
    source = inspect.getsource(inspect.getmodule(test_pods_of_a_workload))  # type: ignore[arg-type]
    source += (Path(__file__).parents[1] / "field" / "test_kinds.py").read_text()
    assert [kind for _, kind in KINDS if f'"{kind}"' not in source] == []


RUNTIME = obj(
    "trainer", "ClusterTrainingRuntime",
    {
        "mlPolicy": {"numNodes": 1},
        "template": {"spec": {"replicatedJobs": [
            {"name": "model-initializer", "template": {"spec": {"template": TEMPLATE}}},
            {
                "name": "node",
                "template": {
                    "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                    "spec": {"template": {"spec": {"containers": [{"name": "node"}]}}},
                },
            },
        ]}},
    },
    name="torch",
)  # fmt: skip


def test_a_train_job_takes_its_pods_from_its_runtime_and_its_number_from_itself() -> None:
    trainer = {"numNodes": 3, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}
    job = obj("trainer", "TrainJob", {"runtimeRef": {"name": "torch"}, "trainer": trainer})
    found = manifests(job, RUNTIME)
    assert [name for spec in found.pods for name in spec.names] == [
        "w-model-initializer-0-0", "w-node-0-0", "w-node-0-1", "w-node-0-2",
    ]  # fmt: skip
    assert found.pods[1].gpu_limits == {"nvidia.com/gpu": 8}
    assert found.pods[1].source.kind == "ClusterTrainingRuntime"


def test_a_train_jobs_overrides_reach_the_pods_they_name() -> None:
    claims = [{"name": "d", "resourceClaimTemplateName": "t"}]
    overrides = [{"targetJobs": [{"name": "node"}], "spec": {"resourceClaims": claims}}]
    job = obj("trainer", "TrainJob", {"runtimeRef": {"name": "torch"}, "podTemplateOverrides": overrides})
    assert [[ref.template for ref in spec.claims] for spec in manifests(job, RUNTIME).pods] == [[], ["t"]]


def test_a_train_job_without_its_runtime_is_reported() -> None:
    job = obj("trainer", "TrainJob", {"runtimeRef": {"name": "torch"}})
    assert "'torch', which is in none of the files" in skipped(job)["TrainJob w"]


@pytest.mark.parametrize("kind", ["ClusterTrainingRuntime", "TrainingRuntime"])
def test_a_runtime_by_itself_makes_no_pods(kind: str) -> None:
    assert skipped({**RUNTIME, "kind": kind}) == {f"{kind} torch": "makes pods only for a TrainJob that names it"}


def test_a_daemon_set_is_one_pod_a_node() -> None:
    (spec,) = manifests(obj("apps", "DaemonSet", {"template": TEMPLATE})).pods
    assert spec.per_node


@pytest.mark.parametrize(
    ("group", "count"),
    [
        ({"replicas": 2, "minReplicas": 0, "maxReplicas": 4}, 2),
        ({"minReplicas": 3}, 3),
        ({"replicas": 1, "minReplicas": 2}, 2),
        ({"replicas": 9, "maxReplicas": 4}, 4),
        ({"replicas": 0}, 0),
        ({"replicas": 2, "numOfHosts": 2}, 4),
    ],
)
def test_ray_workers_keep_within_the_bounds_of_their_group(group: dict[str, int], count: int) -> None:
    workers = {"groupName": "g", "template": TEMPLATE, **group}
    assert len(names(obj("ray", "RayCluster", {"headGroupSpec": {}, "workerGroupSpecs": [workers]}))) == count


def test_a_leader_has_its_own_template_where_there_is_one() -> None:
    own = {"spec": {"containers": [{"name": "leader"}]}}
    template = {"size": 2, "leaderTemplate": own, "workerTemplate": TEMPLATE}
    leader, worker = manifests(obj("lws", "LeaderWorkerSet", {"leaderWorkerTemplate": template})).pods
    assert (leader.path[2], worker.path[2]) == ("leaderTemplate", "workerTemplate")


def test_pod_templates_of_an_unknown_kind_are_found_by_their_shape_and_noted() -> None:
    strange = obj("x.example.com/v1", "Fleet", {"replicas": 3, "pods": {"template": TEMPLATE}})
    assert names(strange) == ["w-0", "w-1", "w-2"]
    assert notes(strange) == [
        "kind Fleet is not known here: pods found by the shape of spec.pods.template.spec, 3 by spec.replicas"
    ]


def test_several_templates_of_an_unknown_kind_are_distinguished_by_name() -> None:
    groups = [{"name": name, "count": 2, "template": TEMPLATE} for name in ("a", "b")]
    assert names(obj("x.example.com/v1", "Fleet", {"groups": groups})) == ["w-a-0", "w-a-1", "w-b-0", "w-b-1"]


def test_a_job_of_another_api_group_is_not_taken_for_a_kubernetes_job() -> None:
    assert "not known here" in notes(obj("x.example.com/v1", "Job", {"template": TEMPLATE}))[0]


@pytest.mark.parametrize(
    ("group", "kind", "spec", "why"),
    [
        ("", "Service", {"selector": {}}, "creates no pods"),
        ("networking.k8s.io/v1", "NetworkPolicy", {}, "creates no pods"),
        (
            "x.example.com/v1",
            "Fleet",
            {"size": 3},
            "unknown kind without anything that looks like a pod template",
        ),
        ("apps", "Deployment", {}, "it has no pod template"),
    ],
)
def test_an_object_without_pods_is_listed_with_the_reason(group: str, kind: str, spec: object, why: str) -> None:
    assert skipped(obj(group, kind, spec)) == {f"{kind} w": why}


def test_a_finished_job_is_not_run_again() -> None:
    done = obj("batch", "Job", JOB, status={"conditions": [{"type": "Complete", "status": "True"}]})
    assert skipped(done) == {"Job w": "has finished (Complete)"}


def owned(kind: str, group: str, by: str, name: str, spec: object) -> dict[str, Any]:
    owner = {"kind": by, "name": "w", "controller": True, "apiVersion": "x", "uid": "1"}
    return obj(group, kind, spec, name=name, metadata={"ownerReferences": [owner]})


def test_pods_in_the_input_are_not_created_again_by_their_owner() -> None:
    replicas = obj("apps", "ReplicaSet", {"replicas": 3, "template": TEMPLATE})
    assert names(replicas, owned("Pod", "", "ReplicaSet", "w-x7k2p", POD)) == ["w-0", "w-1", "w-x7k2p"]


def test_a_replica_set_stands_for_its_deployment() -> None:
    deployment = obj("apps", "Deployment", {"replicas": 2, "template": TEMPLATE})
    child = owned("ReplicaSet", "apps", "Deployment", "w-5d4f", {"replicas": 2, "template": TEMPLATE})
    assert names(deployment, child) == ["w-5d4f-0", "w-5d4f-1"]
    assert skipped(deployment, child) == {"Deployment w": "ReplicaSet w-5d4f, which it created, is planned instead"}


def test_a_kueue_workload_is_left_to_the_job_it_is_a_copy_of() -> None:
    copy = owned("Workload", "kueue", "Job", "copy", {"podSets": [{"count": 2, "template": TEMPLATE}]})
    job = obj("batch", "Job", JOB)
    assert names(job, copy) == ["w-0", "w-1"]
    assert skipped(job, copy) == {"Workload copy": "a copy of Job w, which is planned itself"}


@pytest.mark.parametrize(
    ("group", "kind", "spec", "note"),
    [
        ("batch", "Job", {**JOB, "suspend": True}, "suspended"),
        ("batch", "Job", {"parallelism": 2, "completions": 9, "template": TEMPLATE}, "7 more pods follow"),
        ("batch", "CronJob", {"jobTemplate": {"spec": JOB}}, "one run is planned"),
        ("volcano", "Job", {"tasks": [{"template": TEMPLATE}]}, "Volcano's scheduler places these pods"),
    ],
)
def test_assumptions_about_pods_are_noted(group: str, kind: str, spec: dict[str, object], note: str) -> None:
    assert note in notes(obj(group, kind, spec))[0]


def test_a_compute_domains_template_is_the_one_its_controller_makes() -> None:
    domain = obj("nvidia", "ComputeDomain", {"channel": {"resourceClaimTemplate": {"name": "channel"}}})
    user = obj("", "Pod", {**POD, "resourceClaims": [{"name": "c", "resourceClaimTemplateName": "channel"}]}, name="p")
    found = manifests(domain, user)
    (claim,) = found.claims_of(found.pods[0])
    assert [request.device_class for request in claim.requests] == ["compute-domain-default-channel.nvidia.com"]
    assert found.claims == [], "it is in no file: it is neither linted nor planned alone"
