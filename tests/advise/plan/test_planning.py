"""Plans: the devices the documents show, the distances between them, and nodes that fill up."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dranet.advise.manifests import Manifests, must_read, read_text
from dranet.advise.plan.hardware import hardware_of_slices
from dranet.advise.plan.planning import Plan, plan, rated_jobs
from dranet.advise.plan.render import plan_json, timeout_risk
from dranet.core.errors import InvalidInput
from dranet.machines.bandwidth import Estimate
from tests.advise.plan.conftest import Planner
from tests.inputs import claim, manifests, shapes, workers

DOCUMENTS = Path(__file__).parents[2] / "data" / "documents"
EXAMPLES = Path(__file__).parents[3] / "examples"
DATA = DOCUMENTS.parent
ROOT = "resource.kubernetes.io/pcieRoot"
PAIR = claim("gpu: gpu.nvidia.com\nnic: dranet", f"gpu, nic: {ROOT}")


def document(*names: str) -> list[Path]:
    return [DOCUMENTS / f"{name}.yaml" for name in names]


def devices(found: Plan, pod: int = 0) -> list[str]:
    return [result.device for group in found.pods[pod].placement.devices for result in group]


def worst(found: Plan) -> list[str]:
    return [str(one.quality.alignment.worst) for one in found.pods]


def test_document_1_gets_all_nics_of_two_machines(planned: Planner) -> None:
    found = planned(*document("1-class", "1-template", "1-workload"), shape="a4-highgpu-8g=2")
    made = plan_json(found)
    interfaces = [d["interface"] for d in made["pods"][1]["claims"][0]["devices"]]
    assert interfaces == [f"gpu{i}rdma0" for i in range(8)]
    assert [pod["node"] for pod in made["pods"]] == ["a4-highgpu-8g-0", "a4-highgpu-8g-1"]
    assert worst(found) == ["PIX", "PIX"]


def test_document_1_with_four_workers_alternates_lower_and_upper_nics(planned: Planner) -> None:
    found = planned(*document("1-class", "1-template-4nics", "1-workload-4workers"), shape="a4-highgpu-8g=2")
    made = plan_json(found)
    first = [pod["claims"][0]["devices"][0]["interface"] for pod in made["pods"]]
    assert first == ["gpu0rdma0", "gpu0rdma0", "gpu4rdma0", "gpu4rdma0"]
    assert [(pod["alignment"]["worst"], pod["alignment"]["luckiest"]) for pod in made["pods"]] == [("SYS", "PIX")] * 4


def test_document_2_cannot_be_scheduled_for_its_syntax_error(planned: Planner) -> None:
    found = planned(*document("2-class", "2-template-gpu", "2-template-nic", "2-workload"), shape="a4-highgpu-8g=2")
    assert [refusal.pod.name for refusal in found.unschedulable] == ["nccl-gib-test-0", "nccl-gib-test-1"]
    assert "<input>:1:224: Syntax error: missing ')' at '<EOF>'" in found.unschedulable[0].reason


@pytest.mark.parametrize(
    ("template", "expected", "distance", "gbytes"),
    [
        ("4-1nic-aligned", ["gpu-0", "pci-0101-00-00-0"], "NODE", 56),
        ("4-2nic-aligned", ["gpu-0", "pci-0101-00-00-0", "pci-0102-00-00-0"], "NODE", 112),
        ("4-1nic-unaligned", ["gpu-0", "pci-0103-00-00-0"], "SYS", 25),
    ],
)
def test_document_4_gets_the_devices_it_shows(
    planned: Planner, template: str, expected: list[str], distance: str, gbytes: float
) -> None:
    found = planned(*document(template), shape="nd-gb300-v6")
    assert (devices(found), worst(found)) == (expected, [distance])
    assert found.pods[0].quality.busbw == pytest.approx(gbytes, rel=0.05)


def test_document_4_on_the_recorded_slices_is_the_same(planned: Planner) -> None:
    recorded = must_read(sorted(DATA.glob("gb300-*.yaml")))
    found = plan(manifests(*document("4-1nic-unaligned")), hardware_of_slices(Manifests(recorded).checked_slices()))
    assert (devices(found), worst(found)) == (["gpu-0", "pci-0103-00-00-0"], ["SYS"])


def test_document_5_gets_two_whole_machines(planned: Planner) -> None:
    found = planned(*document("5-class-and-template", "5-raycluster"), shape="a4-highgpu-8g=2")
    assert [len(devices(found, i)) for i in range(2)] == [8, 8]
    assert set(found.free.values()) == {(0, 0)}


EXAMPLE_RESULTS = [
    ("1-gke-rdma", "workers-8x8", "a4-highgpu-8g=2", 2, "PIX"),
    ("1-gke-rdma", "workers-4x4", "a4-highgpu-8g=2", 4, "PIX"),
    ("2-gke-nvidia-dra", "workers", "a4-highgpu-8g=2", 2, "PIX"),
    ("3-gke-mpi", "mpijob", "a3-ultragpu-8g=2", 2, "PIX"),
    ("4-aks-gb300", "mpijob", "nd-gb300-v6=2", 2, "NODE"),
    ("5-gke-ray", "raycluster", "a4-highgpu-8g=2", 2, "PIX"),
]


@pytest.mark.parametrize(("folder", "workload", "shape", "count", "distance"), EXAMPLE_RESULTS)
@pytest.mark.parametrize("claims", ["claims", "claims.v1beta1"])
def test_every_example_is_aligned(
    planned: Planner, claims: str, folder: str, workload: str, shape: str, count: int, distance: str
) -> None:
    files = [EXAMPLES / folder / f"{name}.yaml" for name in (claims, workload)]
    found = planned(*files, shape=shape)
    assert (worst(found), found.unschedulable) == ([distance] * count, ())


def test_pods_spread_over_empty_nodes_first(planned: Planner) -> None:
    found = planned(PAIR, workers(4), shape="a4-highgpu-8g=2")
    assert [one.placement.node[-1] for one in found.pods] == ["0", "1", "0", "1"]


def test_machine_fits_eight_pairs_and_refuses_the_ninth(planned: Planner) -> None:
    found = planned(PAIR, workers(9))
    assert (len(found.pods), worst(found)) == (8, ["PIX"] * 8)
    assert found.unschedulable[0].reason == (
        "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: "
        "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


def test_gpu_limits_fill_up_a_node(planned: Planner) -> None:
    found = planned(claim("nic: dranet"), workers(3, limits="nvidia.com/gpu: 4"))
    assert found.unschedulable[0].reason.startswith("0/1 nodes are available: 1 Insufficient nvidia.com/gpu. ")


def test_class_backs_gpu_extended_resource(planned: Planner) -> None:
    own = (
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu.nvidia.com}\nspec:\n"
        "  extendedResourceName: nvidia.com/gpu\n"
        "  selectors: [{cel: {expression: 'device.driver == \"gpu.nvidia.com\"'}}]\n---\n"
    )
    found = planned(own, claim("nic: dranet"), workers(1, limits="nvidia.com/gpu: 2"))
    assert devices(found) == ["pci-0000-91-00-0", "gpu-0", "gpu-1"]


def test_a_class_outside_the_input_is_unknown(planned: Planner) -> None:
    found = planned(claim("fpga: fpga.example.org"), workers(1))
    assert not found.unschedulable and found.unknown[0].reason == (
        "request fpga: no DeviceClass 'fpga.example.org' in the input; "
        "add its file with -f, or --assume-class fpga.example.org=DRIVER"
    )


_RECORDED = (
    "apiVersion: v1\nkind: Node\nmetadata: {name: a4-highgpu-8g-0}\n---\n"
    "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: other}\nspec: {}\n---\n"
)


def test_a_class_missing_in_a_recorded_cluster_is_named_as_the_scheduler_does(planned: Planner) -> None:
    found = planned(_RECORDED, claim("fpga: fpga.example.org"), workers(1))
    reason = found.unschedulable[0].reason
    assert "nodes are available: request fpga: device class fpga.example.org does not exist." in reason


def test_a_template_outside_the_input_is_unknown(planned: Planner) -> None:
    found = planned(workers(1, "nowhere"))
    assert not found.unschedulable and found.unknown[0].reason == (
        "no ResourceClaimTemplate 'nowhere' in namespace default of the input; add its file with -f"
    )


def test_a_template_missing_in_a_recorded_cluster_says_what_to_do(planned: Planner) -> None:
    found = planned(_RECORDED, workers(1, "nowhere"))
    reason = found.unschedulable[0].reason
    assert reason == 'could not find resourceclaimtemplate "default/nowhere": add its file with -f'


def test_one_known_alternative_decides(planned: Planner) -> None:
    request = "{name: gpu, firstAvailable: [{name: a, deviceClassName: FIRST}, {name: b, deviceClassName: SECOND}]}"
    template = claim("nic: dranet").replace("{name: nic, exactly: {deviceClassName: dranet}}", request)
    template = template.replace("FIRST", "gpu.amd.com")
    made = planned(template.replace("SECOND", "gpu.nvidia.com"), workers(1))
    assert devices(made) == ["gpu-0"]
    neither = planned(template.replace("SECOND", "gpu.intel.com"), workers(1))
    assert "the shape has no device of class 'gpu.amd.com'" in neither.unknown[0].reason


SHARING = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME}\n"
    "spec: {resourceClaims: [{name: d, resourceClaimName: c}]}\n---\n"
)


def test_a_claim_named_by_two_pods_is_allocated_once(planned: Planner) -> None:
    own = claim("gpu: gpu.nvidia.com", kind="ResourceClaim", name="c")
    found = planned(own, SHARING.replace("NAME", "a"), SHARING.replace("NAME", "b"), shape="a4-highgpu-8g=2")
    assert devices(found, 0) == devices(found, 1)
    assert [one.placement.node for one in found.pods] == ["a4-highgpu-8g-0"] * 2
    assert list(found.free.values()) == [(7, 8), (8, 8)]


def test_shared_claim_with_nic_serves_only_the_first_pod(planned: Planner) -> None:
    own = claim("nic: dranet", kind="ResourceClaim", name="c")
    found = planned(own, *(SHARING.replace("NAME", name) for name in "abc"), shape="a4-highgpu-8g=2")
    assert [one.pod.name for one in found.pods] == ["a"]
    assert [refusal.pod.name for refusal in found.unschedulable] == ["b", "c"]
    assert "pod a also uses claim c, and a NIC can be in one pod only" in found.unschedulable[0].reason


def test_child_links_without_address_serve_all_pods_of_a_claim(planned: Planner) -> None:
    child = "{interface: {type: Macvlan, addressing: Unnumbered}}"
    own = claim("nic: dranet", kind="ResourceClaim", name="c").removesuffix("---\n")
    own += f"    config: [{{opaque: {{driver: dra.net, parameters: {child}}}}}]\n---\n"
    found = planned(own, *(SHARING.replace("NAME", name) for name in "abc"), shape="a4-highgpu-8g=2")
    assert [one.pod.name for one in found.pods] == ["a", "b", "c"]
    assert found.unschedulable == ()


def test_devices_of_allocated_claims_are_not_free(planned: Planner) -> None:
    held = claim("nic: dranet", kind="ResourceClaim", name="held").removesuffix("---\n") + (
        "status: {allocation: {devices: {results: [{request: nic, driver: dra.net, pool: a4-highgpu-8g-0,"
        " device: pci-0000-91-00-0}]}}}\n---\n"
    )
    assert devices(planned(held, claim("nic: dranet"), workers(1))) == ["pci-0000-92-00-0"]


def test_a_pod_for_one_node_stays_there(planned: Planner) -> None:
    own = workers(1).replace(
        "    spec:\n", "    spec:\n      nodeSelector: {kubernetes.io/hostname: a4-highgpu-8g-1}\n"
    )
    assert planned(PAIR, own, shape="a4-highgpu-8g=2").pods[0].placement.node == "a4-highgpu-8g-1"


def test_claims_of_a_pod_with_node_name_are_never_allocated(planned: Planner) -> None:
    own = workers(1).replace("    spec:\n", "    spec:\n      nodeName: a4-highgpu-8g-1\n")
    found = planned(PAIR, own, shape="a4-highgpu-8g=2")
    assert not found.pods
    assert "the pod bypasses kube-scheduler, so its claims (d) are never allocated" in found.unschedulable[0].reason


def test_a_daemon_set_has_one_pod_on_every_node(planned: Planner) -> None:
    own = workers(1).replace("StatefulSet", "DaemonSet").replace("  replicas: 1\n", "")
    found = planned(claim("nic: dranet"), own, shape="a4-highgpu-8g=3")
    assert [one.placement.node[-1] for one in found.pods] == ["0", "1", "2"]


def test_templates_alone_are_each_tried_on_an_empty_machine(planned: Planner) -> None:
    templates = "".join(claim("nic: dranet 8", name=name) for name in ("a", "b"))
    assert [(one.pod.name, len(devices(planned(templates), i))) for i, one in enumerate(planned(templates).pods)] == [
        ("a", 8),
        ("b", 8),
    ]


def test_a_selector_that_fails_on_one_kind_of_node_fails_the_pod(planned: Planner) -> None:
    """The scheduler looks at all nodes, and an error on one of them ends the attempt."""
    broken = claim("nic: dranet").replace(
        "deviceClassName: dranet",
        'deviceClassName: dranet, selectors: [{cel: {expression: \'device.attributes["dra.net"].ifName == "x"\'}}]',
    )
    found = plan(manifests(broken, workers(1)), shapes("a4-highgpu-8g", "nd-gb300-v6"))
    assert found.unschedulable[0].reason.startswith('running "DynamicResources" filter plugin: claim default/w-0-d')


def test_equal_nodes_give_the_same_answers_as_single_nodes() -> None:
    """Answers read for equal nodes are those the allocator gives when asked for each."""
    hardware = shapes("a4-highgpu-8g=5")
    found = plan(manifests(PAIR, workers(40)), hardware)
    alone = plan(manifests(PAIR, workers(8)), shapes("a4-highgpu-8g"))
    one_node = [devices(found, i) for i, p in enumerate(found.pods) if p.placement.node == "a4-highgpu-8g-3"]
    assert one_node == [devices(alone, i) for i in range(8)]


def test_selector_on_mac_matches_one_node_only() -> None:
    """A MAC differs from node to node, so a selector that names one fits exactly one node."""
    text = 'device.attributes["dra.net"].mac == "7e:75:3c:82:88:01"'
    own = claim("nic: dranet").replace("dranet}", f"dranet, selectors: [{{cel: {{expression: '{text}'}}}}]}}")
    found = plan(manifests(own, workers(1)), shapes("a4-highgpu-8g=4"))
    assert found.pods[0].placement.node == "a4-highgpu-8g-2"


def test_a_job_is_as_fast_as_its_pods_together(planned: Planner) -> None:
    found = planned(PAIR, workers(2), shape="a4-highgpu-8g=2")
    (job,) = rated_jobs(found)
    expected, best = job.main
    assert isinstance(expected, Estimate) and expected == best
    assert (job.workload, round(expected.gbytes, 1)) == ("StatefulSet/w", 46.2)
    assert expected.gbytes == pytest.approx(46.93, rel=0.05)  # arXiv 2506.23628, these devices


def test_json_has_the_documented_fields(planned: Planner) -> None:
    made = plan_json(planned(PAIR, workers(9)))
    pod = made["pods"][0]
    assert {"pod", "node", "claims", "alignment", "busbw"} <= set(pod)
    assert {"request", "driver", "pool", "device"} <= set(pod["claims"][0]["devices"][0])
    assert {"worst", "pairs"} <= set(pod["alignment"]) and {"gbytes_per_second", "low", "high", "algorithm"} <= set(
        pod["busbw"]
    )
    assert {"pod", "reason"} <= set(made["unschedulable"][0])
    assert json.dumps(made)


@pytest.mark.parametrize(("steps", "risk"), [(100, "none"), (200_000, "possible"), (2_000_000, "likely")])
def test_many_steps_are_a_risk(steps: int, risk: str) -> None:
    assert timeout_risk(steps) == risk


def test_nothing_to_plan_is_an_error(planned: Planner) -> None:
    with pytest.raises(InvalidInput, match=r"nothing to plan in f.yaml: f.yaml: Service s: creates no pods"):
        planned("apiVersion: v1\nkind: Service\nmetadata: {name: s}\n")


def test_a_broken_slice_is_named_with_its_place() -> None:
    text = "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: s}\nspec:\n  driver: dra.net\n"
    with pytest.raises(InvalidInput, match=r"f.yaml:4:1: ResourceSlice s: no spec.pool.name"):
        manifests(text).checked_slices()


FIELDS = [
    *("spec", "devices", "requests", "exactly", "firstAvailable", "name", "count", "selectors", "cel", "expression"),
    *("constraints", "config", "opaque", "driver", "parameters", "matchAttribute", "deviceClassName", "allocationMode"),
    *("resourceClaims", "resourceClaimTemplateName", "containers", "resources", "limits", "nvidia.com/gpu", "capacity"),
    *("template", "replicas", "tolerations", "operator", "adminAccess", "requests", "status", "allocation", "results"),
]
TEXTS = ["dranet", "dra.net", "gpu.nvidia.com", "x", "All", "device.driver == 'dra.net'", "(", ROOT, "", "10Gi"]
values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 50) | st.sampled_from(TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=30,
)
A4 = shapes("a4-highgpu-8g")


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=150)
@given(st.sampled_from(["v1", "v1beta1"]), values, values)
def test_no_claim_crashes_the_planner(version: str, spec: object, requests: object) -> None:
    """Whatever a claim says, it is planned, refused with a reason, or an input error."""
    claim_spec = {"devices": {"requests": requests}} if isinstance(requests, list) else spec
    raw = {"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceClaim", "metadata": {"name": "t"}}
    objects, _ = read_text(yaml.safe_dump({**raw, "spec": claim_spec}), "f")
    found = plan(Manifests(objects), A4)
    assert all(refusal.reason for refusal in found.unschedulable)
    assert json.dumps(plan_json(found))


NETWORK = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: shared}
spec:
  driver: fabric.example.org
  pool: {name: fabric, generation: 1, resourceSliceCount: 1}
  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: rack, operator: In, values: [r2]}]}]}
  devices: [{name: port-0}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: fabric}
spec: {selectors: [{cel: {expression: device.driver == "fabric.example.org"}}]}
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {rack: r1}}
---
apiVersion: v1
kind: Node
metadata: {name: n2, labels: {rack: r2}}
---
"""


