"""Gangs are placed whole or not at all, in one place where they ask for one; plans list the blocks of a job."""

from __future__ import annotations

import json

import pytest

from dranet.advise.plan.planning import Plan, plan
from dranet.advise.plan.render import plan_json, plan_text
from tests.inputs import claim, manifests, shapes

SHAPE = "a4-highgpu-8g"
BLOCK, SUBBLOCK = "cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"
WHOLE = claim("gpu: gpu.nvidia.com 8\nnic: dranet 8")
PICKY = claim("gpu: gpu.nvidia.com", name="p").replace(
    "exactly: {deviceClassName: gpu.nvidia.com}",
    'exactly: {deviceClassName: gpu.nvidia.com, selectors: [{cel: {expression: "device.attributes['
    "'gpu.nvidia.com'].minor == 0\"}}]}",
)
"""A claim that only gpu-0 satisfies."""


def node(name: str, **labels: str) -> str:
    named = {"block": BLOCK, "sub": SUBBLOCK, "clique": "nvidia.com/gpu.clique"}
    written = json.dumps({named.get(key, key): value for key, value in labels.items()})
    return f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {written}}}\n---\n"


def nodes(*blocks: str) -> str:
    return "".join(node(f"{SHAPE}-{i}", block=block) for i, block in enumerate(blocks))


def job(pods: int, *, name: str = "j", template: str = "t", group: str = "", annotations: str = "") -> str:
    joined = f"schedulingGroup: {{podGroupName: {group}}}, " if group else ""
    return (
        f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\n"
        f"spec:\n  parallelism: {pods}\n  completions: {pods}\n  completionMode: Indexed\n  template:\n"
        f"    metadata: {{annotations: {{{annotations}}}}}\n"
        f"    spec: {{{joined}restartPolicy: Never, containers: [{{name: c, image: i}}], "
        f"resourceClaims: [{{name: d, resourceClaimTemplateName: {template}}}]}}\n---\n"
    )


def pod_group(minimum: int, key: str = "", claims: str = "") -> str:
    constraint = f"\n  schedulingConstraints: {{topology: [{{key: {key}}}]}}" if key else ""
    return (
        "apiVersion: scheduling.k8s.io/v1alpha2\nkind: PodGroup\nmetadata: {name: g}\n"
        f"spec:\n  schedulingPolicy: {{gang: {{minCount: {minimum}}}}}{constraint}{claims}\n---\n"
    )


def planned(*text: str, machines: int) -> Plan:
    return plan(manifests("".join(text)), shapes(f"{SHAPE}={machines}"))


def nodes_of(found: Plan) -> set[str]:
    return {one.placement.node for one in found.pods}


def test_a_gang_that_fits_is_placed_whole() -> None:
    found = planned(WHOLE, pod_group(2), job(2, group="g"), machines=2)
    (gang,) = found.gangs
    assert (gang.placed, gang.fits, found.unschedulable) == (2, True, ())


def test_a_gang_that_does_not_fit_leaves_nothing_behind() -> None:
    found = planned(WHOLE, pod_group(3), job(3, group="g"), job(2, name="other"), machines=2)
    (gang,) = found.gangs
    assert not gang.fits and gang.why_not.startswith("2 of 3 pods fit, 3 are needed at once: 0/2 nodes are available")
    assert {one.pod.workload for one in found.pods} == {"Job/other"}
    assert len(found.pods) == 2


def test_more_pods_than_the_minimum_may_wait() -> None:
    found = planned(WHOLE, pod_group(2), job(3, group="g"), machines=2)
    assert (found.gangs[0].placed, found.gangs[0].fits) == (2, True)


def test_fewer_pods_than_the_minimum_never_start() -> None:
    found = planned(WHOLE, pod_group(4), job(2, group="g"), machines=2)
    assert "waiting for minCount pods from a gang to appear in scheduling queue: 2 of 4" in found.gangs[0].why_not


def test_a_gang_with_a_topology_stays_in_one_block() -> None:
    found = planned(WHOLE, nodes("a", "b", "b"), pod_group(2, BLOCK), job(2, group="g"), machines=3)
    assert found.gangs[0].places == ("b",)
    assert nodes_of(found) == {f"{SHAPE}-1", f"{SHAPE}-2"}


def test_a_gang_without_gpus_stays_in_one_block_too() -> None:
    found = planned(claim("nic: dranet 8"), nodes("a", "b", "b"), pod_group(2, BLOCK), job(2, group="g"), machines=3)
    assert found.gangs[0].places == ("b",)


def test_a_gang_no_block_can_hold_is_refused_with_what_each_could() -> None:
    found = planned(WHOLE, nodes("a", "b"), pod_group(2, BLOCK), job(2, group="g"), machines=2)
    assert found.pods == ()
    assert f"no {BLOCK} takes 2 pods at once (a takes 1, b takes 1)" in found.gangs[0].why_not


