"""A cluster as it is, recorded or live: what is placed stays placed, what waits is planned among it."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from typing import Any

import pytest
import yaml

from dranet.advise.explain import explain
from dranet.advise.lint import lint_manifests
from dranet.advise.manifests import Manifests, Object, read_text
from dranet.advise.plan.hardware import Hardware, hardware_of_slices
from dranet.advise.plan.planning import Plan, plan
from dranet.core.errors import DranetError, InvalidInput
from tests.inputs import claim, objects, shapes, workers

GB300 = "nd-gb300-v6-0"
NUMA = "resource.kubernetes.io/numaNode"
NICS = [f"pci-010{i}-00-00-0" for i in range(1, 5)]


def dump(*items: dict[str, Any]) -> list[Object]:
    return read_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": list(items)}), "dump.yaml")[0]


def held_claim(name: str, *nics: str, node: str = GB300) -> dict[str, Any]:
    results = [{"request": "nic", "driver": "dra.net", "pool": node, "device": nic} for nic in nics]
    request = {"name": "nic", "exactly": {"deviceClassName": "dranet", "count": max(len(nics), 1)}}
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
        "status": {"allocation": {"devices": {"results": results}}} if nics else {},
    }  # fmt: skip


def pod(
    name: str, ref: dict[str, str] | None = None, *, phase: str = "", node: str = "", gpus: int = 0
) -> dict[str, Any]:
    limits = {"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}
    spec: dict[str, Any] = {"containers": [{"name": "c", **limits}], **({"nodeName": node} if node else {})}
    status: dict[str, Any] = {"phase": phase} if phase else {}
    if ref:
        spec["resourceClaims"] = [{"name": "d", **ref}]
        if "resourceClaimTemplateName" in ref and phase:
            status["resourceClaimStatuses"] = [{"name": "d", "resourceClaimName": f"{name}-d-x7k2p"}]
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def planned(manifests: Manifests, hardware: Hardware | None = None) -> Plan:
    return plan(manifests, hardware or shapes("nd-gb300-v6"))


def picks(found: Plan) -> dict[str, list[str]]:
    return {one.pod.name: [r.device for group in one.placement.devices for r in group] for one in found.pods}


def test_existing_claims_hold_their_devices() -> None:
    found = planned(Manifests(objects(claim("nic: dranet"), workers(1)), dump(held_claim("other", *NICS[:2]))))
    assert picks(found) == {"w-0": [NICS[2]]}


def test_existing_templates_are_found_and_not_planned() -> None:
    background = objects(claim("nic: dranet"), claim("nic: dranet 4", name="big"))
    assert picks(planned(Manifests(objects(workers(1)), background))) == {"w-0": [NICS[0]]}


def test_existing_objects_resolve_references_and_are_not_linted() -> None:
    findings = lint_manifests(Manifests(objects(workers(1)), objects(claim("gpu: gpu.nvidia.com\nnic: unknown"))))
    assert "unknown-reference" not in [finding.rule for finding in findings]


def test_a_pod_that_names_an_allocated_claim_goes_where_its_devices_are() -> None:
    items = dump(held_claim("mine", NICS[3], node="nd-gb300-v6-1"), pod("p", {"resourceClaimName": "mine"}))
    found = planned(Manifests(items), shapes("nd-gb300-v6=3"))
    assert (found.pods[0].placement.node, picks(found)) == ("nd-gb300-v6-1", {"p": [NICS[3]]})


def test_a_waiting_pod_keeps_the_claim_that_was_made_for_it() -> None:
    ref = {"resourceClaimTemplateName": "t"}
    items = dump(held_claim("p-d-x7k2p", NICS[2]), pod("p", ref, phase="Pending"))
    assert picks(planned(Manifests([*items, *objects(claim("nic: dranet 4"))]))) == {"p": [NICS[2]]}


def test_pods_that_have_a_node_are_not_placed_again() -> None:
    items = dump(
        held_claim("a-d-x7k2p", NICS[0]),
        pod("a", {"resourceClaimTemplateName": "t"}, phase="Running", node=GB300),
        pod("b", {"resourceClaimTemplateName": "t"}, phase="Pending"),
    )
    found = planned(Manifests([*items, *objects(claim("nic: dranet"))]))
    assert picks(found) == {"b": [NICS[1]]}


def test_running_pods_hold_gpus_and_finished_pods_do_not() -> None:
    items = dump(
        pod("a", phase="Running", node=GB300, gpus=2),
        pod("b", phase="Succeeded", node=GB300, gpus=2),
        pod("c", phase="Pending", gpus=3),
        pod("d", phase="Pending", gpus=2),
    )
    found = planned(Manifests(items))
    assert [one.pod.name for one in found.pods] == ["d"]
    assert [refusal.reason for refusal in found.unschedulable] == [
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: "
        "0/1 nodes are available: 1 No preemption victims found for incoming pod."
    ]


def test_reports_nothing_to_plan_when_all_is_placed() -> None:
    with pytest.raises(InvalidInput, match="placed already"):
        planned(Manifests(dump(held_claim("mine", NICS[0]))))


def test_pods_a_workload_already_has_are_not_made_twice() -> None:
    items = [*dump(pod("w-0", phase="Running", node=GB300)), *objects(claim("nic: dranet"), workers(2))]
    assert list(picks(planned(Manifests(items)))) == ["w-1"]


def test_a_workload_written_twice_counts_as_it_was_written_last() -> None:
    found = planned(Manifests(objects(claim("nic: dranet"), workers(3), workers(1))))
    assert list(picks(found)) == ["w-0"]


def test_objects_without_a_name_are_never_the_same() -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {generateName: p-}\n"
        "spec: {resourceClaims: [{name: d, resourceClaimTemplateName: t}]}\n---\n"
    )
    assert len(planned(Manifests(objects(claim("nic: dranet"), text, text))).pods) == 2


def test_an_explanation_leaves_claims_out_that_hold_their_devices() -> None:
    items = dump(held_claim("mine", NICS[0]), pod("p", {"resourceClaimName": "mine"}, gpus=5))
    (found,) = explain(Manifests(items), shapes("nd-gb300-v6"))
    assert found.nodes[0].requests == ()
    assert found.nodes[0].summary == "Insufficient nvidia.com/gpu: 5 wanted, 4 free"


def test_required_affinity_and_selectors_choose_nodes() -> None:
    one = pod("p", {"resourceClaimTemplateName": "t"})
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    one["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"nd-gb300-v6-{i}", "labels": {"zone": zone}}}
        for i, zone in enumerate("abb")
    ]
    given = [*dump(one, *nodes), *objects(claim("nic: dranet"))]
    assert planned(Manifests(given), shapes("nd-gb300-v6=3")).pods[0].placement.node == "nd-gb300-v6-1"
    one["spec"]["nodeSelector"] = {"zone": "a"}
    given = [*dump(one, *nodes), *objects(claim("nic: dranet"))]
    (refusal,) = planned(Manifests(given), shapes("nd-gb300-v6=3")).unschedulable
    assert refusal.reason.startswith("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. ")


@pytest.mark.parametrize(
    ("selector", "node"),
    [({"kubernetes.io/hostname": "nd-gb300-v6-2"}, "nd-gb300-v6-2"), ({"zone": "unknown"}, "nd-gb300-v6-0")],
)
def test_of_machines_without_labels_only_the_name_is_asked(selector: dict[str, str], node: str) -> None:
    one = pod("p", {"resourceClaimTemplateName": "t"})
    one["spec"]["nodeSelector"] = selector
    found = planned(Manifests([*dump(one), *objects(claim("nic: dranet"))]), shapes("nd-gb300-v6=3"))
    assert found.pods[0].placement.node == node


EXTENDED = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: rdma}
spec:
  selectors: [{cel: {expression: 'device.driver == "dra.net"'}}]
  extendedResourceName: example.org/rdma-nic
---
"""