def test_devices_of_no_node_are_taken_once_by_a_node_that_reaches_them() -> None:
    found = plan(
        manifests(NETWORK, claim("port: fabric"), workers(2)), hardware_of_slices(manifests(NETWORK).checked_slices())
    )
    assert [one.placement.node for one in found.pods] == ["n2"]
    assert found.unschedulable[0].reason.startswith("0/2 nodes are available: 2 cannot allocate all claims. ")


def test_a_node_selector_is_held_against_labels(planned: Planner) -> None:
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: a4-highgpu-8g-#, labels: {pool: p-#}}\n---\n"
    own = workers(1).replace("    spec:\n", "    spec:\n      nodeSelector: {pool: p-1}\n")
    found = planned(node.replace("#", "0"), node.replace("#", "1"), PAIR, own, shape="a4-highgpu-8g=2")
    assert found.pods[0].placement.node == "a4-highgpu-8g-1"


def test_gpus_of_a_device_plugin_are_those_the_node_says_it_has(planned: Planner) -> None:
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: a4-highgpu-8g-0}\n"
    node += "status: {allocatable: {nvidia.com/gpu: '2'}}\n---\n"
    found = planned(node, claim("nic: dranet"), workers(1, limits="nvidia.com/gpu: 4"))
    assert found.unschedulable[0].reason.startswith("0/1 nodes are available: 1 Insufficient nvidia.com/gpu. ")


