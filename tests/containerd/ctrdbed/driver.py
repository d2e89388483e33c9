"""The driver as a process beside a real containerd, with a played kubelet and API server."""

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
from kubebed.images import BUSYBOX_IMAGE

from dranet.kernel import addresses, links, virtual_links
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket
from dranet.kube import resources
from dranet.kubelet.client import Kubelet
from dranet.model.names import ClaimRef
from dranet.sandbox import apihttp
from dranet.sandbox.apiserver import SandboxApiServer

from .cri import Cri
from .daemon import Containerd, child_of, wait_until

PATIENCE = 30.0
CLAIM = ClaimRef("default", "nics", "claim-uid")
POD = ("user", "user-uid")
CDI = [f"dra.net/claim={CLAIM.uid}"]
SLEEP = ["/bin/busybox", "sleep", "1000"]
ARRIVED = "is in the pod as"


class DriverBed:
    """A node with cards `card0`, `card1`, ..., all of them in one claim of one pod."""

    def __init__(
        self, containerd: Containerd, api: SandboxApiServer, kubelet: Kubelet, folder: Path, cards: Sequence[str]
    ) -> None:
        self.cards = cards
        self.containerd = containerd
        self.api = api
        self.kubelet = kubelet
        self.folder = folder
        self.host = Namespace.open(containerd.network())
        self.process: subprocess.Popen[bytes] | None = None

    def add_cards(self) -> None:
        with NetlinkSocket(namespace_fd=self.host.fd) as route:
            for number, name in enumerate(self.cards):
                route.request(virtual_links.create_veth(name, f"peer{number}"))
                card = links.get_link(route, name)
                assert card is not None
                route.request(addresses.add(addresses.from_cidr(f"10.7.{number}.1/24", card.index)))
                route.request(links.change(card.index, up=True))

    def remove_cards(self) -> None:
        with NetlinkSocket(namespace_fd=self.host.fd) as route:
            for number in range(len(self.cards)):
                if (found := links.get_link(route, f"peer{number}")) is not None:
                    route.request(links.delete(found.index))

    def names(self) -> set[str]:
        with NetlinkSocket(namespace_fd=self.host.fd) as route:
            return {link.name for link in links.list_links(route)}

    def at_home(self) -> set[str]:
        """The cards that are on the node."""
        return self.names() & set(self.cards)

    def receipts(self) -> list[str]:
        """As the runtime sees them."""
        listing = self.containerd.command("sh", "-c", "ls /run/cdi 2>/dev/null || true")
        found = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()
        return [name for name in found if not name.startswith(".")]

    def events(self) -> list[str]:
        """Those of pods. The node has one of its own: this machine's card is, seen from here, in another namespace."""
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
            f"--nri-socket={self.containerd.nri_socket}",
            "--bind-address=127.0.0.1:9177",
            "--cloud-provider-hint=NONE",
            "--filter=",
        ]
        command = self.containerd.command(sys.executable, "-m", "dranet", "run", *flags)
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
        """The driver is dead, and the kubelet has noticed."""
        assert self.process is not None
        await asyncio.to_thread(self.process.wait, PATIENCE)
        for path in (self.folder / "plugins_registry").glob("*.sock"):
            path.unlink()
        await self.kubelet.wait_for(lambda plugins: not plugins)

    async def connected(self, times: int = 1) -> None:
        """Wait until the runtime has synchronised the driver so many times."""
        await self._has_logged("00-dra.net is ready", times)

    async def compared(self, times: int) -> None:
        """Wait until the driver has put right, so many times, what differs from what the runtime listed."""
        await self._has_logged("claims with the runtime's pods", times)

    async def arrived(self, cards: int) -> None:
        """Wait until so many cards have come into pods."""
        await self._has_logged(ARRIVED, cards)

    def arrivals(self) -> int:
        """How many cards have come into pods."""
        return (self.folder / "driver.log").read_text().count(ARRIVED)

    async def _has_logged(self, words: str, times: int) -> None:
        log = self.folder / "driver.log"
        await asyncio.to_thread(wait_until, lambda: log.read_text().count(words) >= times, words, PATIENCE)

    def connections(self) -> int:
        """How many times the driver has connected; more than once where the runtime has given up on it."""
        return (self.folder / "driver.log").read_text().count("00-dra.net is ready")


@contextlib.asynccontextmanager
async def driver_bed(containerd: Containerd, cards: int = 1, **environment: str) -> AsyncIterator[DriverBed]:
    """With the driver started and connected."""
    api, names = SandboxApiServer(), [f"card{number}" for number in range(cards)]
    _fill(api, names)
    with tempfile.TemporaryDirectory(prefix="drv") as name, Namespace.open(containerd.network()) as host:
        folder = Path(name)
        listener = host.run(_listen)
        async with apihttp.serve(api, listener=listener) as port, Kubelet(folder) as kubelet:
            (folder / "kubeconfig.json").write_bytes(msgspec.json.encode(_kubeconfig(port)))
            made = DriverBed(containerd, api, kubelet, folder, names)
            made.add_cards()
            await made.start(**environment)
            try:
                await made.connected()
                yield made
            finally:
                await made.kill()
                made.remove_cards()
                made.host.close()


def _fill(api: SandboxApiServer, cards: Sequence[str]) -> None:
    api.put(resources.NODES, {"metadata": {"name": "n1"}})
    spec = {
        "containers": [{"name": "main", "resources": {"claims": [{"name": "nics"}]}}],
        "resourceClaims": [{"name": "nics", "resourceClaimName": CLAIM.name}],
    }
    api.put(resources.PODS, {"metadata": {"name": POD[0], "namespace": "default", "uid": POD[1]}, "spec": spec})
    results = [{"driver": "dra.net", "pool": "n1", "device": card, "request": "nic"} for card in cards]
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
