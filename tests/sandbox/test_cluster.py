"""A cluster's life: machines with drivers, a story played on them, and what is told when it goes wrong."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dranet.kube import resources
from dranet.model.names import DRIVER_NAME
from dranet.sandbox.checks import PodView
from dranet.sandbox.cluster import NodePlan, SandboxCluster, SandboxError, make_char_devices, until
from dranet.sandbox.demo import Audience, Play
from dranet.sandbox.running import RunningPod
from dranet.sandbox.stories import Act, chosen
from dranet.sandbox.sysfs_tree import write_sysfs
from dranet.topology.shape import load_shape
from dranet.topology.shape_devices import nic_devices

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
MPI = chosen(("mpi",))[0]
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
    """A short path: the names of sockets are limited."""
    with tempfile.TemporaryDirectory(prefix="dranet-") as name:
        yield Path(name)


class Watcher(Audience):
    """Remembers what it was shown, and may meddle."""

    def __init__(self, meddle: str = "") -> None:
        self.views: list[PodView] = []
        self.meddle = meddle

    def pods(self, views: Sequence[PodView]) -> None:
        self.views += views

    async def stay(self, cluster: SandboxCluster, act: Act, pods: Sequence[RunningPod]) -> None:
        if self.meddle == "kill":
            driver = pods[-1].node.node.driver
            assert driver is not None
            await driver.kill()


async def test_the_driver_finds_exactly_the_cards_of_the_shape(folder: Path) -> None:
    shape = load_shape("nd-gb300-v6")
    async with SandboxCluster([NodePlan("gb300", shape)], folder) as cluster:
        slices = [s["spec"] for s in cluster.api.objects(resources.RESOURCE_SLICES)]
    assert {s["driver"]: len(s["devices"]) for s in slices} == {DRIVER_NAME: 4, "gpu.nvidia.com": 4}
    found = {d["name"]: d["attributes"] for s in slices if s["driver"] == DRIVER_NAME for d in s["devices"]}
    for device in nic_devices(shape):
        own = device.to_api()["attributes"]
        assert {k: found[device.name].get(k) for k in TOPOLOGY} == {k: own.get(k) for k in TOPOLOGY}


async def test_closing_a_cluster_ends_its_drivers_and_frees_its_files(folder: Path) -> None:
    gc.collect()  # what tests before this one have opened and forgotten
    before = len(os.listdir("/proc/self/fd"))
    async with SandboxCluster([NodePlan("gb300", load_shape("nd-gb300-v6"))], folder) as cluster:
        driver = cluster.nodes["gb300"].node.driver
        assert driver is not None and driver.running
    assert not driver.running
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_story_is_played_to_its_end(folder: Path) -> None:
    watcher = Watcher()
    result = await Play(MPI, folder, watcher).run()
    assert result.failures == []
    launcher, *workers = watcher.views
    assert [list(view.interfaces) for view in (launcher, *workers)] == [[], ["dranet0"], ["dranet0"]]
    assert [pod.alignment for pod in result.pods] == [None, "PIX", "PIX"]
    assert all(pod.detach_ms is not None and pod.attach_ms > 0 for pod in result.pods)
    (lane,) = result.lanes
    assert None not in lane.pings_ms and min(lane.gbits) > 0


async def test_what_is_not_as_promised_is_told(folder: Path) -> None:
    (act,) = MPI.acts
    wrong = replace(act, alignment="SYS", cards=2, interfaces=("other0",), pairs=2)
    result = await Play(replace(MPI, acts=(wrong,)), folder, Audience()).run()
    text = "\n".join(result.failures)
    for fact in ("expected SYS, found PIX", "expected 2, found 1", "('other0',), found ('dranet0',)", "rails"):
        assert fact in text
    assert len(result.failures) == 7


async def test_a_claim_nobody_can_satisfy_ends_the_story_with_the_reason(folder: Path) -> None:
    story = replace(MPI, shape="nd-gb300-v6")
    result = await Play(story, folder, Audience()).run()
    assert len(result.failures) == 1
    assert "nccl-test-dranet-1gpu-1nic-worker-0 fits on no machine" in result.failures[0]


async def test_an_attach_that_is_refused_ends_the_story_with_the_drivers_words(folder: Path) -> None:
    manifest = folder / "bad.yaml"
    manifest.write_text(BAD_ROUTE)
    act = replace(MPI.acts[0], files=(str(manifest),))
    result = await Play(replace(MPI, acts=(act,)), folder, Audience()).run()
    assert len(result.failures) == 1 and "192.0.2.1" in result.failures[0]


def test_device_nodes_that_cannot_be_made_are_admitted(folder: Path) -> None:
    write_sysfs(load_shape("nd-gb300-v6"), folder / "sys")
    (folder / "dev").write_text("in the way")
    assert not make_char_devices(folder)


def test_device_nodes_stand_for_nothing_on_the_machine(folder: Path) -> None:
    write_sysfs(load_shape("nd-gb300-v6"), folder / "sys")
    if not make_char_devices(folder):
        pytest.skip("this kernel allows no device nodes here")
    nodes = sorted((folder / "dev" / "infiniband").iterdir())
    assert [node.name for node in nodes] == [
        "rdma_cm",
        *(f"{kind}{number}" for kind in ("umad", "uverbs") for number in range(4)),
    ]
    assert {(os.major(node.stat().st_rdev), os.minor(node.stat().st_rdev)) for node in nodes} == {(0, 0)}


async def test_a_driver_that_dies_ends_the_story_and_that_is_told(folder: Path) -> None:
    result = await Play(MPI, folder, Watcher("kill")).run()
    assert len(result.failures) == 1 and "NodeUnprepareResources was not answered" in result.failures[0]


async def test_waiting_in_vain_says_what_was_found() -> None:
    with pytest.raises(SandboxError, match=r"waited 0.01 s: three of four"):
        await until(lambda: False, lambda: "three of four", seconds=0.01)
