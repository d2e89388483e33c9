"""What a container is told of its cards: files that are whole when the receipt appears, and gone with the claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from dranet import podinfo
from dranet.kube import resources

from .daemon_bench import Bench, bench, until


def edits(b: Bench) -> dict[str, Any]:
    (receipt,) = (b.node.folder / "cdi").glob("*.json")
    (device,) = msgspec.json.decode(receipt.read_bytes())["devices"]
    return device["containerEdits"]


def mounted(b: Bench, where: Path) -> None:
    """The container's files, as the runtime would mount them."""
    for mount in edits(b)["mounts"]:
        target = where / mount["containerPath"].lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(mount["hostPath"]).read_bytes())
        assert mount["options"] == ["ro", "bind"]


async def test_a_container_reads_interface_addresses_and_what_was_published(tmp_path: Path) -> None:
    async with bench() as b:
        pod = b.claim("card0", "card1", parameters=None)
        await b.node.start_pod(pod)
        mounted(b, tmp_path)
        base = tmp_path / podinfo.BASE.lstrip("/")
        found = {device["device"]: device for device in podinfo.devices(str(base))}
        assert {name: d["interface"] for name, d in found.items()} == {"card0": "card0", "card1": "card1"}
        assert found["card0"]["addresses"] == ["10.0.0.1/24"]
        assert found["card0"]["mac"] == b_mac(b, pod, "card0")
        assert found["card0"]["attributes"]["ifName"] == "card0"
        assert {d["claim"] for d in found.values()} == {"claim-1"}
        await b.node.stop_pod(pod)
        await until(lambda: not list((b.node.folder / "kubelet/plugins/dra.net/metadata").iterdir()))


def b_mac(b: Bench, pod: Any, name: str) -> str:
    from dranet.kernel import links
    from dranet.kernel.netlink import NetlinkSocket

    with NetlinkSocket(namespace_fd=pod.netns.fd) as route:
        link = links.get_link(route, name)
        assert link is not None
        return link.mac


async def test_a_claim_from_a_template_is_found_under_the_pod_s_name_for_it() -> None:
    async with bench() as b:
        pod = b.claim("card0")
        claim = b.api.find(resources.RESOURCE_CLAIMS, "claim-1", "default")
        assert claim is not None
        annotated = {**claim["metadata"], "annotations": {"resource.kubernetes.io/pod-claim-name": "nics"}}
        b.api.put(resources.RESOURCE_CLAIMS, {**claim, "metadata": annotated})
        await b.node.start_pod(pod)
        (mount,) = edits(b)["mounts"]
        assert mount["containerPath"].endswith("/resourceclaimtemplates/nics/nic-0/dra.net-metadata.json")
        first, _ = Path(mount["hostPath"]).read_text().split("\n{", 1)
        assert json.loads(first)["podClaimName"] == "nics"


async def test_files_survive_a_restart_of_the_driver_and_go_with_the_claim() -> None:
    async with bench() as b:
        pod = b.claim("card0")
        await b.node.start_pod(pod)
        (mount,) = edits(b)["mounts"]
        await b.restart_driver()
        assert Path(mount["hostPath"]).exists()
        await b.node.stop_pod(pod)
        await until(lambda: not Path(mount["hostPath"]).exists())


async def test_the_flag_switches_them_off() -> None:
    async with bench(flags=["--enable-device-metadata=false"]) as b:
        pod = b.claim("card0")
        await b.node.start_pod(pod)
        assert "mounts" not in edits(b)


async def test_a_folder_that_cannot_be_written_is_said_and_the_pod_starts() -> None:
    async with bench() as b:
        place = b.node.folder / "kubelet/plugins/dra.net/metadata"
        place.write_text("a file where the folder should be")
        pod = b.claim("card0")
        await b.node.start_pod(pod)
        assert b.names(pod.netns) == {"card0"}
        assert b.node.driver is not None
        await until(lambda: "no device metadata" in b.node.driver.tail(60))