def test_a_topology_label_of_no_node_is_named() -> None:
    found = planned(WHOLE, pod_group(2, "rack"), job(2, group="g"), machines=2)
    assert found.gangs[0].why_not == "no node has the label rack"


def test_a_gang_that_fits_in_one_order_of_its_pods_only_is_not_deterministic() -> None:
    """Any GPU first takes gpu-0 from the pod that can use no other."""
    text = (claim("gpu: gpu.nvidia.com"), PICKY, pod_group(2), job(1, group="g"))
    found = planned(*text, job(1, name="picky", template="p", group="g"), machines=1)
    assert "not deterministic: 1 to 2 of its pods fit" in found.gangs[0].luck
    assert "not deterministic" in found.unschedulable[0].reason


def test_a_gang_that_may_start_lists_the_possible_blocks() -> None:
    text = (claim("gpu: gpu.nvidia.com"), PICKY, pod_group(2, BLOCK), nodes("a"), job(1, group="g"))
    found = planned(*text, job(1, name="picky", template="p", group="g"), machines=1)
    assert (found.gangs[0].fits, found.gangs[0].equally) == (False, ("a",))
    assert f"{BLOCK}: possibly a\n" in plan_text(found)


def test_kueue_required_topology_is_one_block() -> None:
    asked = f'kueue.x-k8s.io/podset-required-topology: "{BLOCK}"'
    found = planned(WHOLE, nodes("a", "b", "b"), job(2, annotations=asked), machines=3)
    assert found.gangs[0].places == ("b",)


def test_kueue_preferred_topology_climbs_the_levels() -> None:
    asked = f'kueue.x-k8s.io/podset-preferred-topology: "{SUBBLOCK}"'
    topology = (
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Topology\nmetadata: {name: t}\n"
        f'spec: {{levels: [{{nodeLabel: "{BLOCK}"}}, {{nodeLabel: "{SUBBLOCK}"}}]}}\n---\n'
    )
    places = [("a", "a1"), ("b", "b1"), ("b", "b2")]
    written = "".join(node(f"{SHAPE}-{i}", block=block, sub=sub) for i, (block, sub) in enumerate(places))
    found = planned(WHOLE, written, topology, job(2, annotations=asked), machines=3)
    assert nodes_of(found) == {f"{SHAPE}-1", f"{SHAPE}-2"}


def test_kueue_preferred_topology_ends_anywhere() -> None:
    asked = f'kueue.x-k8s.io/podset-preferred-topology: "{BLOCK}"'
    found = planned(WHOLE, nodes("a", "b"), job(2, annotations=asked), machines=2)
    assert len(found.pods) == 2


def test_kueue_slices_each_have_a_block() -> None:
    asked = f'kueue.x-k8s.io/podset-slice-required-topology: "{BLOCK}", kueue.x-k8s.io/podset-slice-size: "2"'
    found = planned(WHOLE, nodes("a", "b", "a", "b"), job(4, annotations=asked), machines=4)
    assert sorted(found.gangs[0].places) == ["a", "b"] and len(found.pods) == 4


def test_jobs_of_an_exclusive_jobset_share_no_block() -> None:
    text = (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: s, annotations: "
        f'{{alpha.jobset.sigs.k8s.io/exclusive-topology: "{BLOCK}"}}}}\nspec:\n  replicatedJobs:\n'
        "  - name: w\n    replicas: 2\n    template: {spec: {parallelism: 2, completions: 2, "
        "completionMode: Indexed, template: {spec: "
        "{restartPolicy: Never, resourceClaims: [{name: d, resourceClaimTemplateName: t}], "
        "containers: [{name: c, image: i}]}}}}\n"
    )
    found = planned(WHOLE, nodes("a", "a", "b", "b"), text, machines=4)
    by_job = {one.pod.name.rpartition("-")[0]: one.placement.node for one in found.pods}
    assert len(found.pods) == 4 and len(by_job) == 2
    assert sorted(found.gangs[0].places) == ["a", "b"]


def test_a_claim_of_the_pod_group_is_one_claim_for_all_its_pods() -> None:
    claims = "\n  resourceClaims: [{name: d, resourceClaimTemplateName: t}]"
    text = (claim("gpu: gpu.nvidia.com 2"), pod_group(2, claims=claims), job(2, group="g"))
    found = planned(*text, machines=2)
    assert {result.device for one in found.pods for result in one.placement.devices[0]} == {"gpu-0", "gpu-1"}
    assert len(nodes_of(found)) == 1


def test_lists_blocks_crossed_and_a_better_place() -> None:
    text = (WHOLE, nodes("a", "b", "b"), job(2))
    found = planned(*text, machines=3)
    text_shown = plan_text(found)
    assert f"across 2 {BLOCK} (a: 1, b: 1)" in text_shown
    assert f"all its pods would fit in one {BLOCK}, b, 374 to 528 GB/s all_reduce" in text_shown
    assert len(found.pods) == 2