SLICE_FIELDS = [
    *("devices", "name", "attributes", "capacity", "taints", "key", "effect", "value", "string", "int", "bool"),
    *("consumesCounters", "counterSet", "counters", "sharedCounters", "nodeSelector", "nodeSelectorTerms", "driver"),
    *("pool", "generation", "resourceSliceCount", "allNodes", "perDeviceNodeSelection", "basic", "requestPolicy"),
    *("nodeName", "matchExpressions", "operator", "values", "validRange", "min", "strings", "dra.net/rdma", "memory"),
]
SLICE_TEXTS = ["n1", "dra.net", "gpu.nvidia.com", "1Gi", "x", ""]
slice_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(SLICE_TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(SLICE_FIELDS), inner, max_size=6),
    max_leaves=40,
)
SLICE = {"kind": "ResourceSlice", "metadata": {"name": "s"}}
POOL = {"name": "n1", "generation": 1, "resourceSliceCount": 1}


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=200)
@given(st.sampled_from(["v1", "v1beta1"]), st.dictionaries(st.sampled_from(SLICE_FIELDS), slice_values, max_size=6))
def test_no_slice_crashes_the_planner(version: str, spec: dict[str, object]) -> None:
    """Whatever a recorded slice says, it is used or refused with its place."""
    whole = {"driver": "dra.net", "nodeName": "n1", "pool": POOL, **spec}
    raw = {"apiVersion": f"resource.k8s.io/{version}", **SLICE, "spec": whole}
    read = Manifests(read_text(yaml.safe_dump(raw), "f")[0])
    with contextlib.suppress(InvalidInput):
        found = plan(manifests(PAIR, workers(1)), hardware_of_slices(read.checked_slices()))
        assert len(found.pods) + len(found.unschedulable) == 1


