"""`dranet suggest FILE`: the user's own workload, with claims for aligned devices."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.inputs import run

DOCUMENTS = Path(__file__).parents[2] / "data" / "documents"
SHAPE = ("--shape", "a3-ultragpu-8g=4")
POD = """\
{i}spec:
{i}  containers:
{i}  - name: worker   # the one that computes
{i}    image: example
{i}    resources:
{i}      limits:
{i}        nvidia.com/gpu: 2
{i}        cpu: "4"
{i}  - name: logs
{i}    image: example
"""
BARE = ("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: j}\nspec:\n  replicas: 2\n"
        "  selector: {matchLabels: {a: j}}\n  template:\n    metadata: {labels: {a: j}}\n")  # fmt: skip


def pod(indent: int, text: str = POD) -> str:
    return text.format(i=" " * indent)


KINDS = {
    "Job": "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  parallelism: 2\n  completions: 2\n"
    "  template:\n" + pod(4) + "      restartPolicy: Never\n",
    "Deployment": BARE + pod(4),
    "MPIJob": "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: j}\nspec:\n  mpiReplicaSpecs:\n"
    "    Launcher:\n      replicas: 1\n      template:\n        spec:\n          containers:\n"
    "          - {name: launcher, image: example}\n    Worker:\n      replicas: 2\n      template:\n" + pod(8),
    "RayCluster": "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: j}\nspec:\n  headGroupSpec:\n"
    "    rayStartParams: {}\n    template:\n      spec:\n        containers: [{name: head, image: example}]\n"
    "  workerGroupSpecs:\n  - groupName: g\n    replicas: 2\n    rayStartParams: {}\n    template:\n" + pod(6),
    "JobSet": "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: j}\nspec:\n  replicatedJobs:\n"
    "  - name: w\n    replicas: 1\n    template:\n      spec:\n        parallelism: 2\n        completions: 2\n"
    "        template:\n" + pod(10) + "            restartPolicy: Never\n",
    "LeaderWorkerSet": "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: j}\nspec:\n"
    "  replicas: 1\n  leaderWorkerTemplate:\n    size: 2\n    workerTemplate:\n" + pod(6),
    "DynamoGraphDeployment": "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nmetadata: {name: j}\n"
    "spec:\n  components:\n  - name: decode\n    replicas: 2\n    podTemplate:\n" + pod(6),
}  # fmt: skip

SERVICE = """\
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: graph}
spec:
  services:
    Frontend:
      replicas: 1
      extraPodSpec: {mainContainer: {image: i}}
    Worker:   # decode
      replicas: 2
      resources:
        limits:
          gpu: "2"
      extraPodSpec:
        mainContainer:
          image: i