def test_trying_a_better_place_changes_nothing() -> None:
    with_labels = planned(WHOLE, nodes("a", "b", "b"), job(2), job(1, name="next"), machines=3)
    without = planned(WHOLE, nodes("", "", ""), job(2), job(1, name="next"), machines=3)
    assert [one.placement.node for one in with_labels.pods] == [one.placement.node for one in without.pods]


def test_a_job_in_one_block_has_nothing_better() -> None:
    (made,) = plan_json(planned(WHOLE, nodes("a", "a"), job(2), machines=2))["jobs"]
    assert made["places"]["levels"] == [{"label": BLOCK, "pods": {"a": 2}, "unknown": 0}]
    assert made["places"]["better"] is None


def test_one_nvlink_domain_without_a_compute_domain_is_a_missed_chance() -> None:
    text = claim("gpu: gpu.nvidia.com 4\nnic: dranet 4")
    cliques = "".join(node(f"nd-gb300-v6-{i}", clique="u.1") for i in (0, 1))
    found = plan(manifests(text + cliques + job(2)), shapes("nd-gb300-v6=2"))
    text_shown = plan_text(found)
    assert "1 NVLink domain: u.1" in text_shown
    assert "all in one NVLink domain: with a ComputeDomain 764 to 915 GB/s (all_reduce, 8 GPUs, NVLS" in text_shown


@pytest.mark.parametrize("api", ["scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1"])
def test_gangs_of_other_schedulers_are_whole_too(api: str) -> None:
    group = f"apiVersion: {api}\nkind: PodGroup\nmetadata: {{name: g}}\nspec: {{minMember: 3}}\n---\n"
    asked = "scheduling.k8s.io/group-name: g"
    found = planned(WHOLE, group, job(3, annotations=asked), machines=2)
    assert found.pods == () and not found.gangs[0].fits


def test_gang_with_priorities_is_deterministic() -> None:
    """The pod that can use gpu-0 alone gets it before any other may."""
    first = job(1, name="picky", template="p", group="g").replace("restartPolicy", "priority: 5, restartPolicy")
    found = planned(claim("gpu: gpu.nvidia.com"), PICKY, pod_group(2), job(1, group="g"), first, machines=1)
    assert (found.gangs[0].placed, found.gangs[0].luck) == (2, "")


def test_lists_all_blocks_with_equal_score() -> None:
    found = planned(WHOLE, nodes("a", "a", "b", "b"), pod_group(2, BLOCK), job(2, group="g"), machines=4)
    (gang,) = found.gangs
    assert (gang.places, gang.equally, gang.others) == (("a",), ("b",), ())
    assert f"{BLOCK}: a, or equally b" in plan_text(found)


def sized(name: str, block: str, cpu: int) -> str:
    amounts = json.dumps({"cpu": cpu, "memory": "100Gi", "pods": 110})
    status = f"status: {{allocatable: {amounts}, capacity: {amounts}}}\n---\n"
    return node(name, block=block).replace("---\n", status)


def test_prefers_the_block_that_is_fuller_afterwards() -> None:
    sizes = sized(f"{SHAPE}-0", "a", 128) + sized(f"{SHAPE}-1", "b", 8)
    asked = job(1, group="g").replace("image: i", "image: i, resources: {requests: {cpu: 4}}")
    (gang,) = planned(WHOLE, sizes, pod_group(1, BLOCK), asked, machines=2).gangs
    assert (gang.places, gang.equally, gang.others) == (("b",), (), ("a",))


def test_a_compute_domain_is_planned_on_machines_of_a_shape() -> None:
    domain = (
        "apiVersion: resource.nvidia.com/v1beta1\nkind: ComputeDomain\nmetadata: {name: cd}\n"
        "spec: {numNodes: 2, channel: {resourceClaimTemplate: {name: channel}}}\n---\n"
    )
    both = "{name: d, resourceClaimTemplateName: t}, {name: c, resourceClaimTemplateName: channel}"
    asked = job(2).replace("{name: d, resourceClaimTemplateName: t}", both)
    found = plan(manifests(claim("gpu: gpu.nvidia.com 4") + domain + asked), shapes("nd-gb300-v6=2"))
    assert [one.placement.devices[1][0].device for one in found.pods] == ["channel-0", "channel-0"]
    assert any(text.startswith("NVLink between nodes: no node has") for text in found.not_considered)
    assert any("compute-domain-default-channel.nvidia.com is not in the input" in one.why for one in found.assumed)


def test_a_pod_that_asks_for_one_block_is_not_placed_in_another() -> None:
    asked = job(1, group="g").replace("restartPolicy", f'nodeSelector: {{"{BLOCK}": a}}, restartPolicy')
    found = planned(WHOLE, nodes("b", "b"), pod_group(1, BLOCK), asked, machines=2)
    assert found.pods == () and f"no {BLOCK} takes 1 pods at once (b takes 0)" in found.gangs[0].why_not
