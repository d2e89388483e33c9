"""The sandbox cluster: machines with drivers, scenarios on them, and reported failures."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dranet.core.names import DRIVER_NAME
from dranet.kubernetes.api import resources
from dranet.machines.shape import load_shape
from dranet.machines.shape_devices import nic_devices
from dranet.testing.checks import PodView
from dranet.testing.cluster import NodePlan, SandboxCluster, create_char_devices
from dranet.testing.demo import Observer, ScenarioRunner
from dranet.testing.running import RunningPod
from dranet.testing.scenarios import Stage, select_scenarios
from dranet.testing.sysfs_tree import write_sysfs
from dranet.testing.waiting import WaitTimeout, until

pytestmark = pytest.mark.usefixtures("may_make_namespaces")

BAD_ROUTE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: bad}
spec:
  spec:
    devices:
      requests: [{name: nic, exactly: {deviceClassName: dranet}}]
      config:
      - opaque:
          driver: dra.net
          parameters: {routes: [{destination: 10.99.0.0/16, gateway: 192.0.2.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: lost}
spec:
  containers: [{name: main, image: x, resources: {claims: [{name: nics}]}}]
  resourceClaims: [{name: nics, resourceClaimTemplateName: bad}]
"""
MPI = select_scenarios(("mpi",))[0]
TOPOLOGY = (
    "dra.net/ifName",
    "dra.net/rdmaDevice",
    "dra.net/mac",
    "dra.net/mtu",
    "dra.net/ipv4",
    "dra.net/pciAddress",
    "resource.kubernetes.io/numaNode",
    "resource.kubernetes.io/pcieRoot",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, because socket paths are limited to 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dranet-") as name:
        yield Path(name)


class _Recorder(Observer):
    """Records the pods, and can kill the driver."""

    def __init__(self, kill_driver: bool = False) -> None:
        self.views: list[PodView] = []
        self.kill_driver = kill_driver

    def pods(self, views: Sequence[PodView]) -> None:
        self.views += views

    async def pause(self, cluster: SandboxCluster, stage: Stage, pods: Sequence[RunningPod]) -> None:
        if self.kill_driver:
            driver = pods[-1].node.node.driver
            assert driver is not None
            await driver.kill()


async def test_driver_publishes_exactly_the_nics_of_the_shape(folder: Path) -> None:
    shape = load_shape("nd-gb300-v6")
    async with SandboxCluster([NodePlan("gb300", shape)], folder) as cluster:
        slices = [s["spec"] for s in cluster.api.objects(resources.RESOURCE_SLICES)]
    assert {s["driver"]: len(s["devices"]) for s in slices} == {DRIVER_NAME: 4, "gpu.nvidia.com": 4}
    found = {d["name"]: d["attributes"] for s in slices if s["driver"] == DRIVER_NAME for d in s["devices"]}
    for device in nic_devices(shape):
        own = device.to_api()["attributes"]
        assert {k: found[device.name].get(k) for k in TOPOLOGY} == {k: own.get(k) for k in TOPOLOGY}


async def test_closing_a_cluster_stops_drivers_and_closes_files(folder: Path) -> None:
    gc.collect()  # files that earlier tests left open
    before = len(os.listdir("/proc/self/fd"))
    async with SandboxCluster([NodePlan("gb300", load_shape("nd-gb300-v6"))], folder) as cluster:
        driver = cluster.nodes["gb300"].node.driver
        assert driver is not None and driver.running
    assert not driver.running
    assert len(os.listdir("/proc/self/fd")) == before


async def test_scenario_runs_to_its_end(folder: Path) -> None:
    recorder = _Recorder()
    result = await ScenarioRunner(MPI, folder, recorder).run()
    assert result.failures == []
    launcher, *workers = recorder.views
    assert [list(view.interfaces) for view in (launcher, *workers)] == [[], ["dranet0"], ["dranet0"]]
    assert [pod.alignment for pod in result.pods] == [None, "PIX", "PIX"]
    assert all(pod.detach_ms is not None and pod.attach_ms > 0 for pod in result.pods)
    (lane,) = result.lanes
    assert None not in lane.pings_ms and min(lane.gbits) > 0


async def test_unexpected_results_become_failures(folder: Path) -> None:
    (stage,) = MPI.stages
    wrong = replace(stage, alignment="SYS", nics=2, interfaces=("other0",), pairs=2)
    result = await ScenarioRunner(replace(MPI, stages=(wrong,)), folder, Observer()).run()
    text = "\n".join(result.failures)
    for fact in ("expected SYS, found PIX", "expected 2, found 1", "('other0',), found ('dranet0',)", "rails"):
        assert fact in text
    assert len(result.failures) == 7


async def test_unsatisfiable_claim_ends_the_scenario_with_the_reason(folder: Path) -> None:
    scenario = replace(MPI, shape="nd-gb300-v6")
    result = await ScenarioRunner(scenario, folder, Observer()).run()
    assert len(result.failures) == 1
    assert "nccl-test-dranet-1gpu-1nic-worker-0 does not fit on any machine" in result.failures[0]


async def test_refused_attach_ends_the_scenario_with_the_drivers_message(folder: Path) -> None:
    manifest = folder / "bad.yaml"
    manifest.write_text(BAD_ROUTE)
    stage = replace(MPI.stages[0], files=(str(manifest),))
    result = await ScenarioRunner(replace(MPI, stages=(stage,)), folder, Observer()).run()
    assert len(result.failures) == 1 and "192.0.2.1" in result.failures[0]


def test_reports_that_device_nodes_cannot_be_created(folder: Path) -> None:
    write_sysfs(load_shape("nd-gb300-v6"), folder / "sys")
    (folder / "dev").write_text("in the way")
    assert not create_char_devices(folder)


def test_fake_device_nodes_have_number_zero(folder: Path) -> None:
    write_sysfs(load_shape("nd-gb300-v6"), folder / "sys")
    if not create_char_devices(folder):
        pytest.skip("this kernel allows no device nodes here")
    nodes = sorted((folder / "dev" / "infiniband").iterdir())
    assert [node.name for node in nodes] == [
        "rdma_cm",
        *(f"{kind}{number}" for kind in ("umad", "uverbs") for number in range(4)),
    ]
    assert {(os.major(node.stat().st_rdev), os.minor(node.stat().st_rdev)) for node in nodes} == {(0, 0)}


async def test_killed_driver_ends_the_scenario_with_a_failure(folder: Path) -> None:
    result = await ScenarioRunner(MPI, folder, _Recorder(kill_driver=True)).run()
    assert len(result.failures) == 1 and "NodeUnprepareResources: no response" in result.failures[0]


async def test_timeout_reports_last_value() -> None:
    with pytest.raises(WaitTimeout, match=r"waited 0.01 s for four devices; last seen: 'three of four'"):
        await until(lambda: False, "four devices", seen=lambda: "three of four", limit=0.01)
