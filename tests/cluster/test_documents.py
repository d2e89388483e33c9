"""The user's five documents on a real cluster: scheduled by kube-scheduler, prepared by two drivers, run by containerd.

Each stage of a document is one test; the first stage of each also runs with its v1beta1 manifests. The GPUs are a
stand-in driver's, the NICs are cables with the machine's names, addresses and MTU; the driver sees its sysfs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from dranet.testing.gpu_driver import DRIVER as GPU_DRIVER
from dranet.testing.scenarios import SCENARIOS, Scenario, Stage
from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.documents import (
    SYSFS,
    Machines,
    Worker,
    manifests,
    names_in,
    nics_of,
    rails,
    seen,
    workers,
    worst_pair,
)
from tests.cluster.kubebed import Cluster, Kubectl, parts
from tests.cluster.kubebed.images import program_image
from tests.cluster.kubebed.manifests import claim_template, pod, request

STAGES = [(scenario, stage, beta) for scenario in SCENARIOS for stage in scenario.stages for beta in (False, True)]
STAGES = [(scenario, stage, beta) for scenario, stage, beta in STAGES if not beta or stage is scenario.stages[0]]


def _title(given: tuple[Scenario, Stage, bool]) -> str:
    scenario, stage, beta = given
    return f"{scenario.name}: {stage.title}{', v1beta1' if beta else ''}"


@pytest.fixture(scope="module")
def driver(bed: Cluster) -> Iterator[Cluster]:
    release.install(bed, **SYSFS)
    yield bed
    release.remove(bed)


@pytest.fixture(scope="module")
def machines(driver: Cluster, request: pytest.FixtureRequest) -> Iterator[Machines]:
    dressed = Machines(driver, request.param)
    try:
        dressed.ready()
        yield dressed
    finally:
        dressed.remove()


@pytest.mark.parametrize(
    ("machines", "scenario", "stage", "beta"),
    [
        pytest.param(scenario.shape, scenario, stage, beta, id=_title((scenario, stage, beta)))
        for scenario, stage, beta in STAGES
    ],
    indirect=["machines"],
    scope="module",
)
def test_document(machines: Machines, kubectl: Kubectl, scenario: Scenario, stage: Stage, beta: bool) -> None:
    # The stage before is over when its devices are free again: else this one's workers get other NICs on other rails.
    wait_until(lambda: not _allocated(kubectl), "the claims of others to end")
    kubectl.apply(*manifests(stage, beta=beta))
    try:
        wait_until(lambda: _running(kubectl, stage), f"the pods of {stage.title}")
        wait_until(lambda: all(map(_reported, workers(machines.bed, kubectl))), "the status of all claims")
        check_stage(machines, kubectl, stage)
    finally:
        kubectl.run("delete", "statefulsets", "--all", "--wait=true")


def check_stage(machines: Machines, kubectl: Kubectl, stage: Stage) -> None:
    found = workers(machines.bed, kubectl)
    for worker in found:
        check_worker(machines, kubectl, stage, worker)
    drivers = ("dra.net", GPU_DRIVER)
    held = [(worker.node, name, device) for worker in found for name in drivers for device in worker.given(name)]
    assert len(held) == len(set(held)), "a device is in two pods"
    assert talk(kubectl, found) == stage.pairs


def _allocated(kubectl: Kubectl) -> list[str]:
    claims = kubectl.items("resourceclaims", "--all-namespaces")
    return [claim["metadata"]["name"] for claim in claims if "allocation" in claim.get("status", {})]


def _running(kubectl: Kubectl, stage: Stage) -> bool:
    pods = kubectl.items("pods")
    workloads = [manifest for manifest in manifests(stage) if manifest["kind"] in ("Pod", "StatefulSet")]
    wanted = sum(workload["spec"].get("replicas", 1) for workload in workloads)
    return len(pods) == wanted and all(pod["status"]["phase"] == "Running" for pod in pods)


def _reported(worker: Worker) -> bool:
    return {entry["device"] for entry in worker.status if entry["driver"] == "dra.net"} == set(worker.given("dra.net"))


def check_worker(machines: Machines, kubectl: Kubectl, stage: Stage, worker: Worker) -> None:
    """Names, MTU, addresses, devices, status and alignment of one pod, as its document says."""
    nics = nics_of(machines.shape, machines.bed, worker)
    assert len(worker.given("dra.net")) == stage.nics
    assert seen(worker) == sorted((nic.mac, nic.mtu, nic.addresses) for nic in nics)
    assert names_in(worker) == (set(stage.interfaces) or {nic.name for nic in nics})
    assert worst_pair(machines.shape, worker) == stage.alignment
    if stage.char_devices:
        assert tuple(sorted(kubectl.exec(worker.name, "ls", "/dev/infiniband").split())) == stage.char_devices
    assert len(_variable(kubectl, worker, "NVIDIA_VISIBLE_DEVICES").split(",")) == len(worker.given(GPU_DRIVER))
    check_status(worker)
    home = set(machines.bed.node(worker.node).links())
    assert not {nic.name for nic in nics} & home


def check_status(worker: Worker) -> None:
    for entry in worker.status:
        assert {condition["status"] for condition in entry["conditions"]} == {"True"}, entry
    described = {entry["networkData"]["interfaceName"] for entry in worker.status if "networkData" in entry}
    assert described == names_in(worker)


def _variable(kubectl: Kubectl, worker: Worker, name: str) -> str:
    lines = kubectl.exec(worker.name, "env").splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith(f"{name}="))


def talk(kubectl: Kubectl, found: list[Worker]) -> int:
    """How many pairs of workers on two machines reach each other over every rail they share."""
    pairs = 0
    for one, other in itertools.combinations(found, 2):
        mine, theirs = rails(one), rails(other)
        shared = [rail for rail in mine if rail in theirs]
        if one.node != other.node and shared:
            steps = [f"ping -c1 -W2 -I {mine[rail][0]} {theirs[rail][1]}" for rail in shared]
            kubectl.exec(one.name, "sh", "-c", " && ".join(steps))
            pairs += 1
    return pairs


@pytest.fixture
def example_driver(driver: Cluster) -> Iterator[None]:
    """gpu.example.com, a driver by others, from its own chart."""
    image, reference = program_image(parts.EXAMPLE_DRIVER)
    repository, _, tag = reference.rpartition(":")
    chart = parts.source_of(parts.EXAMPLE_DRIVER) / "deployments/helm/dra-example-driver"
    values = {"image": {"repository": repository, "tag": tag, "pullPolicy": "Never"}}
    driver.install_driver("example", chart, image, values)
    yield
    driver.uninstall_driver("example")


@pytest.mark.parametrize("machines", ["a4-highgpu-8g"], indirect=True, scope="module")
def test_three_drivers_serve_one_pod(machines: Machines, example_driver: None, kubectl: Kubectl) -> None:
    """Ours, the stand-in for gpu.nvidia.com aligned with it in one claim, and a driver by others in another."""
    near = {"requests": ["nic", "gpu"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    pair = (request("nic", release.CLASS), request("gpu", GPU_DRIVER))
    kubectl.apply(claim_template("pair", *pair, constraints=[near]))
    kubectl.apply(claim_template("other", request("gpu", "gpu.example.com")))
    kubectl.start(pod("user", templates={"pair": "pair", "other": "other"}))
    [worker] = workers(machines.bed, kubectl)
    assert sorted(result["driver"] for result in worker.results) == ["dra.net", "gpu.example.com", GPU_DRIVER]
    assert worst_pair(machines.shape, worker) == "PIX"
    assert names_in(worker) == {nic.name for nic in nics_of(machines.shape, machines.bed, worker)}
    lines = kubectl.exec("user", "env").splitlines()
    assert any(line.startswith("GPU_DEVICE_") for line in lines)
    assert any(line.startswith("NVIDIA_VISIBLE_DEVICES=GPU-") for line in lines)
