"""What real jobs need in addition to a driver: names for pods, and the operators of the MPI and Ray communities."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.testing.waiting import wait_until
from tests.cluster.kubebed import Cluster, Kubectl, KubectlError
from tests.cluster.kubebed.manifests import POD_IMAGE, pod
from tests.cluster.kubebed.operators import start_kuberay, start_mpi_operator


@pytest.fixture(scope="module")
def dns(bed: Cluster) -> Cluster:
    bed.start_dns()
    return bed


def _pod_spec(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = pod(name)["spec"]
    spec["containers"][0]["name"] = name
    del spec["restartPolicy"]
    return spec


def test_a_pod_finds_another_by_the_name_of_its_headless_service(dns: Cluster, kubectl: Kubectl) -> None:
    first, second = dns.node_names()[:2]
    service = {"clusterIP": "None", "selector": {"app": "there"}, "ports": [{"port": 80}]}
    kubectl.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "names"}, "spec": service})
    kubectl.start(pod("here", node=first), pod("there", node=second, labels={"app": "there"}))
    address = kubectl.get("pod/there")["status"]["podIP"]
    name = f"names.{kubectl.namespace}.svc.cluster.local"
    wait_until(lambda: address in _look_up(kubectl, name), f"{name} to resolve")


def _look_up(kubectl: Kubectl, name: str) -> str:
    try:
        return kubectl.exec("here", "nslookup", name)
    except KubectlError as problem:
        return str(problem)


def test_the_mpi_operator_makes_the_workers_of_a_job(dns: Cluster, kubectl: Kubectl) -> None:
    start_mpi_operator(dns)
    replicas = {
        "Launcher": {"replicas": 1, "template": {"spec": _pod_spec("launcher")}},
        "Worker": {"replicas": 2, "template": {"spec": _pod_spec("worker")}},
    }
    kubectl.apply(
        {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": {"name": "job"},
            "spec": {"slotsPerWorker": 1, "mpiReplicaSpecs": replicas},
        }
    )
    for worker in ("job-worker-0", "job-worker-1"):
        kubectl.wait(f"pod/{worker}", "create")
        kubectl.wait(f"pod/{worker}", "condition=Ready")
    kubectl.run("delete", "mpijob/job")


def test_kuberay_makes_the_head_of_a_cluster(dns: Cluster, kubectl: Kubectl) -> None:
    start_kuberay(dns)
    group = {"rayStartParams": {}, "template": {"spec": _pod_spec("head")}}
    kubectl.apply(
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": "small"},
            "spec": {"rayVersion": "2.60.0", "headGroupSpec": group},
        }
    )
    wait_until(lambda: kubectl.items("pods", "-l", "ray.io/node-type=head"), "the head pod")
    (head,) = kubectl.items("pods", "-l", "ray.io/node-type=head")
    assert head["spec"]["containers"][0]["image"] == POD_IMAGE
    kubectl.run("delete", "raycluster/small")
