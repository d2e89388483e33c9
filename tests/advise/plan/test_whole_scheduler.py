"""The plan asks the whole scheduler and the admission of the API server, and lists what it did not consider."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from dranet.advise.manifests import Manifests, read_text
from dranet.advise.plan.hardware import hardware_of_shapes
from dranet.advise.plan.planning import Plan, plan
from dranet.advise.plan.render import plan_json
from dranet.machines.shape_devices import expand_shape_specs

SHAPE = "a4-highgpu-8g"
NAMES = (f"{SHAPE}-0", f"{SHAPE}-1")
Object = dict[str, Any]


def node(name: str, *, cpu: str = "200", labels: Object | None = None, **spec: Any) -> Object:
    amounts = {"cpu": cpu, "memory": "2000Gi", "pods": "110"}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": {"allocatable": amounts}}


def claim(name: str = "c", *, namespace: str = "default", count: int = 1, **exactly: Any) -> Object:
    request = {"name": "nic", "exactly": {"deviceClassName": "dranet", "count": count, **exactly}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def pod(name: str = "p", *, template: str | None = "c", requests: Object | None = None, **spec: Any) -> Object:
    container: Object = {"name": "main", "image": "i", "resources": {"requests": requests or {}}}
    claims = {"resourceClaims": [{"name": "d", "resourceClaimTemplateName": template}]} if template else {}
    whole = {"containers": [container], **claims, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}}, "spec": whole}


def planned(*objects: Object, machines: int = 2) -> Plan:
    read, _ = read_text(yaml.safe_dump_all(objects), "f.yaml")
    return plan(Manifests(read), hardware_of_shapes(expand_shape_specs([f"{SHAPE}={machines}"])))


def placed(found: Plan) -> list[str]:
    return [one.placement.node for one in found.pods]


def reason(found: Plan) -> str:
    (refusal,) = found.unschedulable
    return refusal.reason


def test_a_tainted_node_takes_no_pod_that_does_not_tolerate_it() -> None:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    assert placed(planned(node(NAMES[0], taints=[taint]), node(NAMES[1]), claim(), pod())) == [NAMES[1]]


def test_cpu_that_is_not_there_is_a_reason() -> None:
    found = planned(*(node(name, cpu="4") for name in NAMES), claim(), pod(requests={"cpu": "8"}))
    assert reason(found).startswith("0/2 nodes are available: 2 Insufficient cpu. still not schedulable, preemption: ")


def test_the_cpus_of_a_shape_are_known() -> None:
    assert "2 Insufficient cpu" in reason(planned(claim(), pod(requests={"cpu": "500"})))


def test_anti_affinity_keeps_pods_apart() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    found = planned(claim(), *(pod(f"p{i}", affinity=apart) for i in range(3)))
    assert sorted(placed(found)) == sorted(NAMES)
    assert "2 node(s) didn't match pod anti-affinity rules" in reason(found)


def test_pods_without_devices_use_resources() -> None:
    big = pod("big", template=None, requests={"cpu": "150"})
    found = planned(node(NAMES[0]), claim(), big, pod("p", requests={"cpu": "100"}), machines=1)
    assert [(one.pod.name, one.node) for one in found.others] == [("big", NAMES[0])]
    assert "1 Insufficient cpu" in reason(found)


def test_unknown_facts_of_a_shape_are_not_considered() -> None:
    found = planned(claim(), pod(requests={"memory": "1Gi"}, nodeSelector={"pool": "train"}))
    assert placed(found) == [NAMES[0]]
    assert plan_json(found)["not_considered"] == [
        "label pool: not known of all nodes",
        "memory: how much there is, is not known of all nodes",
    ]


def test_volumes_and_other_schedulers_are_not_considered() -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    found = planned(claim(), pod(volumes=[volume], schedulerName="volcano"))
    assert [text.partition(":")[0] for text in found.not_considered] == ["scheduler volcano", "volumes"]


def test_a_part_of_a_gpu_is_not_taken_from_a_machine_without_parts() -> None:
    one = pod(template=None)
    one["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/mig-1g.23gb": 1}}
    assert "2 Insufficient nvidia.com/mig-1g.23gb" in reason(planned(one))


def test_half_a_gpu_is_refused_by_the_server() -> None:
    one = pod(template=None)
    one["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "0.5"}}
    assert reason(planned(one)) == "container main: nvidia.com/gpu must be a whole number, not 0.5"


def test_reports_preemption_of_lower_priority_pods() -> None:
    classes = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in (("low", 1), ("high", 2))
    ]
    low = pod("low", template=None, requests={"cpu": "150"}, priorityClassName="low")
    high = pod("high", template=None, requests={"cpu": "150"}, priorityClassName="high")
    text = reason(planned(*classes, node(NAMES[0]), low, high, machines=1))
    assert text == (
        "0/1 nodes are available: 1 Insufficient cpu. kube-scheduler then preempts 1 pod of lower priority on "
        f"{NAMES[0]}"
    )


def quota(**hard: str) -> Object:
    names = {key.replace("_", "."): value for key, value in hard.items()}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": names}}


def test_a_quota_on_devices_of_a_class_stops_claims() -> None:
    own = quota()
    own["spec"]["hard"] = {"dranet.deviceclass.resource.k8s.io/devices": "3"}
    found = planned(own, claim(count=2), pod("a"), pod("b"))
    assert [one.pod.name for one in found.pods] == ["a"]
    assert reason(found) == (
        "ResourceQuota q forbids claim d: dranet.deviceclass.resource.k8s.io/devices 2 wanted, 1 left"
    )


def test_a_quota_on_pods_counts_those_in_use() -> None:
    own = quota(pods="2") | {"status": {"used": {"pods": "1"}}}
    found = planned(own, claim(), pod("a"), pod("b"))
    assert reason(found) == "ResourceQuota q forbids the pod: pods 1 wanted, 0 left"


def test_quota_on_cpu_requires_container_requests() -> None:
    assert reason(planned(quota(requests_cpu="10"), claim(), pod())) == (
        "ResourceQuota q forbids the pod: its containers must set requests.cpu"
    )


def test_other_resources_of_a_quota_are_not_considered() -> None:
    own = quota(pods="9", requests_cpu="9")
    own["spec"]["hard"] |= {"count/jobs.batch": "1", "secrets": "3"}
    assert planned(own, claim(), pod(requests={"cpu": "1"})).not_considered == (
        "ResourceQuota q: count/jobs.batch, secrets; only pods and claims are counted",
    )


def limits(**item: Any) -> Object:
    spec = {"limits": [{"type": "Container", **item}]}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r"}, "spec": spec}


def test_a_limit_range_adds_requests() -> None:
    found = planned(limits(defaultRequest={"cpu": "150"}), node(NAMES[0]), claim(), pod("a"), pod("b"), machines=1)
    assert [one.pod.name for one in found.pods] == ["a"]
    assert "1 Insufficient cpu" in reason(found)


def test_a_limit_range_forbids_what_is_above_it() -> None:
    one = pod()
    one["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "8"}}
    assert reason(planned(limits(max={"cpu": "4"}), claim(), one)) == (
        "LimitRange r forbids the pod: cpu in the limits of container main must be at most 4"
    )


def test_a_limit_range_for_pods_adds_up_their_containers() -> None:
    one = pod()
    half = {"resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}}
    one["spec"]["containers"] = [one["spec"]["containers"][0] | half, {"name": "other", "image": "i", **half}]
    assert reason(planned(limits(type="Pod", max={"cpu": "4"}), claim(), one)) == (
        "LimitRange r forbids the pod: cpu in the limits of the pod as a whole must be at most 4"
    )


def test_pod_limit_range_sets_no_defaults_and_requires_amounts() -> None:
    assert reason(planned(limits(type="Pod", min={"memory": "1Gi"}), claim(), pod())) == (
        "LimitRange r forbids the pod: memory is not in the requests of the pod as a whole, which must be at least 1Gi"
    )


def test_a_limit_range_bounds_how_far_a_limit_is_above_its_request() -> None:
    one = pod()
    one["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "limits": {"cpu": "8"}}
    assert reason(planned(limits(maxLimitRequestRatio={"cpu": "4"}), claim(), one)) == (
        "LimitRange r forbids the pod: the limit of cpu of container main may be 4 times its request at most"
    )


@pytest.mark.parametrize("label", [None, "true"])
def test_admin_access_needs_a_label_on_its_namespace(label: str | None) -> None:
    labels = {"resource.kubernetes.io/admin-access": label} if label else {}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}}
    found = planned(space, claim(adminAccess=True), pod())
    assert (len(found.pods), len(found.unschedulable)) == ((1, 0) if label else (0, 1))
    assert label or "adminAccess: namespace default needs the label" in reason(found)


def test_admin_access_in_unknown_namespace_is_not_considered() -> None:
    assert planned(claim(adminAccess=True), pod()).not_considered == (
        "admin access: whether namespace default has the label resource.kubernetes.io/admin-access",
    )


def test_a_daemon_set_makes_no_pods_for_nodes_it_does_not_want() -> None:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod(nodeSelector={"pool": "x"})["spec"]}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    own = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "ds"}, "spec": spec}
    found = planned(node(NAMES[0], labels={"pool": "x"}), node(NAMES[1], labels={"pool": "y"}), claim(), own)
    assert (placed(found), found.unschedulable) == ([NAMES[0]], ())


def test_known_classes_outside_the_input_are_assumed() -> None:
    found = planned(claim(), pod())
    assert [one.why for one in found.assumed] == ["class dranet is not in the input; installed by dranet's chart"]


def test_nic_of_a_running_pod_is_not_shared_with_a_new_one() -> None:
    held = claim("held") | {"kind": "ResourceClaim"}
    held["spec"] = held["spec"]["spec"]
    result = {"request": "nic", "driver": "dra.net", "pool": NAMES[0], "device": "pci-0000-91-00-0"}
    user = {"resource": "pods", "name": "first", "uid": "u"}
    held["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
    second = pod("second", template=None, resourceClaims=[{"name": "d", "resourceClaimName": "held"}])
    assert "pod first also uses claim held" in reason(planned(held, second))
