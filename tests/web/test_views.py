"""What the page gets about nodes and holders, without a browser."""

from __future__ import annotations

import asyncio
from typing import Any

from dranet.core.device import Device, Taint
from dranet.core.slices import resource_slices
from dranet.machines.shape import load_shape
from dranet.machines.shape_devices import shape_slices
from dranet.web.cluster import CLAIMS, PODS, SLICES, ClusterObjects, Holder
from dranet.web.feed import Feed
from dranet.web.questions import explain_holder, lint_manifest, plan_manifest
from dranet.web.views import holder_view, node_view
from tests.inputs import claim as template
from tests.inputs import workers


def machines(*nodes: str, shape: str = "nd-gb300-v6") -> ClusterObjects:
    cluster = ClusterObjects()
    for index, node in enumerate(nodes):
        for item in shape_slices(load_shape(shape), node, index):
            cluster.put(SLICES, item)
    return cluster


def claim(name: str, node: str, *devices: tuple[str, str], pods: tuple[str, ...] = ("worker",)) -> dict[str, Any]:
    results = [{"driver": driver, "pool": node, "device": device, "request": "r"} for driver, device in devices]
    status: dict[str, Any] = {"allocation": {"devices": {"results": results}}}
    if pods:
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": "1"} for pod in pods]
    metadata = {"name": name, "namespace": "team"}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return {**kind, "metadata": metadata, "spec": {"devices": {}}, "status": status}


GPU0, NIC0, NIC2 = ("gpu.nvidia.com", "gpu-0"), ("dra.net", "pci-0101-00-00-0"), ("dra.net", "pci-0103-00-00-0")


def test_machines_of_one_kind_share_a_layout() -> None:
    cluster = machines("a", "b")
    views = [node_view(cluster, node) for node in ("a", "b")]
    assert views[0][0]["layout"] == views[1][0]["layout"]
    assert views[0][0] == {"name": "a", "layout": views[0][1][0], "block": views[0][0]["block"]}


def test_a_claim_marks_its_devices_and_names_its_pods() -> None:
    cluster = machines("a")
    cluster.put(CLAIMS, claim("c", "a", GPU0, NIC2, pods=("one", "two")))
    for pod in ("one", "two"):
        view = holder_view(cluster, Holder(PODS, "team", pod))
        assert view is not None and view["node"] == "a"
        assert view["claims"] == [{"name": "c", "devices": [{"request": "r", "at": 0}, {"request": "r", "at": 6}]}]


def test_a_claim_without_a_pod_is_its_own_holder() -> None:
    cluster = machines("a")
    cluster.put(CLAIMS, claim("c", "a", NIC0, pods=()))
    assert cluster.take_touched().holders == {Holder(CLAIMS, "team", "c")}
    view = holder_view(cluster, Holder.parse("claim team/c"))
    assert view is not None and view["phase"] == "allocated, no pod"


def test_taints_and_interfaces_elsewhere_are_told_apart() -> None:
    cluster = ClusterObjects()
    names = ("link-down", "netdev-elsewhere")
    nics = [
        Device(name=name, attributes={"dra.net/rdma": True}, taints=(Taint(key=f"dra.net/{name}"),)) for name in names
    ]
    for item in resource_slices(nics, node="a"):
        cluster.put(SLICES, item)
    view = node_view(cluster, "a")[0]
    assert view["tainted"] == [
        {"at": 0, "taints": ["dra.net/link-down:NoSchedule"]},
        {"at": 1, "taints": ["dra.net/netdev-elsewhere:NoSchedule"]},
    ]
    assert view["elsewhere"] == [1]


def test_a_held_device_that_nobody_publishes_is_told() -> None:
    cluster = machines("a")
    cluster.put(CLAIMS, claim("c", "a", ("dra.net", "pci-gone")))
    assert node_view(cluster, "a")[0]["unpublished"] == [{"claim": "team/c", "name": "pci-gone"}]


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    cluster = machines("a")
    [old] = [item for item in cluster.slices("a") if item["spec"]["driver"] == "dra.net"]
    pool = {**old["spec"]["pool"], "generation": old["spec"]["pool"]["generation"] + 1}
    new = {"metadata": {"name": "newer"}, "spec": {**old["spec"], "pool": pool, "devices": old["spec"]["devices"][:1]}}
    cluster.put(SLICES, new)
    assert len(cluster.machine("a").nics) == 1


def test_a_pool_that_lacks_slices_is_a_problem() -> None:
    cluster = machines("a")
    [item] = [item for item in cluster.slices("a") if item["spec"]["driver"] == "dra.net"]
    pool = {**item["spec"]["pool"], "resourceSliceCount": 2}
    cluster.put(SLICES, {**item, "spec": {**item["spec"], "pool": pool}})
    assert node_view(cluster, "a")[0]["problem"] == "pool a of dra.net is incomplete: 1 of 2 slices"


def test_a_misplaced_pair_is_marked_and_costs_bandwidth() -> None:
    cluster = machines("a")
    cluster.put(CLAIMS, claim("c", "a", GPU0, NIC2))
    view = holder_view(cluster, Holder(PODS, "team", "worker"))
    assert view is not None
    assert view["pairs"] == [{"gpu": 0, "nic": 6, "distance": "SYS", "direct": False}]
    assert view["misplaced"] is True and view["of_best"] < 0.5


