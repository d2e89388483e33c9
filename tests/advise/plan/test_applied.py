"""`dranet plan` for what people apply: what the API server and the controllers make of files, and what runs already.

Each case is asked as a user asks it, and compared with what a real control plane does with the same files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.inputs import run

CASES = Path(__file__).parents[4] / "shared" / "data" / "cases-1"
GPUS = 8


def node(name: str, cpu: str = "64", **labels: str) -> dict[str, Any]:
    """A Node with its 8 GPUs; see `cluster`."""
    amounts = {"cpu": cpu, "memory": "512Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def gpus(name: str) -> dict[str, Any]:
    """The ResourceSlice of a node."""
    devices = [{"name": f"gpu-{i}", "attributes": {"type": {"string": "gpu"}}} for i in range(GPUS)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": devices}
    return obj("resource.k8s.io/v1", "ResourceSlice", f"{name}-gpus", spec=spec)


def obj(version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": fields.pop("namespace", "default"), **fields.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def cluster(*names: str) -> list[dict[str, Any]]:
    """Nodes with 8 GPUs each, and templates for 1 and for 8 of them."""
    found = [one for name in names or ("n1", "n2") for one in (node(name), gpus(name))]
    return [*found, template("t1", 1), template("t8", 8)]


def requests(count: int) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu.nvidia.com", "count": count}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def template(name: str, count: int, namespace: str = "default") -> dict[str, Any]:
    spec = {"spec": requests(count)}
    return obj("resource.k8s.io/v1", "ResourceClaimTemplate", name, namespace=namespace, spec=spec)


def pod_spec(claims: str = "t1", **more: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "x", "resources": {"claims": [{"name": "d"}]}}]
    return {"containers": containers, "resourceClaims": [{"name": "d", "resourceClaimTemplateName": claims}], **more}


def pods_of(claims: str = "t1", labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A pod template."""
    return {"metadata": {"labels": labels or {"a": "b"}}, "spec": pod_spec(claims, **more)}


