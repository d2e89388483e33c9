"""The driver at a real containerd: a sandbox made through its CRI gets its card, whatever is restarted or stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from ctrdbed import Containerd, Cri
from ctrdbed.daemon import child_of, wait_until
from kubebed.images import BUSYBOX_IMAGE

from dranet.kernel import addresses, links, virtual_links
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket
from dranet.kube import resources
from dranet.kubelet.client import Kubelet
from dranet.model.names import ClaimRef
from dranet.sandbox import apihttp
from dranet.sandbox.apiserver import SandboxApiServer

PATIENCE = 30.0
CLAIM = ClaimRef("default", "nics", "claim-uid")
POD = ("user", "user-uid")
CDI = [f"dra.net/claim={CLAIM.uid}"]
SLEEP = ["/bin/busybox", "sleep", "1000"]
RESTARTS = int(os.environ.get("DRANET_RESTARTS", "6"))
"""Of the driver beside ended sandboxes, by the many orders in which containerd lists them; by hand 50."""


class DriverBed:
    """The driver as a process beside containerd, with a played kubelet and API server."""

    def __init__(self, containerd: Containerd, api: SandboxApiServer, kubelet: Kubelet, folder: Path) -> None:
        self.containerd = containerd
        self.api = api
        self.kubelet = kubelet
        self.folder = folder
        self.host = Namespace.open(containerd.network())
        self.process: subprocess.Popen[bytes] | None = None

    def add_card(self) -> None:
        with NetlinkSocket(namespace_fd=self.host.fd) as route:
            route.request(virtual_links.create_veth("card0", "peer0"))
            card = links.get_link(route, "card0")
            assert card is not None
            route.request(addresses.add(addresses.from_cidr("10.7.0.1/24", card.index)))
            route.request(links.change(card.index, up=True))

    def remove_card(self) -> None:
        with NetlinkSocket(namespace_fd=self.host.fd) as route:
            if (found := links.get_link(route, "peer0")) is not None:
                route.request(links.delete(found.index))

    def names(self) -> set[str]:
        with NetlinkSocket(namespace_fd=self.host.fd) as route:
            return {link.name for link in links.list_links(route)}

    async def start(self) -> None:
        flags = [
            "--node-name=n1",
            f"--kubeconfig={self.folder}/kubeconfig.json",
            f"--kubelet-root-dir={self.folder}",
            f"--db-path={self.folder}/dranet.sqlite",
            f"--nri-socket={self.containerd.nri_socket}",
            "--bind-address=127.0.0.1:9177",
            "--cloud-provider-hint=NONE",
            "--filter=",
        ]
        command = self.containerd.command(sys.executable, "-m", "dranet", "run", *flags)
        with open(self.folder / "driver.log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: ASYNC220 (returns at once)
        async with asyncio.timeout(PATIENCE):
            await self.kubelet.wait_for(lambda plugins: bool(plugins))

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(child_of(self.process.pid), number)
        if number is not signal.SIGSTOP:
            os.kill(self.process.pid, signal.SIGCONT)  # nsenter stops itself when its child is stopped

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()
        for path in (self.folder / "plugins_registry").glob("*.sock"):
            path.unlink()
        await self.kubelet.wait_for(lambda plugins: not plugins)

    async def connected(self, times: int = 1) -> None:
        """Wait until the runtime has synchronised the driver so many times."""
        await self._has_logged("00-dra.net is ready", times)

    async def compared(self, times: int) -> None:
        """Wait until the driver has put right, so many times, what differs from what the runtime listed."""
        await self._has_logged("claims with the runtime's pods", times)

    async def _has_logged(self, words: str, times: int) -> None:
        log = self.folder / "driver.log"
        await asyncio.to_thread(wait_until, lambda: log.read_text().count(words) >= times, words, PATIENCE)


@pytest.fixture
async def bed(containerd: Containerd) -> AsyncIterator[DriverBed]:
    api = SandboxApiServer()
    _fill(api)
    with tempfile.TemporaryDirectory(prefix="drv") as name, Namespace.open(containerd.network()) as host:
        folder = Path(name)
        listener = host.run(_listen)
        async with apihttp.serve(api, listener=listener) as port, Kubelet(folder) as kubelet:
            (folder / "kubeconfig.json").write_bytes(msgspec.json.encode(_kubeconfig(port)))
            made = DriverBed(containerd, api, kubelet, folder)
            made.add_card()
            await made.start()
            await made.connected()
            yield made
            await made.kill()
            made.remove_card()
            made.host.close()


def _fill(api: SandboxApiServer) -> None:
    api.put(resources.NODES, {"metadata": {"name": "n1"}})
    spec = {
        "containers": [{"name": "main", "resources": {"claims": [{"name": "nics"}]}}],
        "resourceClaims": [{"name": "nics", "resourceClaimName": CLAIM.name}],
    }
    api.put(resources.PODS, {"metadata": {"name": POD[0], "namespace": "default", "uid": POD[1]}, "spec": spec})
    results = [{"driver": "dra.net", "pool": "n1", "device": "card0", "request": "nic"}]
    status = {
        "reservedFor": [{"resource": "pods", "name": POD[0], "uid": POD[1]}],
        "allocation": {"devices": {"results": results}},
    }
    metadata = {"name": CLAIM.name, "namespace": "default", "uid": CLAIM.uid}
    api.put(resources.RESOURCE_CLAIMS, {"metadata": metadata, "spec": {}, "status": status})


def _listen() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener


def _kubeconfig(port: int) -> dict[str, Any]:
    return {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }


async def eventually(cri: Cri, sandbox: str, cdi: Sequence[str]) -> str:
    """Create the container again and again, as the kubelet does, until it starts."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, cdi)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.2)


