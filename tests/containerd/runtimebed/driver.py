"""The driver as a process with a real containerd, and a fake kubelet and API server."""

from __future__ import annotations

import asyncio
import contextlib
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

from dranet.core.names import ClaimRef
from dranet.kubernetes.api import resources
from dranet.kubernetes.kubelet.client import Kubelet
from dranet.linux import addresses, links, virtual_links
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.testing import apihttp
from dranet.testing.apiserver import SandboxApiServer
from dranet.testing.waiting import until
from tests.cluster.kubebed.images import BUSYBOX_IMAGE

from .cri import Cri
from .runtime import Runtime, child_of

PATIENCE = 30.0
CLAIM = ClaimRef("default", "nics", "claim-uid")
POD = ("user", "user-uid")
CDI = [f"dra.net/claim={CLAIM.uid}"]
SLEEP = ["/bin/busybox", "sleep", "1000"]
_CONNECTED = "NRI connection changed plugin=00-dra.net state=ready"
_ATTACHED = "Attached device"


class DriverBed:
    """A node with NICs `nic0`, `nic1`, ..., all of them in one claim of one pod."""

    def __init__(
        self, runtime: Runtime, api: SandboxApiServer, kubelet: Kubelet, folder: Path, nics: Sequence[str]
    ) -> None:
        self.nics = nics
        self.runtime = runtime
        self.api = api
        self.kubelet = kubelet
        self.folder = folder
        self.host = Namespace.open(runtime.network())
        self.process: subprocess.Popen[bytes] | None = None

    def add_nics(self) -> None:
        with NetlinkSocket(namespace_fd=self.host.fd) as route:
            for number, name in enumerate(self.nics):
                route.request(virtual_links.create_veth(name, f"peer{number}"))
                nic = links.get_link(route, name)
                assert nic is not None
                route.request(addresses.add(addresses.from_cidr(f"10.7.{number}.1/24", nic.index)))
                route.request(links.change(nic.index, up=True))

    def remove_nics(self) -> None:
        with NetlinkSocket(namespace_fd=self.host.fd) as route:
            for number in range(len(self.nics)):
                if (found := links.get_link(route, f"peer{number}")) is not None:
                    route.request(links.delete(found.index))

    def unplug(self, number: int) -> None:
        """A NIC dies, wherever it is: its far end is deleted."""
        with NetlinkSocket(namespace_fd=self.host.fd) as route:
            peer = links.get_link(route, f"peer{number}")
            assert peer is not None
            route.request(links.delete(peer.index))

    def names(self) -> set[str]:
        with NetlinkSocket(namespace_fd=self.host.fd) as route:
            return {link.name for link in links.list_links(route)}

    def on_host(self) -> set[str]:
        """The NICs in the host network namespace."""
        return self.names() & set(self.nics)

    def gates(self) -> list[str]:
        """The readiness gates that the runtime sees."""
        listing = self.runtime.command("sh", "-c", "ls /run/cdi 2>/dev/null || true")
        found = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()
        return [name for name in found if not name.startswith(".")]

    def events(self) -> list[str]:
        """The reasons of the pods' events. The node has one of its own: this machine's NIC is in another namespace."""
        events = self.api.objects(resources.EVENTS)
        return [event["reason"] for event in events if event["involvedObject"]["kind"] == "Pod"]

    def conditions(self) -> list[tuple[str, str]]:
        """Reason and status of the first condition of every device in the claim's status."""
        claim = self.api.find(resources.RESOURCE_CLAIMS, CLAIM.name, CLAIM.namespace) or {}
        devices = (claim.get("status") or {}).get("devices") or []
        return [(device["conditions"][0]["reason"], device["conditions"][0]["status"]) for device in devices]

    async def start(self, **environment: str) -> None:
        flags = [
            "--node-name=n1",
            f"--kubeconfig={self.folder}/kubeconfig.json",
            f"--kubelet-root-dir={self.folder}",
            f"--db-path={self.folder}/dranet.sqlite",
            f"--nri-socket={self.runtime.nri_socket}",
            "--bind-address=127.0.0.1:9177",
            "--cloud-provider-hint=NONE",
            "--filter=",
        ]
        command = self.runtime.command(sys.executable, "-m", "dranet", "run", *flags)
        with open(self.folder / "driver.log", "ab") as log:
            everything = {**os.environ, **environment}
            self.process = subprocess.Popen(command, env=everything, stdout=log, stderr=log)  # noqa: ASYNC220 (at once)
        async with asyncio.timeout(PATIENCE):
            await self.kubelet.wait_for(lambda plugins: bool(plugins))

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(child_of(self.process.pid), number)
        if number is not signal.SIGSTOP:
            os.kill(self.process.pid, signal.SIGCONT)  # nsenter stops itself when its child is stopped

    async def kill(self) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        await self.ended()

    async def ended(self) -> None:
        """Wait until the driver is dead and the kubelet has noticed."""
        assert self.process is not None
        await asyncio.to_thread(self.process.wait, PATIENCE)
        for path in (self.folder / "plugins_registry").glob("*.sock"):
            path.unlink()
        await self.kubelet.wait_for(lambda plugins: not plugins)

    async def connected(self, times: int = 1) -> None:
        """Wait until the runtime has synchronised the driver so many times."""
        await self._has_logged(_CONNECTED, times)

    async def compared(self, times: int) -> None:
        """Wait until the driver has reconciled with the runtime so many times."""
        await self._has_logged("claims with the runtime's pods", times)

    async def attached(self, nics: int) -> None:
        """Wait until so many devices are attached."""
        await self._has_logged(_ATTACHED, nics)

    def attach_count(self) -> int:
        """How many devices were attached."""
        return (self.folder / "driver.log").read_text().count(_ATTACHED)

    async def _has_logged(self, words: str, times: int) -> None:
        log = self.folder / "driver.log"
        await until(
            lambda: log.read_text().count(words) >= times, f"{times} times {words!r} in the log", seen=log.read_text
        )

    def connections(self) -> int:
        """How many times the driver has connected; more than once if the runtime dropped it."""
        return (self.folder / "driver.log").read_text().count(_CONNECTED)


