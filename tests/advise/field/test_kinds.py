"""Custom resources of inference servers and clusters become the pods that their operators create."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from dranet.advise.lint import lint
from dranet.advise.manifests import Manifests, PodSet, read_text
from tests.inputs import run

CLAIM = {"name": "d", "resourceClaimTemplateName": "t"}
POD = {"resourceClaims": [CLAIM], "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "d"}]}}]}
MAIN = {"image": "i", "resources": {"claims": [{"name": "d"}]}}
SERVICE = {"replicas": 2, "extraPodSpec": {"resourceClaims": [CLAIM], "mainContainer": MAIN}}
GROUP = {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": {"spec": POD}}}
CLIQUES = {
    "replicas": 2,
    "template": {
        "cliqueStartupType": "CliqueStartupTypeAnyOrder",
        "cliques": [
            {"name": "front", "spec": {"replicas": 1, "podSpec": POD}},
            {"name": "work", "spec": {"replicas": 2, "podSpec": POD}},
        ],
        "podCliqueScalingGroups": [{"name": "g", "cliqueNames": ["work"], "replicas": 3}],
    },
}
LLM = {"replicas": 2, "template": POD, "worker": POD, "parallelism": {"data": 8, "dataLocal": 4}}
MACHINE = {
    "resourceClaims": [CLAIM],
    "domain": {"devices": {"gpus": [{"name": "g", "claimName": "d", "requestName": "gpu"}]}},
}


def pods(api_version: str, kind: str, spec: dict[str, Any]) -> list[PodSet]:
    made = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}
    return Manifests(read_text(yaml.safe_dump(made), "f.yaml")[0]).pods


KINDS: list[tuple[str, str, dict[str, Any], list[str]]] = [
    ("nvidia.com/v1alpha1", "DynamoGraphDeployment", {"services": {"Decode": SERVICE}},
     ["w-0-decode-0", "w-0-decode-1"]),
    ("nvidia.com/v1alpha1", "DynamoGraphDeployment",
     {"services": {"Decode": {**SERVICE, "replicas": 1, "multinode": {"nodeCount": 3}}}},
     ["w-0-decode-0-ldr", "w-0-decode-0-wkr-0", "w-0-decode-0-wkr-1"]),
    ("nvidia.com/v1beta1", "DynamoGraphDeployment",
     {"components": [{"name": "P", "replicas": 2, "multinode": {"nodeCount": 2}, "podTemplate": {"spec": POD}}]},
     ["w-0-p-0-ldr", "w-0-p-0-wkr-0", "w-0-p-1-ldr", "w-0-p-1-wkr-0"]),
    ("grove.io/v1alpha1", "PodCliqueSet", CLIQUES,
     ["w-0-front-0", "w-1-front-0"] + [f"w-{i}-g-{j}-work-{n}" for i in range(2) for j in range(3) for n in range(2)]),
    ("disaggregatedset.x-k8s.io/v1", "DisaggregatedSet", {"slices": 2, "roles": [{"name": "p", "spec": GROUP}]},
     [f"w-{i}-p-{name}" for i in range(2) for name in ("0", "1", "0-1", "0-2", "1-1", "1-2")]),
    ("serving.kserve.io/v1alpha1", "LLMInferenceService", {"replicas": 2, "template": POD},
     ["w-kserve-0", "w-kserve-1"]),
    ("serving.kserve.io/v1alpha2", "LLMInferenceService", LLM,
     ["w-kserve-mn-0", "w-kserve-mn-1", "w-kserve-mn-0-1", "w-kserve-mn-1-1"]),
    ("serving.kserve.io/v1alpha1", "LLMInferenceService",
     {"template": POD, "prefill": {"template": POD, "replicas": 2}},
     ["w-kserve-0", "w-kserve-prefill-0", "w-kserve-prefill-1"]),
    ("slinky.slurm.net/v1beta1", "NodeSet",
     {"replicas": 2, "slurmd": MAIN, "template": {"spec": {"resourceClaims": [CLAIM]}}}, ["w-0", "w-1"]),
    ("argoproj.io/v1alpha1", "Workflow", {"resourceClaims": [CLAIM], "templates": [{"name": "a", "container": MAIN}]},
     ["w-a"]),
    ("argoproj.io/v1alpha1", "WorkflowTemplate",
     {"templates": [{"name": "a", "script": MAIN, "resourceClaims": [CLAIM]}]},
     ["w-a"]),
    ("argoproj.io/v1alpha1", "CronWorkflow",
     {"workflowSpec": {"resourceClaims": [CLAIM], "templates": [{"name": "a", "container": MAIN}, {"name": "steps"}]}},
     ["w-a"]),
    ("kubevirt.io/v1", "VirtualMachineInstance", MACHINE, ["virt-launcher-w"]),
    ("kubevirt.io/v1", "VirtualMachine", {"template": {"spec": MACHINE}}, ["virt-launcher-w"]),
]  # fmt: skip


@pytest.mark.parametrize(("api_version", "kind", "spec", "expected"), KINDS, ids=[f"{k[0]} {k[1]}" for k in KINDS])
def test_pods_of_a_kind(api_version: str, kind: str, spec: dict[str, Any], expected: list[str]) -> None:
    found = pods(api_version, kind, spec)
    assert [name for one in found for name in one.names] == expected
    assert all([ref.template for ref in one.claims] == ["t"] for one in found)


@pytest.mark.parametrize(("api_version", "kind", "spec", "expected"), KINDS, ids=[f"{k[0]} {k[1]}" for k in KINDS])
def test_fields_of_a_kind_are_no_errors(api_version: str, kind: str, spec: dict[str, Any], expected: list[str]) -> None:
    made = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}
    objects, problems = read_text(yaml.safe_dump(made), "f.yaml")
    assert [one.rule for one in lint(objects, problems)] == ["unknown-reference"] * len(
        {one.path for one in Manifests(objects).pods}
    )


def test_fields_of_an_inference_service_are_no_errors() -> None:
    predictor = {"minReplicas": 1, "maxReplicas": 2, "model": {"modelFormat": {"name": "x"}}, **POD}
    made = {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "w"}}
    objects, problems = read_text(yaml.safe_dump({**made, "spec": {"predictor": predictor}}), "f.yaml")
    assert {one.rule for one in lint(objects, problems)} == {"unknown-reference"}


def test_gpus_of_a_dynamo_service_come_from_a_device_plugin() -> None:
    wanted = {"limits": {"gpu": "4", "custom": {"rdma/ib": "1"}}}
    found = pods("nvidia.com/v1alpha1", "DynamoGraphDeployment", {"services": {"D": {**SERVICE, "resources": wanted}}})
    assert [one.gpu_limits for one in found] == [{"nvidia.com/gpu": 4}] * 2


def test_labels_of_a_dynamo_service_serve_affinity() -> None:
    service = {**SERVICE, "componentType": "worker", "subComponentType": "prefill"}
    found = pods("nvidia.com/v1alpha1", "DynamoGraphDeployment", {"services": {"D": service}})
    assert found[0].labels["nvidia.com/dynamo-graph-deployment-name"] == "w"
    assert found[0].labels["nvidia.com/dynamo-sub-component-type"] == "prefill"


def test_slurm_nodes_are_on_nodes_of_their_own() -> None:
    node_set = {"replicas": 3, "slurmd": {"image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}}
    made = {"apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "metadata": {"name": "w"}, "spec": node_set}
    done = run("plan", "-f", "-", "--shape", "a4-highgpu-8g=2", stdin=yaml.safe_dump(made))
    assert "2 of 3 pods fit" in done.stdout and "didn't match pod anti-affinity rules" in done.stdout


def test_a_claim_that_fits_no_machine_has_the_reason_of_explain() -> None:
    four = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: four}
spec:
  spec:
    devices:
      requests:
      - {name: gpu, exactly: {deviceClassName: gpu.nvidia.com, count: 4}}
      - {name: nic, exactly: {deviceClassName: dranet, count: 4}}
      constraints: [{requests: [gpu, nic], matchAttribute: resource.kubernetes.io/pcieRoot}]
"""
    done = run("lint", "-f", "-", "--shape", "a4-highgpu-8g", stdin=four)
    assert done.exit_code == 1 and "[claim-never-fits]" in done.stdout
    assert "one pcieRoot of a4-highgpu-8g holds at most 2 GPUs and 2 NICs, 4 and 4 are requested" in done.stdout
    assert run("lint", "-f", "-", "--shape", "a4-highgpu-8g", stdin=four.replace("count: 4", "count: 2")).exit_code == 0
