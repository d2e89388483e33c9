"""The parameter `environment`: settings for libraries, by file and variable, the same from every claim of the pod."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dranet.core.errors import DranetError
from dranet.kubernetes.api import resources
from dranet.kubernetes.nri.errors import PluginRejected
from dranet.kubernetes.nri.messages import Container, CreateContainerResponse
from dranet.node.edits.edits_writer import ContainerEditsWriter
from dranet.node.edits.library_settings import MPI_CONF, NCCL_CONF, NCCL_TOPOLOGY
from dranet.node.records.plan import DevicePlan
from dranet.node.server.runtime import container_adjustment
from dranet.testing.node import SandboxPod
from dranet.testing.waiting import until

from .conftest import claim_plan
from .daemon_bench import NODE, Bench, bench

GPU = "0000:0f:00.0"


def edits(b: Bench, claim: str) -> dict[str, Any]:
    gate = b.node.folder / "cdi" / f"dra.net-claim-{claim}.json"
    (device,) = msgspec.json.decode(gate.read_bytes())["devices"]
    found: dict[str, Any] = device["containerEdits"]
    return found


def variables(b: Bench, claim: str = "uid-1") -> dict[str, str]:
    found = dict(item.split("=", 1) for item in edits(b, claim)["env"])
    return {name: value for name, value in found.items() if not name.startswith("DRANET_")}


def files(b: Bench, claim: str = "uid-1") -> dict[str, str]:
    """What containers find at the places of library settings."""
    mounts = {m["containerPath"]: Path(m["hostPath"]).read_text() for m in edits(b, claim).get("mounts", [])}
    return {path: text for path, text in mounts.items() if not path.endswith("-metadata.json")}


def both(first: SandboxPod, second: SandboxPod) -> SandboxPod:
    """One pod with the claims of two."""
    return SandboxPod(first.name, first.uid, claims=[*first.claims, *second.claims])


async def test_container_gets_settings_of_named_libraries() -> None:
    async with bench() as b:
        pod = await b.start("nic0", "nic1", parameters={"environment": ["nccl", "mpi", "gloo"]})
        assert variables(b) == {
            "OMPI_MCA_btl_tcp_if_include": "nic0,nic1",
            "GLOO_SOCKET_IFNAME": "nic0,nic1",
            "TP_SOCKET_IFNAME": "nic0",
        }
        assert "NCCL_SOCKET_IFNAME==nic0,nic1" in files(b)[NCCL_CONF].splitlines()
        assert files(b)[MPI_CONF] == "btl_tcp_if_include = nic0,nic1\n"
        await b.node.stop_pod(pod)
        await until(lambda: not list((b.node.folder / "kubelet/plugins/dra.net/metadata").iterdir()))


async def test_claim_without_libraries_gets_no_settings() -> None:
    async with bench(flags=["--enable-device-metadata=false"]) as b:
        await b.start("nic0")
        assert (variables(b), files(b)) == ({}, {})


async def test_settings_do_not_need_metadata_files() -> None:
    async with bench(flags=["--enable-device-metadata=false"]) as b:
        await b.start("nic0", parameters={"environment": ["gloo"]})
        assert variables(b)["GLOO_SOCKET_IFNAME"] == "nic0"
        assert "mounts" not in edits(b, "uid-1")


async def test_two_claims_of_a_pod_give_the_same_settings() -> None:
    async with bench() as b:
        asking = {"environment": ["nccl", "gloo"]}
        first = b.claim("nic0", parameters=asking, pod="job")
        second = b.claim("nic1", parameters=asking, pod="job")
        await b.node.start_pod(both(first, second))
        assert variables(b, "uid-1") == variables(b, "uid-2")
        assert variables(b)["GLOO_SOCKET_IFNAME"] == "nic0,nic1"
        assert files(b, "uid-1") == files(b, "uid-2")
        assert "NCCL_SOCKET_IFNAME==nic0,nic1" in files(b)[NCCL_CONF]


async def test_device_without_libraries_is_left_out() -> None:
    async with bench() as b:
        first = b.claim("nic0", parameters={"environment": ["gloo"]}, pod="job")
        second = b.claim("nic1", pod="job")
        await b.node.start_pod(both(first, second))
        assert variables(b, "uid-1")["GLOO_SOCKET_IFNAME"] == "nic0"
        assert variables(b, "uid-2") == {}


async def test_variable_of_a_container_is_not_overridden() -> None:
    async with bench() as b:
        pod = b.claim("nic0", parameters={"environment": ["gloo"]})
        shown = b.api.find(resources.PODS, pod.name, "default")
        assert shown is not None
        shown["spec"]["containers"][0]["env"] = [{"name": "GLOO_SOCKET_IFNAME", "value": "eth0"}]
        b.api.put(resources.PODS, shown)
        await b.node.start_pod(pod)
        assert variables(b) == {"TP_SOCKET_IFNAME": "nic0"}
        assert 'setting=GLOO_SOCKET_IFNAME reason="a container of the pod sets it"' in b.driver.tail(200)


async def test_unknown_library_is_refused() -> None:
    async with bench() as b:
        pod = b.claim("nic0", parameters={"environment": ["ncl", "gloo"]})
        with pytest.raises(DranetError, match=r"environment\[0\].* ncl is not one of nccl, ucx, mpi, gloo, efa"):
            await b.node.prepare(pod)


async def test_settings_survive_a_restart_of_the_driver() -> None:
    async with bench() as b:
        await b.start("nic0", parameters={"environment": ["gloo"]})
        before = edits(b, "uid-1")
        await b.restart_driver()
        assert edits(b, "uid-1") == before


async def test_unwritable_settings_are_an_error() -> None:
    async with bench() as b:
        (b.node.folder / "kubelet/plugins/dra.net/metadata").write_text("a file where the folder should be")
        pod = b.claim("nic0", parameters={"environment": ["nccl"]})
        await b.node.prepare(pod)
        with pytest.raises(PluginRejected, match="Not a directory"):
            await b.node.run_sandbox(pod)
        assert b.names() == {"nic0", "nic1"}


async def test_pod_interface_is_not_listed_as_a_device() -> None:
    async with bench() as b:
        await b.start("nic0", parameters={"environment": ["nccl"], "interface": {"name": "eth0"}})
        assert "NCCL_SOCKET_IFNAME==eth0" in files(b)[NCCL_CONF]


def publish_gpu(b: Bench) -> None:
    device = {"name": "gpu-0", "attributes": {"resource.kubernetes.io/pciBusID": {"string": GPU}}}
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": NODE, "pool": pool, "devices": [device]}
    b.api.put(resources.RESOURCE_SLICES, {"metadata": {"name": "gpus"}, "spec": spec})


def with_gpu(b: Bench, pod: SandboxPod) -> None:
    claim = b.api.find(resources.RESOURCE_CLAIMS, pod.claims[0].name, "default")
    assert claim is not None
    gpu = {"driver": "gpu.nvidia.com", "pool": NODE, "device": "gpu-0", "request": "gpu"}
    claim["status"]["allocation"]["devices"]["results"].append(gpu)
    b.api.put(resources.RESOURCE_CLAIMS, claim)


def show_gpu(b: Bench) -> None:
    place = b.node.folder / "sys/devices/pci0000:0e/0000:0e:01.0" / GPU
    place.mkdir(parents=True)
    facts = {"class": "0x030200", "vendor": "0x10de", "device": "0x2335", "numa_node": "1"}
    facts |= {"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"}
    for name, value in facts.items():
        (place / name).write_text(f"{value}\n")
    bus = b.node.folder / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    (bus / GPU).symlink_to(f"../../../devices/pci0000:0e/0000:0e:01.0/{GPU}")


async def test_topology_file_contains_the_gpus_of_the_claim() -> None:
    async with bench() as b:
        publish_gpu(b)
        show_gpu(b)
        pod = b.claim("nic0", parameters={"environment": ["nccl"]})
        with_gpu(b, pod)
        await b.node.start_pod(pod)
        assert f"NCCL_TOPO_FILE={NCCL_TOPOLOGY}" in files(b)[NCCL_CONF].splitlines()
        assert f'busid="{GPU}"' in files(b)[NCCL_TOPOLOGY]


async def test_claim_without_gpus_has_no_topology_file() -> None:
    async with bench() as b:
        await b.start("nic0", parameters={"environment": ["nccl"]})
        assert set(files(b)) == {NCCL_CONF}
        assert "# NCCL_TOPO_FILE: the claim has no GPU" in files(b)[NCCL_CONF]


def test_pod_without_settings_costs_nothing(tmp_path: Path) -> None:
    """Neither its namespace (there is none here) nor a file is touched, and the hook has nothing to add."""
    device = DevicePlan(name="d", pool="n", request="r")
    plan = claim_plan(device)
    folder = tmp_path / "metadata"
    nowhere: Any = None
    assert ContainerEditsWriter(folder, metadata=False).write(nowhere, [plan], [("u", device, None)]) == {}
    assert not folder.exists()
    assert container_adjustment([plan], Container(), lift_memlock=True) == CreateContainerResponse()