@contextlib.asynccontextmanager
async def driver_bed(runtime: Runtime, nics: int = 1, **environment: str) -> AsyncIterator[DriverBed]:
    """With the driver started and connected."""
    api, names = SandboxApiServer(), [f"nic{number}" for number in range(nics)]
    _fill(api, names)
    with tempfile.TemporaryDirectory(prefix="drv") as name, Namespace.open(runtime.network()) as host:
        folder = Path(name)
        listener = host.run(_listen)
        async with apihttp.serve(api, listener=listener) as port, Kubelet(folder) as kubelet:
            (folder / "kubeconfig.json").write_bytes(msgspec.json.encode(_kubeconfig(port)))
            made = DriverBed(runtime, api, kubelet, folder, names)
            made.add_nics()
            await made.start(**environment)
            try:
                await made.connected()
                yield made
            finally:
                await made.kill()
                made.remove_nics()
                made.host.close()


def _fill(api: SandboxApiServer, nics: Sequence[str]) -> None:
    api.put(resources.NODES, {"metadata": {"name": "n1"}})
    spec = {
        "containers": [{"name": "main", "resources": {"claims": [{"name": "nics"}]}}],
        "resourceClaims": [{"name": "nics", "resourceClaimName": CLAIM.name}],
    }
    api.put(resources.PODS, {"metadata": {"name": POD[0], "namespace": "default", "uid": POD[1]}, "spec": spec})
    results = [{"driver": "dra.net", "pool": "n1", "device": nic, "request": "nic"} for nic in nics]
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
    """Create the container, with retries as the kubelet does, until it starts."""

    async def create() -> str:
        try:
            return str(await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, cdi))
        except grpc.aio.AioRpcError:
            return ""

    return await until(create, "a container to start")
