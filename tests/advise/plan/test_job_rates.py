"""The figure of a whole job, and where there is none, why."""

from __future__ import annotations

import json

from msgspec.structs import replace

from dranet.advise.plan.jobs import RatedPod, job_rates, rate_text
from dranet.advise.plan.planning import rated_jobs
from dranet.advise.plan.quality import Quality, device_quality
from dranet.advise.plan.render import plan_json, plan_text
from dranet.machines.bandwidth import Estimate
from dranet.machines.machine import machine_of_shape
from dranet.machines.shape import load_shape
from tests.advise.plan.conftest import Planner

ADMIN_DAEMONS = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: watch}
spec:
  selector: {matchLabels: {app: watch}}
  template:
    metadata: {labels: {app: watch}}
    spec:
      resourceClaims: [{name: all, resourceClaimTemplateName: everything}]
      containers: [{name: c, image: i, resources: {claims: [{name: all}]}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: everything}
spec:
  spec:
    devices:
      requests:
      - name: gpus
        exactly: {deviceClassName: gpu.nvidia.com, allocationMode: All, adminAccess: true}
"""

PLUGIN_WORKERS = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: w}
spec:
  replicas: 2
  selector: {matchLabels: {app: w}}
  template:
    metadata: {labels: {app: w}}
    spec:
      containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 2}}}]
"""


def held(shape: str, gpus: int, nics: int) -> Quality:
    machine = machine_of_shape(load_shape(shape), "n")
    return device_quality(machine.gpus[:gpus], machine.nics[:nics])


def why_not(*pods: Quality) -> str:
    (job,) = job_rates(RatedPod("Job/j", pod) for pod in pods)
    return rate_text(*job.main)


def test_a_job_names_collective_algorithm_and_range() -> None:
    (job,) = job_rates([RatedPod("Job/j", held("a3-ultragpu-8g", 8, 8))] * 2)
    texts = [rate_text(*pair) for pair in job.figures]
    assert texts[0].startswith("428 to 512 GB/s (all_reduce, 16 GPUs, NVLSTree; the links between the GPUs")
    assert texts[1].startswith("219 to 309 GB/s (all_gather, 16 GPUs, Ring; the NICs are the limit)")


def test_a_job_over_infiniband_and_ethernet_has_no_figure() -> None:
    assert "different fabrics (gce-roce, infiniband)" in why_not(held("nd-gb300-v6", 1, 1), held("a4-highgpu-8g", 1, 1))


def test_a_job_without_nics_has_no_figure() -> None:
    assert why_not(*[held("a4-highgpu-8g", 2, 0)] * 2).startswith("no bandwidth figure: 2 of 2 pods have no NIC")


def test_pods_that_only_observe_devices_have_no_figure(planned: Planner) -> None:
    found = planned(ADMIN_DAEMONS, shape="a4-highgpu-8g=2")
    assert len(found.pods) == 2 and rated_jobs(found) == []
    assert "bus bandwidth: no bandwidth figure: admin access" in plan_text(found, wide=True)


def test_gpus_of_a_device_plugin_make_a_job_the_worst_case(planned: Planner) -> None:
    (job,) = rated_jobs(planned(PLUGIN_WORKERS, shape="a4-highgpu-8g=2"))
    assert not job.certain
    assert "worst case" in plan_text(planned(PLUGIN_WORKERS, shape="a4-highgpu-8g=2"))


def test_json_gives_gigabytes_with_its_unit_in_the_name() -> None:
    (job,) = job_rates([RatedPod("Job/j", held("a3-ultragpu-8g", 8, 8))] * 2)
    made = json.loads(json.dumps(job.to_json()))
    expected = job.main[0]
    assert isinstance(expected, Estimate)
    assert made["busbw"]["gbytes_per_second"] == round(expected.gbytes, 1)
    assert made["busbw"]["low"] < made["busbw"]["gbytes_per_second"] < made["busbw"]["high"]
    assert made["all_gather"]["algorithm"] == "Ring"


def test_a_job_has_the_cost_of_small_and_large_messages() -> None:
    (job,) = job_rates([RatedPod("Job/j", held("dgx-h100", 8, 8))] * 2)
    small, medium, large = json.loads(json.dumps(job.to_json()))["by_size"]
    assert [one["bytes"] for one in (small, medium, large)] == [8192, 8388608, 8589934592]
    assert small["seconds"] < medium["seconds"] < 1e-3 < large["seconds"]
    assert small["gbytes_per_second"] < 1 < medium["gbytes_per_second"] < large["gbytes_per_second"]


def test_a_planned_job_without_a_figure_has_its_reason_in_json(planned: Planner) -> None:
    (job,) = plan_json(planned(PLUGIN_WORKERS, shape="a4-highgpu-8g=2"))["jobs"]
    assert job["busbw"]["gbytes_per_second"] is None and "no NIC" in job["busbw"]["reason"]


def test_pods_joined_by_a_compute_domain_count_as_one_machine() -> None:
    pod = RatedPod("Job/j", held("nd-gb300-v6", 4, 4), "clique")
    (joined,), (apart,) = job_rates([replace(pod, channel=True)] * 2), job_rates([pod] * 2)
    over, between = joined.main[0], apart.main[0]
    assert isinstance(over, Estimate) and isinstance(between, Estimate)
    assert (over.algorithm, between.algorithm) == ("NVLS", "NVLSTree")
    assert over.gbytes > 2 * between.gbytes
    assert apart.over_nvlink == over


def test_pods_of_several_nvlink_domains_use_nvlink_inside_each() -> None:
    pod = RatedPod("Job/j", held("nd-gb300-v6", 4, 4), "a", channel=True)
    (job,) = job_rates([pod, pod, replace(pod, domain="b"), replace(pod, domain="b")])
    found = job.main[0]
    assert isinstance(found, Estimate) and found.ranks.pods == 2
    assert found.notes[-1] == "NVLink inside 2 NVLink domains, the network between them"


def test_a_pod_without_a_channel_ends_nvlink_at_the_nodes() -> None:
    pod = RatedPod("Job/j", held("nd-gb300-v6", 4, 4), "a", channel=True)
    (job,) = job_rates([pod, replace(pod, channel=False)])
    assert isinstance(job.main[0], Estimate) and job.main[0].ranks.pods == 2
