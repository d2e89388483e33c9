"""Explanations: what rules devices out, the smallest change that helps, and better devices that were free."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dranet.advise.explain import (
    Explanation,
    explain,
    explain_claim,
    explain_held,
    explanation_json,
    explanation_text,
    find_claim,
)
from dranet.advise.manifests import Manifests
from dranet.advise.plan.hardware import Hardware
from dranet.advise.plan.planning import plan
from dranet.core.errors import DranetError
from tests.inputs import claim, manifests, shapes, workers

DOCUMENTS = Path(__file__).parents[2] / "data" / "documents"
ROOT = "resource.kubernetes.io/pcieRoot"


def one(found: Manifests, *specs: str) -> Explanation:
    (explained,) = explain(found, shapes(*specs))
    return explained


def test_an_attribute_one_driver_lacks_is_the_reason() -> None:
    found = one(manifests(claim("gpu: gpu.nvidia.com\nnic: dranet", f"gpu, nic: {ROOT}")), "nd-gb300-v6")
    (node,) = found.nodes
    assert node.summary == f"request nic needs 1, 0 fit: 4 ruled out by constraint (has no attribute {ROOT})"


def test_the_smallest_change_comes_first_and_really_fits() -> None:
    text = claim("gpu: gpu.nvidia.com 3\nnic: dranet", f"gpu, nic: {ROOT}")
    found = one(manifests(text), "a4-highgpu-8g")
    grouped, *smaller = found.changes
    assert grouped.text.startswith(
        "one pcieRoot of a4-highgpu-8g holds at most 2 GPUs and 2 NICs, 3 and 1 are requested"
    )
    assert [change.text for change in smaller] == [
        f"take out the constraint on {ROOT}",
        "lower the count of request gpu to 2",
    ]
    assert len(plan(manifests(text.replace("count: 3", "count: 2")), shapes("a4-highgpu-8g")).pods) == 1


def test_two_changes_are_found_where_one_is_not_enough() -> None:
    found = one(manifests(claim("gpu: gpu.nvidia.com 9\nnic: dranet 9")), "a4-highgpu-8g")
    assert [change.text for change in found.changes] == [
        "lower the count of request gpu to 8 and lower the count of request nic to 8"
    ]


def test_devices_in_use_are_a_reason_and_waiting_is_a_change() -> None:
    sources = claim("nic: dranet 8"), workers(2)
    first, second = explain(manifests(*sources), shapes("a4-highgpu-8g"))
    assert first.placed is not None
    assert "8 ruled out by in use" in second.nodes[0].summary
    assert "wait until devices in use are free again" in [change.text for change in second.changes]


def test_a_selector_is_quoted_with_its_result() -> None:
    text = "'device.attributes[\"dra.net\"].numaNode == 7'"
    own = claim("nic: dranet").replace("dranet}", f"dranet, selectors: [{{cel: {{expression: {text}}}}}]}}")
    found = one(manifests(own), "a4-highgpu-8g")
    ruled_out = [device for device in found.nodes[0].requests[0].devices if device.rule == "selector #0"]
    assert len(ruled_out) == 8
    assert ruled_out[0].detail == 'device.attributes["dra.net"].numaNode == 7: is false'


def test_a_tainted_device_is_named_and_a_toleration_offered() -> None:
    hardware = shapes("a4-highgpu-8g")
    for device in hardware.slices[0]["spec"]["devices"]:
        device["taints"] = [{"key": "dra.net/link-down", "effect": "NoSchedule"}]
    (found,) = explain(manifests(claim("nic: dranet")), hardware)
    assert "taint (dra.net/link-down:NoSchedule)" in found.nodes[0].summary
    assert [change.text for change in found.changes] == ["tolerate the devices' taints"]


def test_equal_nodes_are_reported_once() -> None:
    found = one(manifests(claim("gpu: gpu.nvidia.com 9")), "a4-highgpu-8g=50")
    assert [len(node.nodes) for node in found.nodes] == [50]


def test_too_few_gpus_of_a_device_plugin_are_counted() -> None:
    (found,) = explain(manifests(claim("nic: dranet"), workers(1, limits="nvidia.com/gpu: 9")), shapes("a4-highgpu-8g"))
    assert found.nodes[0].summary == "Insufficient nvidia.com/gpu: 9 wanted, 8 free"


def test_a_broken_claim_has_its_syntax_error_as_reason() -> None:
    (found,) = explain(manifests(DOCUMENTS / "2-template-nic.yaml"), shapes("a4-highgpu-8g"))
    assert "Syntax error: missing ')'" in found.reason
    assert (found.nodes, found.changes) == ((), ())


def test_better_devices_that_were_free_are_named() -> None:
    found = one(manifests(DOCUMENTS / "4-1nic-unaligned.yaml"), "nd-gb300-v6")
    assert found.better is not None
    names, quality = found.better
    assert (names, str(quality.alignment.worst)) == (("gpu-0", "pci-0101-00-00-0"), "NODE")


def test_the_best_devices_have_no_better() -> None:
    assert one(manifests(DOCUMENTS / "4-1nic-aligned.yaml"), "nd-gb300-v6").better is None


def test_devices_passed_over_are_those_before_the_pick() -> None:
    found = one(manifests(DOCUMENTS / "4-1nic-unaligned.yaml"), "nd-gb300-v6")
    passed = {
        device.device for report in found.passed_over for device in report.devices if device.rule == "selector #0"
    }
    assert passed == {"dra.net/pci-0101-00-00-0", "dra.net/pci-0102-00-00-0"}


HELD = claim("gpu: gpu.nvidia.com\nnic: dranet", kind="ResourceClaim", name="held").removesuffix("---\n") + (
    "status: {allocation: {devices: {results: ["
    "{request: gpu, driver: gpu.nvidia.com, pool: nd-gb300-v6-0, device: gpu-0},"
    "{request: nic, driver: dra.net, pool: nd-gb300-v6-0, device: pci-0104-00-00-0}]}}}\n"
)


def test_a_claim_of_a_cluster_is_explained_with_what_is_free_now() -> None:
    found = explain_held(manifests(HELD), shapes("nd-gb300-v6"), "", "held")
    assert found.placed is not None and str(found.placed.quality.alignment.worst) == "SYS"
    assert found.better is not None and found.better[0][1] == "pci-0101-00-00-0"


def test_a_claim_deleted_under_its_pod_lists_what_it_waits_for() -> None:
    deleted = HELD.replace("name: held", "name: held, deletionTimestamp: '2026-11-15T08:00:00Z'")
    deleted = deleted.replace("status: {", "status: {reservedFor: [{resource: pods, name: worker-0, uid: u}], ")
    found = explain_held(manifests(deleted), shapes("nd-gb300-v6"), "", "held")
    assert found.ending == "deleted at 2026-11-15T08:00:00Z; it keeps its devices until worker-0 is gone"
    assert found.ending in explanation_text([found]) and explanation_json([found])["pods"][0]["ending"] == found.ending


def test_a_cordoned_node_is_a_reason_of_its_own() -> None:
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: a4-highgpu-8g-0}\nspec: {unschedulable: true}\n---\n"
    found = one(manifests(node, claim("nic: dranet"), workers(1)), "a4-highgpu-8g")
    assert found.reason.startswith("0/1 nodes are available: 1 node(s) were unschedulable. ")
    assert found.nodes[0].summary.startswith("cordoned")


@pytest.mark.parametrize(("name", "message"), [("absent", "no ResourceClaim"), ("idle", "not allocated")])
def test_a_claim_that_cannot_be_explained_is_refused(name: str, message: str) -> None:
    idle = claim("nic: dranet", kind="ResourceClaim", name="idle")
    with pytest.raises(DranetError, match=message):
        explain_held(manifests(idle), shapes("nd-gb300-v6"), "default", name)


def test_text_and_json_contain_every_pod() -> None:
    found = explain(manifests(claim("nic: dranet 8"), workers(2)), shapes("a4-highgpu-8g"))
    made = explanation_json(found)
    assert [pod["verdict"] for pod in made["pods"]] == ["allocated", "impossible"]
    assert json.dumps(made)
    assert "w-0: on a4-highgpu-8g-0" in explanation_text(found) and "w-1: cannot be placed" in explanation_text(found)


def exactly(fields: str, name: str = "r") -> str:
    return (
        f"apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {{name: t}}\nspec:\n  spec:\n"
        f"    devices:\n      requests: [{{name: {name}, {fields}}}]\n---\n"
    )


def test_capacity_no_device_has_is_a_reason_and_taking_it_out_a_change() -> None:
    text = exactly("exactly: {deviceClassName: dranet, capacity: {requests: {dra.net/linkSpeed: 900G}}}")
    found = one(manifests(text), "a4-highgpu-8g")
    assert found.nodes[0].summary == (
        "request r needs 1, 0 fit: 8 ruled out by capacity (dra.net/linkSpeed: 900G wanted, 400G offered)"
    )
    assert [change.text for change in found.changes] == ["take out the capacity of request r"]


def test_used_up_counters_are_a_reason() -> None:
    hardware = shapes("a4-highgpu-8g")
    spec = hardware.slices[0]["spec"]
    for device in spec["devices"]:
        device["consumesCounters"] = [{"counterSet": "power", "counters": {"watts": {"value": "700"}}}]
    pool = {**spec["pool"], "resourceSliceCount": 2}
    counters = {
        "metadata": {"name": "counters"},
        "spec": {
            "driver": spec["driver"], "nodeName": spec["nodeName"], "pool": pool,
            "sharedCounters": [{"name": "power", "counters": {"watts": {"value": "600"}}}],
        },
    }  # fmt: skip
    spec["pool"] = pool
    (found,) = explain(manifests(claim("nic: dranet")), Hardware((*hardware.slices, counters), hardware.machines))
    assert "8 ruled out by counters (shared counters used up: power/watts)" in found.nodes[0].summary


def test_a_request_for_all_fails_when_one_is_in_use() -> None:
    everything = exactly("exactly: {deviceClassName: dranet, allocationMode: All}").replace("name: t}", "name: all}")
    sources = claim("nic: dranet"), everything, workers(1), workers(1, "all", name="x")
    first, second = explain(manifests(*sources), shapes("a4-highgpu-8g"))
    assert first.placed is not None
    assert second.nodes[0].summary == "request r needs all, 7 fit: 1 ruled out by in use (held by another claim)"
    assert second.changes[0].text == "lower the count of request r from all to 7"


def test_of_alternatives_each_has_its_reason() -> None:
    subs = "{name: two, deviceClassName: dranet, count: 12}, {name: one, deviceClassName: dranet, count: 9}"
    found = one(manifests(exactly(f"firstAvailable: [{subs}]")), "a4-highgpu-8g")
    assert found.nodes[0].summary == "request r/two needs 12, 8 fit; request r/one needs 9, 8 fit"
    assert "lower the count of request r/one to 8" in [change.text for change in found.changes]


def test_a_missing_class_has_to_be_created() -> None:
    found = one(manifests(claim("nic: unknown")), "a4-highgpu-8g")
    assert [change.text for change in found.changes] == ["create the DeviceClass unknown, or add its file with -f"]
    assert "    - create the DeviceClass unknown, or add its file with -f" in explanation_text([found]).splitlines()


def test_devices_of_another_class_are_only_counted_even_if_in_use() -> None:
    sources = claim("gpu: gpu.nvidia.com 8"), claim("nic: dranet 9", name="n"), workers(1), workers(1, "n", name="x")
    _, second = explain(manifests(*sources), shapes("a4-highgpu-8g"))
    assert "      8 of another class" in explanation_text([second]).splitlines()
    assert "in use:" not in explanation_text([second])


def test_a_waiting_claim_is_explained_by_name() -> None:
    idle = claim("nic: dranet 9", kind="ResourceClaim", name="idle")
    here = manifests(idle)
    found = explain_claim(here, shapes("nd-gb300-v6"), find_claim(here, "", "idle"))
    assert found.reason.startswith("0/1 nodes are available: 1 cannot allocate all claims. ")


def test_where_there_are_only_allocated_claims_each_is_explained() -> None:
    (found,) = explain(manifests(HELD), shapes("nd-gb300-v6"))
    assert found.placed is not None and found.placed.placement.node == "nd-gb300-v6-0"


def test_claim_on_unknown_machine_asks_for_slices() -> None:
    with pytest.raises(DranetError, match=r"has devices of nd-gb300-v6-0, which is not in the input: .* --slices"):
        explain(manifests(HELD), shapes("a4-highgpu-8g"))


def test_reports_best_case_for_gpus_of_a_device_plugin() -> None:
    found = explain(manifests(claim("nic: dranet"), workers(1, limits="nvidia.com/gpu: 1")), shapes("a4-highgpu-8g"))
    assert "the GPUs come from a device plugin, any that are free: at best PIX" in explanation_text(found)


def pinned(selector: str) -> str:
    return claim("gpu: gpu.nvidia.com\nnic: dranet", f"gpu, nic: {ROOT}") + workers(1).replace(
        "    spec:\n", f"    spec:\n      nodeSelector: {{{selector}}}\n"
    )


def test_a_node_that_its_selector_rules_out_is_not_blamed_on_the_claim() -> None:
    (found,) = explain(manifests(pinned("kubernetes.io/hostname: other")), shapes("a4-highgpu-8g"))
    (node,) = found.nodes
    assert node.requests == (), "its devices do not matter"
    assert node.summary == (
        "its nodeSelector asks for kubernetes.io/hostname=other; the node has kubernetes.io/hostname=a4-highgpu-8g-0"
    )
    (change,) = found.changes
    assert change.text == "take kubernetes.io/hostname: other out of the pod's nodeSelector"


def test_too_many_devices_for_one_root_suggests_a_grouped_claim() -> None:
    text = claim("gpu: gpu.nvidia.com 3\nnic: dranet 3", f"gpu, nic: {ROOT}")
    change = one(manifests(text), "a4-highgpu-8g").changes[0]
    assert change.text.startswith(
        "one pcieRoot of a4-highgpu-8g holds at most 2 GPUs and 2 NICs, 3 and 3 are requested"
    )
    assert "dranet suggest --gpus 3 --nics 3" in change.text
    assert not plan(manifests(change.claim), shapes("a4-highgpu-8g")).unschedulable, "and that claim fits"


def test_devices_in_use_do_not_count_as_a_root_that_is_too_small() -> None:
    text = claim("gpu: gpu.nvidia.com 2\nnic: dranet 2", f"gpu, nic: {ROOT}") + workers(5)
    last = explain(manifests(text), shapes("a4-highgpu-8g"))[-1]
    assert [change.text for change in last.changes] == ["wait until devices in use are free again"]


def test_suggests_correct_name_for_misspelt_attribute() -> None:
    text = claim("nic: dranet").replace(
        "deviceClassName: dranet",
        "deviceClassName: dranet, selectors: [{cel: {expression: 'device.attributes[\"dra.net\"].rmda == true'}}]",
    )
    found = one(manifests(text), "a4-highgpu-8g")
    assert [change.text for change in found.changes] == [
        "no device has dra.net/rmda; did you mean rdma? Write it in selector #0 of request nic"
    ]


def test_suggests_correct_name_for_misspelt_constraint() -> None:
    found = one(manifests(claim("gpu: gpu.nvidia.com\nnic: dranet", f"gpu, nic: {ROOT[:-2]}t")), "a4-highgpu-8g")
    assert [change.text for change in found.changes] == [
        f"no device has {ROOT[:-2]}t; did you mean pcieRoot? Match on that"
    ]


def test_suggests_correct_name_for_misspelt_class() -> None:
    (change,) = one(manifests(claim("nic: drannet")), "a4-highgpu-8g").changes
    assert change.text.startswith("did you mean dranet? Else create the DeviceClass drannet")


def test_lists_what_was_not_considered_as_plan_does() -> None:
    volume = "      volumes: [{name: v, ephemeral: {}}]\n      containers:"
    given = manifests(claim("nic: dranet"), workers(1).replace("      containers:", volume))
    (found,) = explain(given, shapes("a4-highgpu-8g"))
    assert set(plan(given, shapes("a4-highgpu-8g")).not_considered) == set(found.not_considered)
    assert "volumes: where PersistentVolumes are" in explanation_text([found]).partition("not considered:")[2]
    assert explanation_json([found], ["pods: forbidden"])["not_considered"] == [
        *found.not_considered,
        "pods: forbidden",
    ]


STOPPED = {
    "a quota": (
        "---\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {pods: 0}}\n",
        "",
        "ResourceQuota q forbids the pod: pods 1 wanted, 0 left",
    ),
    "a gate": ("", "schedulingGates: [{name: x/y}]", "Scheduling is blocked due to non-empty scheduling gates"),
    "its own nodeName": ("", "nodeName: a4-highgpu-8g-0", "spec.nodeName is a4-highgpu-8g-0"),
}


@pytest.mark.parametrize("what", STOPPED)
def test_a_pod_that_no_scheduler_decides_about_is_not_blamed_on_devices(what: str) -> None:
    objects, spec, reason = STOPPED[what]
    pods = workers(1).replace("    spec:\n", f"    spec:\n      {spec}\n")
    found = one(manifests(claim("nic: dranet") + pods + objects), "a4-highgpu-8g")
    assert found.reason.startswith(reason)
    assert (found.nodes, found.changes) == ((), ())
    assert explanation_text([found]).splitlines()[1:] == [f"  {found.reason}"]


def test_a_pod_without_devices_has_none_to_explain() -> None:
    (found,) = explain(manifests(PLAIN_POD), shapes("a4-highgpu-8g"))
    assert explanation_text([found]).splitlines()[:2] == [
        "plain: on a4-highgpu-8g-0",
        "  it requests no device that a driver publishes",
    ]


PLAIN_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec: {containers: [{name: c, image: i}]}
"""