async def test_a_sandbox_gets_its_card_a_container_runs_and_the_card_comes_home(bed: DriverBed, cri: Cri) -> None:
    await bed.kubelet.prepare("dra.net", CLAIM)
    sandbox = await cri.run_sandbox(*POD, own_network=True)
    assert "card0" not in bed.names()
    await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)
    await cri.stop_sandbox(sandbox)
    assert "card0" in bed.names()
    await bed.kubelet.unprepare("dra.net", CLAIM)


async def test_it_survives_a_restart_of_containerd_in_the_middle(bed: DriverBed, cri: Cri) -> None:
    await bed.kubelet.prepare("dra.net", CLAIM)
    sandbox = await cri.run_sandbox(*POD, own_network=True)
    await asyncio.to_thread(bed.containerd.stop)
    await asyncio.to_thread(bed.containerd.start)
    await bed.connected(times=2)
    await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)
    await cri.stop_sandbox(sandbox)
    await bed.kubelet.unprepare("dra.net", CLAIM)
    assert "card0" in bed.names()


@pytest.mark.parametrize("healed_by", ["SIGCONT", "restart"])
async def test_a_stopped_driver_lets_no_container_start_and_heals(bed: DriverBed, cri: Cri, healed_by: str) -> None:
    await bed.kubelet.prepare("dra.net", CLAIM)
    bed.signal(signal.SIGSTOP)
    sandbox = await cri.run_sandbox(*POD, own_network=True)  # containerd gives up on the plugin and goes on
    with pytest.raises(grpc.aio.AioRpcError, match="CDI device injection failed"):
        await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)
    if healed_by == "SIGCONT":
        bed.signal(signal.SIGCONT)
    else:
        await bed.kill()
        await bed.start()
    await eventually(cri, sandbox, CDI)
    assert "card0" not in bed.names()
    await cri.stop_sandbox(sandbox)
    await bed.kubelet.unprepare("dra.net", CLAIM)
    assert "card0" in bed.names()


async def _ended_sandboxes(bed: DriverBed, cri: Cri) -> str:
    """Three sandboxes of the pod that have ended: two stopped, and one that died and whose network is still there."""
    for attempt in range(2):
        await cri.stop_sandbox(await cri.run_sandbox(*POD, own_network=True, attempt=attempt))
    died = await cri.run_sandbox(*POD, own_network=True, attempt=2)
    await asyncio.to_thread(bed.containerd.kill_sandbox, died)
    return died


async def test_a_restarted_driver_leaves_the_card_in_a_pod_that_has_ended_sandboxes(bed: DriverBed, cri: Cri) -> None:
    await bed.kubelet.prepare("dra.net", CLAIM)
    died = await _ended_sandboxes(bed, cri)
    sandbox = await cri.run_sandbox(*POD, own_network=True, attempt=3)
    for restart in range(RESTARTS):
        await bed.kill()
        await bed.start()
        await bed.compared(restart + 2)
        container = await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)
        assert await cri.network_of(container) == {"lo", "card0"}, f"after restart {restart + 1}"
        await cri.remove_container(container)
    await cri.stop_sandbox(died)  # late: the kubelet has only now come to it
    assert "card0" not in bed.names()
    await cri.stop_sandbox(sandbox)
    assert "card0" in bed.names()
    await bed.kubelet.unprepare("dra.net", CLAIM)


async def test_a_sandbox_that_starts_while_the_driver_is_away_gets_the_card_of_one_that_died(
    bed: DriverBed, cri: Cri
) -> None:
    await bed.kubelet.prepare("dra.net", CLAIM)
    await _ended_sandboxes(bed, cri)
    await bed.kill()
    sandbox = await cri.run_sandbox(*POD, own_network=True, attempt=3)
    await bed.start()
    container = await eventually(cri, sandbox, CDI)
    assert await cri.network_of(container) == {"lo", "card0"}
    await cri.stop_sandbox(sandbox)
    await bed.kubelet.unprepare("dra.net", CLAIM)
    assert "card0" in bed.names()


async def test_a_second_pod_that_names_the_claim_does_not_start_its_container(bed: DriverBed, cri: Cri) -> None:
    """The receipt of the first pod is there, so containerd alone would start it."""
    await bed.kubelet.prepare("dra.net", CLAIM)
    first = await cri.run_sandbox(*POD, own_network=True)
    second = ("second", "second-uid")
    sandbox = await cri.run_sandbox(*second, own_network=True)
    with pytest.raises(grpc.aio.AioRpcError, match="belongs to one pod at a time"):
        await cri.run_container(sandbox, second, BUSYBOX_IMAGE, SLEEP, CDI)
    await cri.run_container(first, POD, BUSYBOX_IMAGE, SLEEP, CDI)
    await cri.stop_sandbox(sandbox)
    await cri.stop_sandbox(first)
    await bed.kubelet.unprepare("dra.net", CLAIM)
    assert "card0" in bed.names()