def test_gpus_of_a_device_plugin_give_the_worst_case_and_say_so() -> None:
    cluster = machines("a")
    limits = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    spec = {"nodeName": "a", "containers": [{"name": "c", **limits}], "resourceClaims": [{"name": "x"}]}
    cluster.put(PODS, {"metadata": {"name": "worker", "namespace": "team"}, "spec": spec})
    cluster.put(CLAIMS, claim("c", "a", NIC0))
    view = holder_view(cluster, Holder(PODS, "team", "worker"))
    assert view is not None and (view["worst"], view["uncertain"]) == ("SYS", True)


def test_a_view_that_did_not_change_is_not_sent_again() -> None:
    async def scenario() -> list[bytes]:
        cluster = machines("a", "b")
        cluster.put(CLAIMS, claim("c", "a", NIC0))
        stream = Feed(cluster, "test", True).events()
        sent = [await anext(stream)]
        cluster.put(
            CLAIMS, {**claim("c", "a", NIC0), "metadata": {**claim("c", "a")["metadata"], "labels": {"x": "y"}}}
        )
        cluster.put(CLAIMS, claim("d", "b", NIC0, pods=("other",)))
        return [*sent, await anext(stream)]

    world, change = asyncio.run(scenario())
    assert b"team/worker" in world
    assert b"team/other" in change and b"team/worker" not in change


def test_a_pod_that_leaves_takes_its_marks_along() -> None:
    cluster = machines("a")
    feed = Feed(cluster, "test", True)
    cluster.put(CLAIMS, claim("c", "a", NIC0))
    assert [holder["key"] for holder in feed.world()["holders"]] == ["team/worker"]
    cluster.remove(CLAIMS, ("team", "c"))
    assert feed.world()["holders"] == []


def test_a_node_without_slices_is_gone() -> None:
    cluster = machines("a", "b")
    feed = Feed(cluster, "test", True)
    assert len(feed.world()["nodes"]) == 2
    for item in cluster.slices("a"):
        cluster.remove(SLICES, ("", item["metadata"]["name"]))
    assert [node["name"] for node in feed.world()["nodes"]] == ["b"]


def test_an_explanation_names_better_devices() -> None:
    cluster = machines("a")
    cluster.put(CLAIMS, claim("c", "a", GPU0, NIC2))
    assert "better and free: gpu-0, pci-0101-00-00-0" in explain_holder(cluster, Holder.parse("team/worker"))["text"]


POD = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: NIC}
spec: {spec: {devices: {requests: [{name: nic, exactly: {deviceClassName: dra.net, count: 4}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: new}
spec:
  containers: [{name: c, image: i}]
  resourceClaims: [{name: nic, resourceClaimTemplateName: NIC}]
"""
CLASS = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "dra.net"}}


def test_a_plan_counts_what_the_cluster_already_uses() -> None:
    cluster = machines("a", "b")
    cluster.put(
        "DeviceClass", {**CLASS, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'dra.net'"}}]}}
    )
    assert plan_manifest(cluster, POD, "f")["pods"][0]["node"] == "a"
    cluster.put(CLAIMS, claim("c", "a", NIC0))
    assert plan_manifest(cluster, POD, "f")["pods"][0]["node"] == "b"
    cluster.put(CLAIMS, claim("d", "b", NIC0))
    found = plan_manifest(cluster, POD, "f")
    assert found["pods"] == [] and found["unschedulable"][0]["name"] == "new"


JOB = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: NIC}
spec: {spec: {devices: {requests: [{name: nic, exactly: {deviceClassName: dra.net}}]}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: job}
spec:
  replicas: 3
  selector: {matchLabels: {app: job}}
  template:
    metadata: {labels: {app: job}}
    spec:
      containers: [{name: c, image: i}]
      resourceClaims: [{name: nic, resourceClaimTemplateName: NIC}]
"""


def test_a_plan_says_which_pods_of_a_job_share_no_rail() -> None:
    cluster = machines("a", "b", shape="a4-highgpu-8g")
    cluster.put(
        "DeviceClass", {**CLASS, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'dra.net'"}}]}}
    )
    (reported,) = plan_manifest(cluster, JOB, "f")["rails"]
    assert reported["reachable"] is None and "different rails; not proven isolated" in reported["text"]


def test_lint_speaks_of_the_manifest_alone() -> None:
    cluster = machines("a")
    cluster.put("DeviceClass", {**CLASS, "spec": {"selectors": [{"cel": {"expression": "nonsense"}}]}})
    findings = lint_manifest(cluster, POD.replace("deviceClassName: dra.net", "deviceClassName: nowhere"), "f")[
        "findings"
    ]
    assert any("nowhere" in finding["message"] for finding in findings)
    assert {finding["file"] for finding in findings} == {"f"}


def test_a_plan_tells_the_blocks_of_a_job_and_its_figure() -> None:
    cluster = machines("a", "b")
    for name, driver in (("dra.net", "dra.net"), ("gpu.nvidia.com", "gpu.nvidia.com")):
        selectors = [{"cel": {"expression": f"device.driver == '{driver}'"}}]
        cluster.put("DeviceClass", {**CLASS, "metadata": {"name": name}, "spec": {"selectors": selectors}})
    (job,) = plan_manifest(cluster, template("gpu: gpu.nvidia.com 4\nnic: dra.net 4") + workers(2), "f")["jobs"]
    assert job["text"].startswith("280 to 395 GB/s (all_reduce, 8 GPUs, NVLSTree")
    assert job["places"][0].startswith("in one azure.dra.net/placementGroupId (")