def test_gpus_of_claims_are_not_handed_out_by_a_device_plugin(planned: Planner) -> None:
    found = planned(claim("gpu: gpu.nvidia.com 6"), workers(1), claim("nic: dranet", name="n"),
                    workers(1, "n", "nvidia.com/gpu: 4", "v"))  # fmt: skip
    assert found.unschedulable[0].reason.startswith("0/1 nodes are available: 1 Insufficient nvidia.com/gpu. ")


def test_fields_of_another_version_are_refused_as_a_server_does(planned: Planner) -> None:
    flat = claim("nic: dranet").replace("exactly: {deviceClassName: dranet}", "deviceClassName: dranet")
    found = planned(flat, workers(1))
    assert "request 'nic' must have one of exactly and firstAvailable" in found.unschedulable[0].reason


def test_exponential_search_reports_timeout_risk() -> None:
    """Half of sixteen NICs and one GPU too many: the scheduler tries every half before it gives up."""
    hardware = shapes("a4-highgpu-8g")
    devices = hardware.slices[0]["spec"]["devices"]
    devices += [{**device, "name": f"{device['name']}-b"} for device in devices]
    made = plan_json(plan(manifests(claim("nic: dranet 8\ngpu: gpu.nvidia.com 9"), workers(1)), hardware))
    assert made["unschedulable"][0]["scheduler"]["timeout_risk"] == "likely"


def test_a_cordoned_node_takes_no_pod(planned: Planner) -> None:
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: a4-highgpu-8g-0}\nspec: {unschedulable: true}\n---\n"
    found = planned(node + PAIR + workers(9), shape="a4-highgpu-8g=2")
    assert {one.placement.node for one in found.pods} == {"a4-highgpu-8g-1"}
    (ninth,) = found.unschedulable
    assert "1 node(s) were unschedulable" in ninth.reason
