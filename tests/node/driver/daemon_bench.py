"""A sandbox node with NICs and claims, for tests of the whole daemon."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dranet.core.attributes import BANDWIDTH
from dranet.core.names import ClaimRef
from dranet.kubernetes.api import resources
from dranet.linux import addresses, links, virtual_links
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.traffic import tc
from dranet.node.store import UNEXPECTED_TRANSITION
from dranet.testing.apiserver import SandboxApiServer
from dranet.testing.node import CONTAINERD, RuntimeProfile, SandboxNode, SandboxPod
from dranet.testing.processes import Child
from dranet.testing.waiting import until

NODE = "node-1"
STARTED, COMPARED = "Started driver", "Reconciled claims with the runtime's pods"
"""What a driver logs first, and when all pods are reconciled; the drivers of a node write to one file."""
PATIENCE_SECONDS = 30.0
"""How long the fake runtime waits for a plugin, so that the outcome of a hook does not depend on the machine's load."""


class Bench:
    """A node, its API server and helpers."""

    def __init__(self, node: SandboxNode, api: SandboxApiServer, fabric: Namespace) -> None:
        self.node = node
        self.api = api
        self.fabric = fabric
        self._count = 0

    def add_nic(self, name: str, *cidrs: str) -> None:
        with self.node.route() as route, NetlinkSocket(namespace_fd=self.fabric.fd) as far:
            route.request(virtual_links.create_veth(name, name, peer_namespace_fd=self.fabric.fd))
            nic, peer = links.get_link(route, name), links.get_link(far, name)
            assert nic is not None and peer is not None
            for cidr in cidrs:
                route.request(addresses.add(addresses.from_cidr(cidr, nic.index, flags=addresses.IFA_F_NODAD)))
            far.request(links.change(peer.index, up=True))
            route.request(links.change(nic.index, up=True))
            _wait_until_seen_up(route, name)

    def claim(
        self, *devices: str, parameters: object = None, pod: str = "", name: str = "", share: str = ""
    ) -> SandboxPod:
        """An allocated claim reserved for a new pod, in the API server."""
        self._count += 1
        pod = pod or f"pod-{self._count}"
        name = name or f"claim-{self._count}"
        config = (
            [{"source": "FromClaim", "opaque": {"driver": "dra.net", "parameters": parameters}}] if parameters else []
        )
        results = [
            {"driver": "dra.net", "pool": NODE, "device": d, "request": f"nic-{i}", **_given(share, self._count)}
            for i, d in enumerate(devices)
        ]
        self.api.put(
            resources.RESOURCE_CLAIMS,
            {
                "metadata": {"name": name, "namespace": "default", "uid": f"uid-{self._count}"},
                "spec": {"devices": {"requests": []}},
                "status": {
                    "reservedFor": [{"resource": "pods", "name": pod, "uid": f"{pod}-uid"}],
                    "allocation": {"devices": {"results": results, "config": config}},
                },
            },
        )
        container = {"name": "main", "resources": {"claims": [{"name": "nics"}]}}
        spec = {"containers": [container], "resourceClaims": [{"name": "nics", "resourceClaimName": name}]}
        self.api.put(
            resources.PODS, {"metadata": {"name": pod, "namespace": "default", "uid": f"{pod}-uid"}, "spec": spec}
        )
        return SandboxPod(pod, f"{pod}-uid", claims=[ClaimRef("default", name, f"uid-{self._count}")])

    async def start(self, *devices: str, **fields: Any) -> SandboxPod:
        """A running pod with a claim; takes the arguments of `claim`."""
        pod = self.claim(*devices, **fields)
        await self.node.start_pod(pod)
        return pod

    @property
    def driver(self) -> Child:
        """The driver that was started last."""
        assert self.node.driver is not None
        return self.node.driver

    def gates(self) -> list[str]:
        """The readiness gates that containers can see."""
        return sorted(path.name for path in (self.node.folder / "cdi").glob("*.json"))

    def names(self, where: Namespace | None = None) -> set[str]:
        """Links of a namespace, the node's by default, without loopback."""
        inside = where or self.node.namespace
        with NetlinkSocket(namespace_fd=inside.fd) as route:
            return {link.name for link in links.list_links(route)} - {"lo"}

    def picture(self, name: str) -> tuple[Any, ...]:
        """What must be the same after detach."""
        with self.node.route() as route:
            link = links.get_link(route, name)
            if link is None:
                return ()
            found = sorted(a.cidr for a in addresses.list_addresses(route, link.index) if a.scope == 0)
            return link.name, link.mtu, link.mac, link.is_up, link.alias, tuple(found)

    def disciplines(self, name: str) -> list[tc.Qdisc]:
        """The queueing disciplines of a NIC, which shares replace."""
        with self.node.route() as route:
            nic = links.get_link(route, name)
            assert nic is not None
            return [one for one in tc.list_qdiscs(route) if one.index == nic.index]

    def classes(self, name: str) -> list[str]:
        """The traffic classes of a NIC, as `tc` shows them."""
        command = ["tc", "class", "show", "dev", name]
        return self.node.namespace.run(lambda: subprocess.check_output(command, text=True)).splitlines()

    def picture_with_disciplines(self, name: str) -> tuple[Any, ...]:
        return *self.picture(name), *self.disciplines(name)

    def show_speed(self, name: str, megabits: int = 10_000) -> None:
        """Of a NIC whose speed is not known there are no shares. Before the driver starts."""
        sysfs = self.node.folder / "sys"
        folder, place = sysfs / "devices/virtual/net" / name, sysfs / "class/net"
        folder.mkdir(parents=True)
        folder.joinpath("speed").write_text(f"{megabits}\n")
        place.mkdir(parents=True, exist_ok=True)
        place.joinpath(name).symlink_to(f"../../devices/virtual/net/{name}")

    def status(self, claim: ClaimRef) -> list[dict[str, Any]]:
        found = self.api.find(resources.RESOURCE_CLAIMS, claim.name, claim.namespace)
        return list((found or {}).get("status", {}).get("devices") or [])

    def events(self) -> list[tuple[str, str]]:
        return [(e["reason"], e["message"]) for e in self.api.objects(resources.EVENTS)]

    def published(self) -> list[str]:
        slices = self.api.objects(resources.RESOURCE_SLICES)
        return [d["name"] for s in slices for d in s["spec"]["devices"]]

    @contextmanager
    def real_patience(self) -> Iterator[None]:
        """The runtime waits for its plugins no longer than real ones do, for as long as the `with` lasts."""
        patient = self.node.runtime.settings
        self.node.runtime.settings = replace(patient, request_timeout=self.node.profile.settings.request_timeout)
        yield
        self.node.runtime.settings = patient

    async def compared(self) -> None:
        """Wait until the driver that was started last has reconciled its claims. From then on it holds the
        namespaces of pods: CRI-O removes them before its stop hook, and virtual NICs would be deleted with them."""
        await until(lambda: COMPARED in self.driver.log.read_text().rpartition(STARTED)[2])

    async def kill_driver(self) -> None:
        """Kill the driver and wait until the runtime has noticed."""
        await self.driver.kill()
        await self.node.runtime.wait_for(lambda plugins: not plugins)

    async def restart_driver(self, **environment: str) -> None:
        await self.kill_driver()
        await self.node.start_driver(**environment)


