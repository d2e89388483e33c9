"""Metadata files of containers: complete when the readiness gate appears, and removed with the claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from dranet.core import podinfo
from dranet.kubernetes.api import resources
from dranet.testing.waiting import until

from .daemon_bench import Bench, bench


def edits(b: Bench) -> dict[str, Any]:
    (gate,) = (b.node.folder / "cdi").glob("*.json")
    (device,) = msgspec.json.decode(gate.read_bytes())["devices"]
    found: dict[str, Any] = device["containerEdits"]
    return found


def mounted(b: Bench, where: Path) -> None:
    """The container's files, as the runtime would mount them."""
    for mount in edits(b)["mounts"]:
        target = where / mount["containerPath"].lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(mount["hostPath"]).read_bytes())
        assert mount["options"] == ["ro", "bind"]


async def test_container_reads_metadata_of_its_devices(tmp_path: Path) -> None:
    async with bench() as b:
        pod = await b.start("nic0", "nic1", parameters=None)
        mounted(b, tmp_path)
        base = tmp_path / podinfo.BASE.lstrip("/")
        found = {device["device"]: device for device in podinfo.devices(str(base))}
        assert {name: d["interface"] for name, d in found.items()} == {"nic0": "nic0", "nic1": "nic1"}
        assert found["nic0"]["addresses"] == ["10.0.0.1/24"]
        assert found["nic0"]["mac"] == b_mac(b, pod, "nic0")
        assert found["nic0"]["attributes"]["ifName"] == "nic0"
        assert {d["claim"] for d in found.values()} == {"claim-1"}
        await b.node.stop_pod(pod)
        await until(lambda: not list((b.node.folder / "kubelet/plugins/dra.net/metadata").iterdir()))


def b_mac(b: Bench, pod: Any, name: str) -> str:
    from dranet.linux import links
    from dranet.linux.netlink import NetlinkSocket

    with NetlinkSocket(namespace_fd=pod.netns.fd) as route:
        link = links.get_link(route, name)
        assert link is not None
        return link.mac


async def test_template_claim_has_the_name_in_the_pod() -> None:
    async with bench() as b:
        pod = b.claim("nic0")
        claim = b.api.find(resources.RESOURCE_CLAIMS, "claim-1", "default")
        assert claim is not None
        annotated = {**claim["metadata"], "annotations": {"resource.kubernetes.io/pod-claim-name": "nics"}}
        b.api.put(resources.RESOURCE_CLAIMS, {**claim, "metadata": annotated})
        await b.node.start_pod(pod)
        (mount,) = edits(b)["mounts"]
        assert mount["containerPath"].endswith("/resourceclaimtemplates/nics/nic-0/dra.net-metadata.json")
        first, _ = Path(mount["hostPath"]).read_text().split("\n{", 1)
        assert json.loads(first)["podClaimName"] == "nics"


async def test_metadata_files_survive_restart_and_are_deleted_with_the_claim() -> None:
    async with bench() as b:
        pod = await b.start("nic0")
        (mount,) = edits(b)["mounts"]
        await b.restart_driver()
        assert Path(mount["hostPath"]).exists()
        await b.node.stop_pod(pod)
        await until(lambda: not Path(mount["hostPath"]).exists())


async def test_flag_disables_metadata_files() -> None:
    async with bench(flags=["--enable-device-metadata=false"]) as b:
        await b.start("nic0")
        assert "mounts" not in edits(b)


async def test_unwritable_metadata_folder_is_logged() -> None:
    async with bench() as b:
        place = b.node.folder / "kubelet/plugins/dra.net/metadata"
        place.write_text("a file where the folder should be")
        pod = await b.start("nic0")
        assert b.names(pod.netns) == {"nic0"}
        driver = b.node.driver
        assert driver is not None
        await until(lambda: "Cannot write device metadata" in driver.tail(60))