@pytest.mark.parametrize("resource", ["example.org/rdma-nic", "deviceclass.resource.kubernetes.io/rdma"])
def test_an_extended_resource_is_a_claim_of_its_class(resource: str) -> None:
    one = pod("p")
    one["spec"]["containers"].append({"name": "x", "resources": {"limits": {resource: 2, "cpu": 3}}})
    found = planned(Manifests([*objects(EXTENDED), *dump(one)]))
    assert picks(found) == {"p": NICS[:2]}
    assert found.pods[0].placement.devices[0][0].request == "container-1-request-1"


JUNK: list[Any] = [None, 0, -1, 1.5, "", "x", [], {}, [None], {"a": None}, True, "9" * 30, 10**20]
WHOLE = [
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": GB300, "labels": {"a": "b"}},
     "spec": {"unschedulable": False}, "status": {"allocatable": {"nvidia.com/gpu": "4"}}},
    held_claim("held", NICS[0]),
    held_claim("idle"),
    pod("a", {"resourceClaimTemplateName": "t"}, phase="Running", node=GB300, gpus=1),
    pod("b", {"resourceClaimTemplateName": "t"}, phase="Pending", gpus=1),
    *(obj.data for obj in objects(claim("gpu: gpu.nvidia.com\nnic: dranet", f"gpu, nic: {NUMA}"))),
    *({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **raw} for raw in shapes("nd-gb300-v6").slices),
]  # fmt: skip


def spoil(dice: random.Random, value: Any) -> None:
    """Put something else, or nothing, where one value stands."""
    inner = value
    for _ in range(dice.randint(1, 9)):
        keys = list(inner) if isinstance(inner, dict) else range(len(inner)) if isinstance(inner, list) else ()
        if not keys:
            break
        value, key = inner, dice.choice(list(keys))
        inner = value[key]
    if dice.random() < 0.3:
        del value[key]
    else:
        value[key] = copy.deepcopy(dice.choice(JUNK))


@pytest.mark.parametrize("ten", range(6))
def test_invalid_values_in_a_cluster_dump_do_not_crash(ten: int) -> None:
    for seed in range(ten * 10, ten * 10 + 10):
        dice, items = random.Random(seed), copy.deepcopy(WHOLE)
        for _ in range(dice.randint(1, 4)):
            spoil(dice, dice.choice(items))
        given = Manifests(read_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "dump.json")[0])
        lint_manifests(given)
        with contextlib.suppress(DranetError):
            hardware = hardware_of_slices(given.checked_slices())
            plan(given, hardware)
            explain(given, hardware)
