"""Which job a pod is of, and what is said of a whole job."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.core.errors import NotFound
from dranet.web.cluster import CLAIMS, NODES, PODS, ClusterObjects, Holder
from dranet.web.job_details import job_details
from dranet.web.jobs import MEASURED, job_of
from dranet.web.views import holder_view, node_view

from .fleets import claim, devices, machine, pod


def a_pod(owner: tuple[str, str] | None = None, **labels: str) -> dict[str, Any]:
    owners = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    return {"metadata": {"name": "x", "labels": labels, "ownerReferences": owners}}


@pytest.mark.parametrize(
    ("made", "job"),
    [
        (a_pod(), ""),
        (None, ""),
        (a_pod(("MPIJob", "nccl")), "MPIJob/nccl"),
        (a_pod(("ReplicaSet", "web-5f6d"), **{"pod-template-hash": "5f6d"}), "Deployment/web"),
        (a_pod(("ReplicaSet", "web-5f6d")), "ReplicaSet/web-5f6d"),
        (a_pod(("Job", "train-0"), **{"jobset.sigs.k8s.io/jobset-name": "train"}), "JobSet/train"),
        (a_pod(("RayCluster", "r-x"), **{"ray.io/cluster": "r-x"}), "RayCluster/r-x"),
    ],
)
def test_a_pod_is_of_the_job_that_people_started(made: Any, job: str) -> None:
    assert job_of(made) == job


def a_job(rails: tuple[range, range], *, measured: str = "") -> ClusterObjects:
    cluster = ClusterObjects()
    for number, nics in enumerate(rails):
        node = f"node-{number}"
        machine(cluster, node, "free", number)
        labels = {"cloud.google.com/gce-topology-block": f"block-{number}"}
        cluster.put(NODES, {"metadata": {"name": node, "labels": labels}})
        made = pod(node, f"train-{number}", "train")
        made["metadata"]["annotations"] = {MEASURED: measured}
        cluster.put(PODS, made)
        cluster.put(CLAIMS, claim(node, f"train-{number}", devices(nics, nics)))
    return cluster


def test_a_job_is_told_by_block_and_rail_with_the_figure_of_all_its_pods() -> None:
    reported = job_details(a_job((range(2), range(2))), "team/Job/train")
    assert [(one["block"], one["pods"], one["nodes"]) for one in reported["blocks"]] == [
        ("block-0", 1, 1),
        ("block-1", 1, 1),
    ]
    assert reported["blocks"][0]["rails"] == dict.fromkeys(reported["rails"], 1) and len(reported["rails"]) == 2
    assert " GB/s (all_reduce, 4 GPUs" in reported["expected"]
    assert "cloud.google.com/gce-topology-block" in reported["places"][0]
    assert "all pods on rails" in reported["rails_text"]
    assert reported["measured"] is None


def test_a_job_whose_pods_share_no_rail_is_told_so() -> None:
    assert "different rails" in job_details(a_job((range(1), range(4, 5))), "team/Job/train")["rails_text"]


@pytest.mark.parametrize(
    ("said", "measured"), [("61.23", 61.2), ("", None), ("fast", None), ("nan", None), ("-1", None)]
)
def test_measured_bandwidth_is_what_a_pod_says_where_it_says_a_number(said: str, measured: float | None) -> None:
    cluster = a_job((range(2), range(2)), measured=said)
    assert job_details(cluster, "team/Job/train")["measured"] == measured
    view = holder_view(cluster, Holder(PODS, "team", "train-0"))
    assert view is not None and view.get("measured") == measured


def test_a_pod_without_a_node_counts_as_waiting() -> None:
    cluster = a_job((range(2), range(2)))
    late = pod("", "train-9", "train")
    cluster.put(PODS, late)
    reported = job_details(cluster, "team/Job/train")
    assert (reported["pods"], reported["waiting"]) == (3, 1)


@pytest.mark.parametrize("key", ["team/Job/other", "other/Job/train", "team", ""])
def test_a_job_that_is_not_there_is_said_plainly(key: str) -> None:
    with pytest.raises(NotFound, match="no pod of"):
        job_details(a_job((range(2), range(2))), key)


def test_a_node_that_gets_a_label_of_its_block_is_looked_at_again() -> None:
    cluster = ClusterObjects()
    machine(cluster, "a", "free")
    cluster.take_touched()
    cluster.put(NODES, {"metadata": {"name": "a", "labels": {"topology.gke.io/rack": "r7"}}})
    assert cluster.take_touched().nodes == {"a"}
    assert node_view(cluster, "a")[0]["block"] == "r7"