def _given(share: str, number: int) -> dict[str, Any]:
    """What the scheduler adds for a share of a NIC."""
    return {"shareID": f"share-{number}", "consumedCapacity": {BANDWIDTH: share}} if share else {}


def _wait_until_seen_up(route: NetlinkSocket, name: str) -> None:
    """A list of links may show the old state for a second; asking for one link makes newer kernels look at once."""
    while not any(link.name == name and link.operstate == "up" for link in links.list_links(route)):
        links.get_link(route, name)
        time.sleep(0.01)


def _seed() -> int | None:
    return int(os.environ["DRANET_SEED"]) if "DRANET_SEED" in os.environ else None


@asynccontextmanager
async def bench(
    nics: int = 2, *, flags: Sequence[str] = (), start: bool = True, runtime: RuntimeProfile = CONTAINERD
) -> AsyncIterator[Bench]:
    """A node with NICs `nic0`, ... (10.0.0.1/24, 10.1.0.1/24, ...) and a running driver."""
    api = SandboxApiServer()
    api.put(resources.NODES, {"metadata": {"name": NODE}})
    with tempfile.TemporaryDirectory(prefix="dranet-") as folder, Namespace.create() as fabric:
        settings = replace(runtime.settings, request_timeout=PATIENCE_SECONDS)
        async with SandboxNode(
            NODE, api, Path(folder), flags=flags, profile=runtime, runtime=settings, seed=_seed()
        ) as node:
            print(f"the fake runtime uses seed {node.seed}; set DRANET_SEED={node.seed} to repeat")
            made = Bench(node, api, fabric)
            for number in range(nics):
                made.add_nic(f"nic{number}", f"10.{number}.0.1/24")
            if start:
                await node.start_driver()
                await until(lambda: len(made.published()) == nics)
            yield made
            logs = [path.read_text() for path in (node.folder / "log").glob("*.log")]
            assert not [line for text in logs for line in text.splitlines() if UNEXPECTED_TRANSITION in line]
