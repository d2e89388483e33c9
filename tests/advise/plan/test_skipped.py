"""Nothing in the input goes missing: what has no part in a plan is named with the reason."""

from __future__ import annotations

from dranet.advise.plan.render import plan_json, plan_text
from tests.advise.plan.conftest import Planner
from tests.inputs import claim, workers

NIC = claim("nic: dranet")
PLACED = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: there}\nspec: {nodeName: a4-highgpu-8g-0, containers: [{name: c}]}\n"
    "status: {phase: Running}\n---\n"
)
JOB_SET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: big}
spec:
  replicatedJobs:
  - name: workers
    replicas: 2
    template:
      spec:
        parallelism: 2
        template:
          spec:
            resourceClaims: [{name: d, resourceClaimTemplateName: t}]
            containers: [{name: c, image: i}]
---
"""


def test_a_job_set_is_planned_pod_by_pod(planned: Planner) -> None:
    found = planned(NIC, JOB_SET)
    assert [one.pod.name for one in found.pods] == [
        "big-workers-0-0", "big-workers-0-1", "big-workers-1-0", "big-workers-1-1",
    ]  # fmt: skip


def test_objects_without_a_part_in_the_plan_are_named_with_the_reason(planned: Planner) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n---\n"
    found = planned(NIC, workers(1), service, PLACED, workers(0, name="none"), claim("nic: dranet", name="spare"))
    left = {(one["kind"], one["name"]): one["why"] for one in plan_json(found)["not_planned"]}
    assert left == {
        ("Service", "web"): "creates no pods",
        ("Pod", "there"): "placed already",
        ("StatefulSet", "none"): "requests no pods, or they are in the input already",
        ("ResourceClaimTemplate", "spare"): "no pod names it",
    }


def test_text_lists_what_is_left_out(planned: Planner) -> None:
    text = plan_text(planned(NIC, workers(1), *(PLACED.replace("there", f"p{i}") for i in range(20))))
    names = ", ".join(f"p{i}" for i in range(12))
    assert f"not planned:\n  f.yaml: Pod {names} and 8 more (-o json names them): placed already" in text


def test_lists_what_was_assumed(planned: Planner) -> None:
    found = planned(NIC, JOB_SET.replace("spec:\n  repl", "spec:\n  suspend: true\n  repl", 1))
    assert [one.why for one in found.assumed] == [
        "workers: suspended: its pods are planned as if it were resumed",
        "class dranet is not in the input; installed by dranet's chart",
    ]