"""


def suggested(tmp_path: Path, text: str, *args: object, shape: tuple[str, ...] = SHAPE) -> str:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    done = run("suggest", file, *shape, *args)
    assert done.exit_code == 0, done.output
    return done.stdout


def pods_of(value: Any) -> list[dict[str, Any]]:
    """Every pod spec below a value."""
    if isinstance(value, list):
        return [found for one in value for found in pods_of(one)]
    if not isinstance(value, dict):
        return []
    return [value] if "containers" in value else [found for one in value.values() for found in pods_of(one)]


@pytest.mark.parametrize("kind", KINDS)
def test_workloads_of_every_kind_get_the_claim(tmp_path: Path, kind: str) -> None:
    text = suggested(tmp_path, KINDS[kind])
    assert "pods fit; worst pair PIX" in text.splitlines()[0] and "unschedulable" not in text.splitlines()[0]
    assert "nvidia.com/gpu:" not in text and "# the one that computes" in text
    workload, template = yaml.safe_load_all(text)
    spec = pods_of(workload)[-1]
    assert spec["resourceClaims"] == [{"name": "devices", "resourceClaimTemplateName": template["metadata"]["name"]}]
    worker, logs = spec["containers"]
    assert worker["resources"] == {"limits": {"cpu": "4"}, "claims": [{"name": "devices"}]}
    assert worker["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert logs == {"name": "logs", "image": "example"}


@pytest.mark.parametrize("kind", [*KINDS, "service of Dynamo"])
@pytest.mark.parametrize("shape", ["a3-megagpu-8g=4", "nd-gb300-v6=4", "bm.gpu.gb200.4=4"])
def test_lint_finds_nothing_in_the_result(tmp_path: Path, kind: str, shape: str) -> None:
    aligned = tmp_path / "aligned.yaml"
    aligned.write_text(suggested(tmp_path, {**KINDS, "service of Dynamo": SERVICE}[kind], shape=("--shape", shape)))
    assert json.loads(run("lint", aligned, "--shape", shape, "-o", "json").stdout)["findings"] == []


def test_a_service_of_dynamo_gets_the_claim_where_the_operator_reads_it(tmp_path: Path) -> None:
    text = suggested(tmp_path, SERVICE)
    assert text.startswith("# 3 of 3 pods fit; worst pair PIX") and "# decode" in text
    services = next(yaml.safe_load_all(text))["spec"]["services"]
    assert services["Frontend"] == {"replicas": 1, "extraPodSpec": {"mainContainer": {"image": "i"}}}
    assert services["Worker"]["resources"] == {"claims": [{"name": "devices"}]}
    pod = services["Worker"]["extraPodSpec"]
    assert pod["mainContainer"]["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert pod["resourceClaims"][0]["name"] == "devices" and "containers" not in pod


def test_leader_and_workers_share_one_compute_domain(tmp_path: Path) -> None:
    head = KINDS["LeaderWorkerSet"].replace("    workerTemplate:\n", "    leaderTemplate:\n" + pod(6))
    both = head + "    workerTemplate:\n" + pod(6)
    text = suggested(
        tmp_path, both.replace("{name: j}", "{name: j, namespace: team}"), shape=("--shape", "nd-gb300-v6=4")
    )
    workload, *added = yaml.safe_load_all(text)
    (domain,) = [one for one in added if one["kind"] == "ComputeDomain"]
    assert domain["metadata"] == {"name": "j", "namespace": "team"}
    channels = [spec["resourceClaims"][1]["resourceClaimTemplateName"] for spec in pods_of(workload)]
    assert channels == [domain["spec"]["channel"]["resourceClaimTemplate"]["name"]] * 2


def test_pods_of_a_job_stay_on_the_same_rails_where_rails_are_isolated(tmp_path: Path) -> None:
    text = suggested(tmp_path, KINDS["Job"], shape=("--shape", "a3-megagpu-8g=4"))
    assert '.rail in ["0", "1"]' in text or ('rail == "0"' in text and 'rail == "1"' in text)
    assert "ignore[rails-not-forced]" not in text
    few = suggested(tmp_path, KINDS["Job"], shape=("--shape", "a3-megagpu-8g=1"))
    assert few.startswith("# 2 of 2 pods fit") and "# dranet: ignore[rails-not-forced] pods may get" in few


def test_ray_learns_the_number_of_gpus(tmp_path: Path) -> None:
    workload = next(yaml.safe_load_all(suggested(tmp_path, KINDS["RayCluster"])))
    assert workload["spec"]["workerGroupSpecs"][0]["rayStartParams"] == {"num-gpus": "2"}


def test_the_claim_of_document_3_is_replaced_and_its_configuration_kept(tmp_path: Path) -> None:
    parts = [(DOCUMENTS / f"3-{name}.yaml").read_text() for name in ("class", "template", "mpijob")]
    text = suggested(tmp_path, "---\n".join(parts))
    assert text.startswith("# 3 of 3 pods fit; worst pair PIX")
    *_, template = yaml.safe_load_all(text)
    assert "mpi-worker-rdma-nic-template" not in text
    (config,) = template["spec"]["spec"]["devices"]["config"]
    assert config["opaque"]["parameters"] == {"interface": {"name": "dranet0"}, "environment": ["nccl", "mpi"]}
    assert "slotsPerWorker: 1 # 1 MPI rank per worker Pod" in text


def test_a_claim_that_is_not_in_the_input_is_an_error_with_its_place() -> None:
    done = run("suggest", DOCUMENTS / "3-mpijob.yaml", *SHAPE)
    assert done.exit_code == 1
    assert "3-mpijob.yaml:40:13: no ResourceClaimTemplate 'mpi-worker-rdma-nic-template' in the input" in done.output


def test_a_diff_has_only_what_changes(tmp_path: Path) -> None:
    text = suggested(tmp_path, KINDS["Job"], "--diff")
    assert "nvidia.com/gpu: 2" in [line[1:].strip() for line in text.splitlines() if line.startswith("-")]
    assert not [line for line in text.splitlines() if line.startswith("-") and "image" in line]


def test_a_template_that_other_pods_use_stays(tmp_path: Path) -> None:
    template = (DOCUMENTS / "3-template.yaml").read_text() + "---\n" + (DOCUMENTS / "3-class.yaml").read_text()
    other = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: other}\nspec: {containers: [{name: c, image: i}]}\n"
    text = suggested(tmp_path, "\n---\n".join([template, (DOCUMENTS / "3-mpijob.yaml").read_text() + other]))
    assert "kind: Pod" in text and "name: mpi-worker-rdma-nic-template" not in text


def test_json_stays_json(tmp_path: Path) -> None:
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    made["spec"] = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}
    first = next(yaml.safe_load_all(suggested(tmp_path, json.dumps(made, indent=2))))
    assert first["spec"]["containers"][0]["resources"] == {"claims": [{"name": "devices"}]}


def test_machines_of_an_nvlink_domain_get_a_compute_domain(tmp_path: Path) -> None:
    text = suggested(tmp_path, KINDS["Job"], shape=("--shape", "nd-gb300-v6=4"))
    workload, *added = yaml.safe_load_all(text)
    assert [one["kind"] for one in added] == ["ResourceClaimTemplate", "ComputeDomain"]
    channel = added[1]["spec"]["channel"]["resourceClaimTemplate"]["name"]
    claims = pods_of(workload)[0]["resourceClaims"]
    assert claims[1] == {"name": "channel", "resourceClaimTemplateName": channel}
    assert "numNodes: 0" in text and "0 lets" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BARE + "    spec: {}\n",
         "no pod requests a GPU or a NIC; set their numbers with --gpus and --nics"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: p}\n", "no workload in the input"),
    ],
)  # fmt: skip
def test_input_without_devices_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    done = run("suggest", file, *SHAPE)
    assert done.exit_code == 1 and message in done.output


def test_without_a_file_it_prints_what_the_pod_needs() -> None:
    text = run("suggest", "--gpus", "2", "--nics", "2", "--shape", "a3-ultragpu-8g").stdout
    snippet = text[text.index("# In the pod") :].splitlines()[1:]
    spec = yaml.safe_load("\n".join(line.removeprefix("# ") for line in snippet))["spec"]
    assert spec["resourceClaims"] == [{"name": "devices", "resourceClaimTemplateName": "2gpu-2nic"}]
    assert spec["containers"][0]["resources"] == {"claims": [{"name": "devices"}]}


def test_readme_leads_from_the_published_job_to_an_aligned_one(tmp_path: Path) -> None:
    """The three commands as they stand, in a folder where `dranet` and the documents are."""
    root = Path(__file__).parents[3]
    block = re.search(r"in three commands:\n\n((?:    dranet .*\n)+)", (root / "README.md").read_text())
    assert block is not None and block[1].count("\n") == 3
    (tmp_path / "tests").symlink_to(root / "tests")
    script = f'set -e\ndranet() {{ {sys.executable} -m dranet "$@"; }}\n{textwrap.dedent(block[1])}'
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "0 errors, 0 warnings" in done.stdout
    assert "\n3 of 3 pods fit; worst pair PIX; " in done.stdout