def apart(label: str, value: str) -> dict[str, Any]:
    """Required anti-affinity per host."""
    term = {"labelSelector": {"matchLabels": {label: value}}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def asked(folder: Path, applied: list[dict[str, Any]], recording: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The answer as JSON."""
    (folder / "applied.yaml").write_text(yaml.safe_dump_all(applied))
    args: list[object] = ["plan", "-o", "json", "-f", folder / "applied.yaml"]
    if recording is not None:
        (folder / "recording.yaml").write_text(yaml.safe_dump_all(recording))
        args += ["--slices", folder / "recording.yaml"]
    done = run(*args)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def nodes(found: dict[str, Any]) -> dict[str, list[str]]:
    """By node, the names of the pods that are placed there."""
    placed: dict[str, list[str]] = {}
    for one in (*found["pods"], *found["others"]):
        placed.setdefault(one["node"], []).append(one["pod"])
    return placed


def waiting(found: dict[str, Any]) -> list[str]:
    return [one["pod"] for one in found["unschedulable"]]


def test_pods_with_generated_names_have_claims_of_their_own(tmp_path: Path) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "train-"}, "spec": pod_spec("t8")}
    found = asked(tmp_path, [*cluster(), pod, pod, pod])
    assert nodes(found) == {"n1": ["train-0"], "n2": ["train-1"]}
    assert waiting(found) == ["train-2"]


def test_jobs_with_generated_names_are_separate_jobs(tmp_path: Path) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "j-"},
        "spec": {"template": pods_of("t8")},
    }
    found = asked(tmp_path, [*cluster(), job, job, job])
    assert nodes(found) == {"n1": ["j-0-0"], "n2": ["j-1-0"]}
    assert waiting(found) == ["j-2-0"]


def test_workloads_of_one_name_have_pods_and_claims_of_their_own(tmp_path: Path) -> None:
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": pods_of("t8")}
    both = [obj("apps/v1", kind, "llm", spec=spec) for kind in ("StatefulSet", "Deployment")]
    found = asked(tmp_path, [*cluster("n1", "n2", "n3"), *both])
    assert [len(found["pods"]), len(found["unschedulable"])] == [3, 1]
    devices = [(c["claim"], d["pool"], d["device"]) for p in found["pods"] for c in p["claims"] for d in c["devices"]]
    assert len({(pool, device) for _, pool, device in devices}) == 3 * GPUS


def test_pods_of_one_name_in_two_namespaces_are_two_jobs(tmp_path: Path) -> None:
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": pods_of("t1")}
    sets = [obj("apps/v1", "StatefulSet", "train", namespace=space, spec=spec) for space in ("x", "y")]
    found = asked(tmp_path, [*cluster(), template("t1", 1, "x"), template("t1", 1, "y"), *sets])
    assert [job["workload"] for job in found["jobs"]] == ["StatefulSet/x/train", "StatefulSet/y/train"]


def controller_cases() -> list[Any]:
    """Workloads of three pods that want to be apart, by a label that only their controller adds."""
    job = {"parallelism": 3, "completions": 3}
    jobset, lws, training = "jobset.sigs.k8s.io/", "leaderworkerset.sigs.k8s.io/", "training.kubeflow.org/"

    def one(label: str, value: str, **more: Any) -> dict[str, Any]:
        return {"metadata": {"labels": {"a": "b"}}, "spec": pod_spec("t1", **apart(label, value), **more)}

    def replicas(label: str, value: str) -> dict[str, Any]:
        return {"replicas": 3, "template": one(label, value)}

    selector = {"matchLabels": {"a": "b"}}
    return [
        ("batch/v1", "Job", {**job, "template": one("batch.kubernetes.io/job-name", "w")}),
        ("batch/v1", "Job", {**job, "template": one("job-name", "w")}),
        ("batch/v1", "CronJob", {"jobTemplate": {"spec": {**job, "template": one("job-name", "w")}}}),
        (
            "jobset.x-k8s.io/v1alpha2", "JobSet",
            {"replicatedJobs": [{"name": "g", "replicas": 3, "template": {"spec": {
                "parallelism": 1, "template": one(f"{jobset}replicatedjob-name", "g")}}}]},
        ),
        (
            "jobset.x-k8s.io/v1alpha2", "JobSet",
            {"replicatedJobs": [{"name": "g", "template": {"spec": {
                **job, "template": one(f"{jobset}jobset-name", "w")}}}]},
        ),
        (
            "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet",
            {"leaderWorkerTemplate": {"size": 3, "workerTemplate": one(f"{lws}group-index", "0")}},
        ),
        ("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": {"Worker": replicas(f"{training}job-role", "worker")}}),
        (
            "kubeflow.org/v1", "PyTorchJob",
            {"pytorchReplicaSpecs": {"Worker": replicas(f"{training}replica-type", "worker")}},
        ),
        (
            "ray.io/v1", "RayCluster",
            {"headGroupSpec": {"template": one("ray.io/cluster", "w")},
             "workerGroupSpecs": [{"groupName": "g", "replicas": 2, "template": one("ray.io/cluster", "w")}]},
        ),
        (
            "batch.volcano.sh/v1alpha1", "Job",
            {"schedulerName": "default-scheduler", "tasks": [
                {"name": "k", "replicas": 3, "template": one("volcano.sh/task-spec", "k")}]},
        ),
        ("apps/v1", "StatefulSet", {"selector": selector, **replicas("a", "b")}),
    ]  # fmt: skip


@pytest.mark.parametrize(("version", "kind", "spec"), controller_cases())
def test_anti_affinity_reads_the_labels_that_controllers_add(
    version: str, kind: str, spec: dict[str, Any], tmp_path: Path
) -> None:
    found = asked(tmp_path, [*cluster(), obj(version, kind, "w", spec=spec)])
    assert sorted(map(len, nodes(found).values())) == [1, 1]
    assert len(waiting(found)) == 1


def test_labels_of_single_pods_are_read(tmp_path: Path) -> None:
    term = {
        "labelSelector": {"matchLabels": {"apps.kubernetes.io/pod-index": "0"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    near: dict[str, Any] = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    spec = {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": pods_of("t1", **near)}
    found = asked(tmp_path, [*cluster(), obj("apps/v1", "StatefulSet", "s", spec=spec)])
    assert list(nodes(found).values()) == [["s-0", "s-1", "s-2"]]


@pytest.mark.parametrize(
    ("version", "kind", "spec"),
    [
        (
            "jobset.x-k8s.io/v1alpha2", "JobSet",
            {"replicatedJobs": [{"name": "g", "template": {"spec": {
                "parallelism": 4, "completions": 4, "template": {"spec": pod_spec()}}}}]},
        ),
        (
            "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet",
            {"leaderWorkerTemplate": {"size": 4, "workerTemplate": {"spec": pod_spec()}}},
        ),
        (
            "kubeflow.org/v2beta1", "MPIJob",
            {"mpiReplicaSpecs": {"Worker": {"replicas": 4, "template": {"spec": pod_spec()}}}},
        ),
    ],
)  # fmt: skip
def test_services_of_operators_spread_their_pods(version: str, kind: str, spec: dict[str, Any], tmp_path: Path) -> None:
    """The second node is so much smaller that without a Service all four pods go to the first."""
    small = [node("n1", "224"), node("n2", "2"), gpus("n1"), gpus("n2"), template("t1", 1)]
    found = asked(tmp_path, [*small, obj(version, kind, "w", spec=spec)])
    assert {name: len(pods) for name, pods in nodes(found).items()} == {"n1": 2, "n2": 2}


def running(
    name: str, on: str, owner: tuple[str, str], labels: dict[str, str] | None = None, **more: Any
) -> list[dict[str, Any]]:
    """A pod of the recording with all 8 GPUs of its node, as the API server has it, and its claim."""
    reference = {"apiVersion": "v1", "kind": owner[0], "name": owner[1], "controller": True, "uid": "u"}
    metadata = {"labels": labels or {"a": "b"}, "ownerReferences": [reference], **more.pop("metadata", {})}
    status = {"phase": "Running", "resourceClaimStatuses": [{"name": "d", "resourceClaimName": f"{name}-claim"}]}
    spec = {**pod_spec("t8"), "nodeName": on, "restartPolicy": "Always", "dnsPolicy": "ClusterFirst"}
    results = [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": on, "device": f"gpu-{i}"} for i in range(GPUS)]
    held = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": name}],
    }
    return [
        obj("v1", "Pod", name, metadata=metadata, spec=spec, status={**status, **more.pop("status", {})}),
        obj("resource.k8s.io/v1", "ResourceClaim", f"{name}-claim", spec=requests(GPUS), status=held),
    ]


def workload(kind: str, replicas: int = 1, image: str = "x", **more: Any) -> dict[str, Any]:
    pods = pods_of("t8")
    pods["spec"]["containers"][0]["image"] = image
    counted = {} if kind == "DaemonSet" else {"replicas": replicas}
    return obj(
        "apps/v1", kind, "w", spec={"selector": {"matchLabels": {"a": "b"}}, "template": pods, **counted, **more}
    )


HASH = {"a": "b", "pod-template-hash": "6b8"}
REPLICA_SET, STATEFUL_SET, DAEMON_SET = ("ReplicaSet", "w-6b8"), ("StatefulSet", "w"), ("DaemonSet", "w")


def changes(found: dict[str, Any]) -> list[tuple[int, int, int, int]]:
    return [(one["keeps"], one["adds"], one["replaces"], one["removes"]) for one in found["applied"]]


def test_a_deployment_that_is_applied_again_keeps_its_pods(tmp_path: Path) -> None:
    recording = [*cluster("n1"), workload("Deployment"), *running("w-6b8-x1", "n1", REPLICA_SET, HASH)]
    found = asked(tmp_path, [workload("Deployment")], recording)
    assert (nodes(found), waiting(found), changes(found)) == ({}, [], [(1, 0, 0, 0)])


def test_a_rolling_update_needs_room_for_its_surge(tmp_path: Path) -> None:
    recording = [*cluster("n1"), workload("Deployment"), *running("w-6b8-x1", "n1", REPLICA_SET, HASH)]
    found = asked(tmp_path, [workload("Deployment", image="new")], recording)
    assert (waiting(found), changes(found)) == (["w-0"], [(0, 0, 1, 0)])


@pytest.mark.parametrize(
    "strategy",
    [{"type": "Recreate"}, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}],
)
def test_an_update_without_surge_frees_the_devices_first(strategy: dict[str, Any], tmp_path: Path) -> None:
    both = [*running("w-6b8-x1", "n1", REPLICA_SET, HASH), *running("w-6b8-x2", "n2", REPLICA_SET, HASH)]
    recording = [*cluster(), workload("Deployment", 2), *both]
    found = asked(tmp_path, [workload("Deployment", 2, "new", strategy=strategy)], recording)
    assert (len(found["pods"]), waiting(found), changes(found)) == (2, [], [(0, 0, 2, 0)])


def test_a_rolling_update_with_one_free_node_rolls_through_all(tmp_path: Path) -> None:
    both = [*running("w-6b8-x1", "n1", REPLICA_SET, HASH), *running("w-6b8-x2", "n2", REPLICA_SET, HASH)]
    recording = [*cluster("n1", "n2", "n3"), workload("Deployment", 2), *both]
    found = asked(tmp_path, [workload("Deployment", 2, "new")], recording)
    assert sorted(nodes(found)) == ["n1", "n3"]
    assert waiting(found) == []


def test_a_scaled_statefulset_adds_only_what_is_missing(tmp_path: Path) -> None:
    recording = [*cluster(), *running("w-0", "n1", STATEFUL_SET)]
    found = asked(tmp_path, [workload("StatefulSet", 2)], recording)
    assert (nodes(found), changes(found)) == ({"n2": ["w-1"]}, [(1, 1, 0, 0)])


def test_a_smaller_statefulset_frees_what_it_removes(tmp_path: Path) -> None:
    both = [*running("w-0", "n1", STATEFUL_SET), *running("w-1", "n2", STATEFUL_SET)]
    pod = obj("v1", "Pod", "p", spec=pod_spec("t8"))
    found = asked(tmp_path, [workload("StatefulSet", 1), pod], [*cluster(), *both])
    assert (nodes(found), changes(found)) == ({"n2": ["p"]}, [(1, 0, 0, 1)])


@pytest.mark.parametrize(
    ("strategy", "placed", "counts"),
    [
        ({}, {"n2": ["w-1"], "n1": ["w-0"]}, (0, 0, 2, 0)),
        ({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}, {"n2": ["w-1"]}, (1, 0, 1, 0)),
        ({"type": "OnDelete"}, {}, (2, 0, 0, 0)),
    ],
)
def test_an_updated_statefulset_replaces_from_the_last_to_the_partition(
    strategy: dict[str, Any], placed: dict[str, list[str]], counts: tuple[int, ...], tmp_path: Path
) -> None:
    both = [*running("w-0", "n1", STATEFUL_SET), *running("w-1", "n2", STATEFUL_SET)]
    found = asked(tmp_path, [workload("StatefulSet", 2, "new", updateStrategy=strategy)], [*cluster(), *both])
    assert (nodes(found), changes(found)) == (placed, [counts])


def test_an_ordered_statefulset_waits_for_its_first_pod(tmp_path: Path) -> None:
    applied = workload("StatefulSet", 3)
    applied["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n1"}
    found = asked(tmp_path, [*cluster(), applied])
    assert nodes(found) == {"n1": ["w-0"]}
    reasons = {one["pod"]: one["reason"] for one in found["unschedulable"]}
    assert reasons["w-1"].startswith("0/2 nodes are available")
    assert reasons["w-2"] == "not created: StatefulSet/w waits until w-1 is ready"


@pytest.mark.parametrize(
    "state", [{"status": {"phase": "Failed"}}, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}]
)
def test_a_pod_that_failed_or_is_being_deleted_is_created_again(state: dict[str, Any], tmp_path: Path) -> None:
    found = asked(
        tmp_path, [workload("StatefulSet", 1)], [*cluster("n1"), *running("w-0", "n1", STATEFUL_SET, **state)]
    )
    assert nodes(found) == {"n1": ["w-0"]}


def test_a_deployment_does_not_wait_for_a_pod_that_is_being_deleted(tmp_path: Path) -> None:
    state = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    recording = [*cluster("n1"), workload("Deployment"), *running("w-6b8-x1", "n1", REPLICA_SET, HASH, **state)]
    assert waiting(asked(tmp_path, [workload("Deployment")], recording)) == ["w-0"]


def test_a_daemonset_adds_pods_to_the_nodes_that_have_none(tmp_path: Path) -> None:
    recording = [*cluster(), *running("w-abc", "n1", DAEMON_SET)]
    found = asked(tmp_path, [workload("DaemonSet")], recording)
    assert (nodes(found), changes(found)) == ({"n2": ["w-n2"]}, [(1, 1, 0, 0)])
    changed = asked(tmp_path, [workload("DaemonSet", image="new")], recording)
    assert (nodes(changed), changes(changed)) == ({"n1": ["w-n1"], "n2": ["w-n2"]}, [(0, 1, 1, 0)])


def test_a_job_creates_no_pods_that_run_or_have_succeeded(tmp_path: Path) -> None:
    job = obj("batch/v1", "Job", "w", spec={"parallelism": 3, "completions": 3, "template": pods_of("t8")})
    done = running("w-bbbbb", "n2", ("Job", "w"), status={"phase": "Succeeded"})
    found = asked(tmp_path, [job], [*cluster(), *running("w-aaaaa", "n1", ("Job", "w")), *done])
    assert len(found["pods"]) == 1


def test_a_claim_that_is_being_deleted_is_not_usable(tmp_path: Path) -> None:
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}
    claim = obj("resource.k8s.io/v1", "ResourceClaim", "c", metadata=metadata, spec=requests(1))
    pod = obj("v1", "Pod", "p", spec={**pod_spec(), "resourceClaims": [{"name": "d", "resourceClaimName": "c"}]})
    found = asked(tmp_path, [*cluster(), claim, pod])
    assert found["unschedulable"][0]["reason"] == 'resourceclaim "c" is being deleted'


def jobs(*roles: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A JobSet of two pods a role."""
    spec = {"parallelism": 2, "completions": 2, "template": {"spec": pod_spec("t8")}}
    return obj(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        "w",
        spec={"replicatedJobs": [{**r, "template": {"spec": spec}} for r in roles], **more},
    )


def test_a_replicated_job_takes_the_devices_of_one_that_completed(tmp_path: Path) -> None:
    after = [{"name": "init", "status": "Complete"}]
    found = asked(tmp_path, [*cluster(), jobs({"name": "init"}, {"name": "train", "dependsOn": after})])
    assert {name: len(pods) for name, pods in nodes(found).items()} == {"n1": 2, "n2": 2}


@pytest.mark.parametrize("order", [True, False])
def test_replicated_jobs_in_order_wait_for_those_before(order: bool, tmp_path: Path) -> None:
    policy = {"startupPolicy": {"startupPolicyOrder": "InOrder"}} if order else {}
    after = {} if order else {"dependsOn": [{"name": "a", "status": "Ready"}]}
    found = asked(tmp_path, [*cluster("n1"), jobs({"name": "a"}, {"name": "b", **after}, **policy)])
    reasons = {one["pod"]: one["reason"] for one in found["unschedulable"]}
    assert reasons["w-b-0-0"] == "not created: JobSet/w waits until a is ready"


def test_a_slice_without_its_node_is_not_a_node(tmp_path: Path) -> None:
    found = asked(tmp_path, [node("n1"), gpus("n1"), gpus("gone"), template("t8", 8), *[lone(name) for name in "pq"]])
    assert (nodes(found), waiting(found)) == ({"n1": ["p"]}, ["q"])


def lone(name: str, claims: str = "t8", **more: Any) -> dict[str, Any]:
    """A pod without an owner."""
    return obj("v1", "Pod", name, spec=pod_spec(claims, **more))


def test_nodes_without_slices_get_the_verdict_of_the_scheduler(tmp_path: Path) -> None:
    found = asked(tmp_path, [node("n1"), template("t1", 1), lone("p", "t1")])
    assert found["unschedulable"][0]["reason"].startswith("0/1 nodes are available: 1 cannot allocate all claims.")


def volumes() -> list[dict[str, Any]]:
    claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    return [workload("StatefulSet", volumeClaimTemplates=claims)]


def other_namespace() -> list[dict[str, Any]]:
    term = {"labelSelector": {"matchLabels": {"a": "b"}}, "namespaceSelector": {"matchLabels": {"team": "x"}}}
    terms = [{**term, "topologyKey": "kubernetes.io/hostname"}]
    far: dict[str, Any] = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    there = obj(
        "v1", "Pod", "o", namespace="other", spec={"containers": [], "nodeName": "n1"}, status={"phase": "Running"}
    )
    return [there, lone("p", **far)]


def bound_devices() -> list[dict[str, Any]]:
    slice_ = gpus("n1")
    slice_["metadata"]["name"] = "fabric"
    slice_["spec"] |= {"driver": "fabric.example.com", "devices": [{"name": "f", "bindingConditions": ["ready"]}]}
    return [slice_, lone("p")]


def queued() -> list[dict[str, Any]]:
    flavor = obj("kueue.x-k8s.io/v1beta1", "ResourceFlavor", "b", spec={"nodeLabels": {"zone": "b"}})
    labels = {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}
    return [flavor, obj("batch/v1", "Job", "j", metadata=labels, spec={"suspend": True, "template": pods_of("t1")})]


def scaled() -> list[dict[str, Any]]:
    target = {"scaleTargetRef": {"kind": "Deployment", "name": "w"}, "minReplicas": 2, "maxReplicas": 9}
    return [workload("Deployment"), obj("autoscaling/v2", "HorizontalPodAutoscaler", "h", spec=target)]


def restricted() -> list[dict[str, Any]]:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return [obj("v1", "Namespace", "default", metadata={"labels": labels}), lone("p")]


@pytest.mark.parametrize(
    ("applied", "line"),
    [
        (volumes(), "volumes: where PersistentVolumes are"),
        (other_namespace(), "labels of namespace other: it is not in the input"),
        (bound_devices(), "binding conditions of devices of fabric.example.com"),
        (queued(), "Kueue: queue lq admits Job/j when it has quota, and only on"),
        (scaled(), "HorizontalPodAutoscaler h: it may add pods to Deployment/w, up to 9"),
        (restricted(), "Pod Security: namespace default enforces restricted"),
        ([lone("p", runtimeClassName="kata")], "RuntimeClass kata is not in the input"),
        ([lone("p", priorityClassName="high")], "PriorityClass high is not in the input"),
        (
            [obj("resource.k8s.io/v1beta2", "DeviceTaintRule", "r", spec={}), lone("p")],
            "DeviceTaintRule r: this release ignores it",
        ),
        (
            [obj("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "v"), lone("p")],
            "ValidatingAdmissionPolicy v:",
        ),
    ],
)
def test_what_could_change_the_answer_is_named(applied: list[dict[str, Any]], line: str, tmp_path: Path) -> None:
    lines = asked(tmp_path, [*cluster(), *applied])["not_considered"]
    assert any(one.startswith(line) for one in lines), lines


def test_an_autoscaler_keeps_its_least_number_of_pods(tmp_path: Path) -> None:
    assert nodes(asked(tmp_path, [*cluster(), *scaled()])) == {"n1": ["w-0"], "n2": ["w-1"]}


def test_groups_with_an_exclusive_topology_share_no_place(tmp_path: Path) -> None:
    racks = [one for i in range(4) for one in (node(f"n{i}", rack=f"r{i // 2}"), gpus(f"n{i}"))]
    groups = {"replicas": 3, "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": pod_spec("t1")}}}
    apart = {"annotations": {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}}
    lws = obj("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", metadata=apart, spec=groups)
    found = asked(tmp_path, [*racks, template("t1", 1), lws])
    place = {pod: f"r{int(name[1:]) // 2}" for name, pods in nodes(found).items() for pod in pods}
    assert place["l-0"] == place["l-0-1"] != place["l-1"] == place["l-1-1"]
    assert {"l-2", "l-2-1"} == set(waiting(found))


def test_an_ordinary_input_has_nothing_that_was_not_considered(tmp_path: Path) -> None:
    assert asked(tmp_path, [*cluster(), workload("Deployment")])["not_considered"] == []


def test_pending_pods_of_a_recording_are_named(tmp_path: Path) -> None:
    rival = {**lone("rival"), "status": {"phase": "Pending"}}
    lines = asked(tmp_path, [lone("p")], [*cluster(), rival])["not_considered"]
    assert lines[0].startswith("the recording has no Namespace, ")
    assert lines[1:] == ["pods of the cluster that are pending, and may take devices first: rival"]


CASES_1 = {
    "01-job-label": ({"n1": ["j-0"], "n2": ["j-1"]}, ["j-2"]),
    "03-sts-index": ({"n1": ["s-0", "s-1", "s-2"]}, []),
    "05-lws-label": ({"n1": ["l-0"], "n2": ["l-0-1"]}, ["l-0-2"]),
    "11-rollout-surge": ({}, ["d-0"]),
    "16-reapply-same": ({}, []),
    "17-matchLabelKeys-rollout": ({"n1": ["d-1", "d-3"], "n2": ["d-0", "d-2"]}, []),
    "18-preempt": ({}, ["p"]),
    "21-preempt-devices": ({}, ["p"]),
    "26-claim-being-deleted": ({}, ["p"]),
    "27-stale-slice": ({}, ["p"]),
    "28-two-namespaces": ({"n1": ["train-0"], "n2": ["train-0"]}, []),
    "66-jobset-dependsOn": ({"n1": ["js-init-0-0", "js-train-0-0"], "n2": ["js-init-0-1", "js-train-0-1"]}, []),
    "79-shared-claim-node-full": ({}, ["p"]),
    "82-jobset-startup-inorder": ({}, ["js-big-0-0", "js-small-0-0"]),
    "83-sts-failed-pod": ({"n1": ["s-0", "s-2"], "n2": ["s-1"]}, []),
    "91-rollout-recreate": ({"n1": ["d-0"]}, []),
    "93-sts-scale-up": ({"n2": ["s-1"]}, []),
    "61-generate-name": ({"n1": ["g-0"], "n2": ["g-1"]}, []),
    "94-jobset-service-spread": ({"n1": ["js-w-0-0", "js-w-0-2"], "n2": ["js-w-0-1", "js-w-0-3"]}, []),
    "95-generate-name-5x8gpu": ({"n1": ["train-0"], "n2": ["train-1"]}, ["train-2", "train-3", "train-4"]),
    "98-same-name-two-kinds": ({"n1": ["llm-0"], "n2": ["llm-1"]}, ["llm-0", "llm-1"]),
}
"""By case, the pods of each node and the pods that wait."""


@pytest.mark.skipif(not CASES.is_dir(), reason="no cases of others here")
@pytest.mark.parametrize("case", sorted(CASES_1))
def test_cases_of_others(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES.parent)
    done = run(*(CASES / case / "command").read_text().split()[1:])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (nodes(found), waiting(found)) == CASES_1[case]


NAMED = {
    "13-sts-volumes": "volumes:",
    "22-runtimeclass-missing": "RuntimeClass kata",
    "24-pod-security": "Pod Security:",
    "34-binding-conditions": "binding conditions",
    "38-device-taint-rule": "DeviceTaintRule r",
    "53-kueue-flavor": "Kueue: queue lq",
    "71-namespace-selector-unknown": "labels of namespace other",
}
"""By case, the start of what the answer names as not considered."""


@pytest.mark.skipif(not CASES.is_dir(), reason="no cases of others here")
@pytest.mark.parametrize("case", sorted(NAMED))
def test_cases_of_others_that_a_plan_cannot_decide(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES.parent)
    lines = json.loads(run(*(CASES / case / "command").read_text().split()[1:]).stdout)["not_considered"]
    assert any(line.startswith(NAMED[case]) for line in lines)
