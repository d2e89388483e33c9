"""A sandbox node with cards and claims, for tests of the whole daemon."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dranet.kernel import addresses, links, virtual_links
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket
from dranet.kernel.traffic import tc
from dranet.kube import resources
from dranet.model.attributes import BANDWIDTH
from dranet.model.names import ClaimRef
from dranet.sandbox.apiserver import SandboxApiServer
from dranet.sandbox.manners import CONTAINERD
from dranet.sandbox.node import SandboxNode, SandboxPod

NODE = "node-1"
STARTED, COMPARED = "drives node node-1", "claims with the runtime's pods"
"""What a driver logs first, and when all pods have been looked at; the drivers of a node write to one file."""
manner = CONTAINERD
"""How the played runtime behaves; `conftest.py` plays every test of the whole daemon in all manners."""
PATIENCE_SECONDS = 30.0
"""How long the played runtime waits for a plugin, so that no busy machine decides what is done when a hook is over."""


class Bench:
    """A node, its API server and helpers that say what a test means."""

    def __init__(self, node: SandboxNode, api: SandboxApiServer, fabric: Namespace) -> None:
        self.node = node
        self.api = api
        self.fabric = fabric
        self._count = 0

    def add_card(self, name: str, *cidrs: str) -> None:
        with self.node.route() as route, NetlinkSocket(namespace_fd=self.fabric.fd) as far:
            route.request(virtual_links.create_veth(name, name, peer_namespace_fd=self.fabric.fd))
            card, peer = links.get_link(route, name), links.get_link(far, name)
            assert card is not None and peer is not None
            for cidr in cidrs:
                route.request(addresses.add(addresses.from_cidr(cidr, card.index, flags=addresses.IFA_F_NODAD)))
            far.request(links.change(peer.index, up=True))
            route.request(links.change(card.index, up=True))
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

    def names(self, where: Namespace | None = None) -> set[str]:
        """Links of a namespace, the node's by default, without loopback."""
        inside = where or self.node.namespace
        with NetlinkSocket(namespace_fd=inside.fd) as route:
            return {link.name for link in links.list_links(route)} - {"lo"}

    def picture(self, name: str) -> tuple[Any, ...]:
        """What must be the same when a card comes home."""
        with self.node.route() as route:
            link = links.get_link(route, name)
            if link is None:
                return ()
            found = sorted(a.cidr for a in addresses.list_addresses(route, link.index) if a.scope == 0)
            return link.name, link.mtu, link.mac, link.is_up, link.alias, tuple(found)

    def disciplines(self, name: str) -> list[tc.Discipline]:
        """The queueing disciplines of a card, which shares replace."""
        with self.node.route() as route:
            card = links.get_link(route, name)
            assert card is not None
            return [one for one in tc.list_disciplines(route) if one.index == card.index]

    def classes(self, name: str) -> list[str]:
        """The traffic classes of a card, as the tool tells them."""
        command = ["tc", "class", "show", "dev", name]
        return self.node.namespace.run(lambda: subprocess.check_output(command, text=True)).splitlines()

    def picture_with_disciplines(self, name: str) -> tuple[Any, ...]:
        return *self.picture(name), *self.disciplines(name)

    def show_speed(self, name: str, megabits: int = 10_000) -> None:
        """Of a card whose speed is not known there are no shares. Before the driver starts."""
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
        self.node.runtime.settings = replace(patient, request_timeout=manner.settings.request_timeout)
        yield
        self.node.runtime.settings = patient

    async def compared(self) -> None:
        """Wait until the driver that was started last has put right what differs from what the runtime listed. It
        holds the namespaces of pods from then on: CRI-O removes them before it tells of a stop, and virtual cards would
        go with them."""
        driver = self.node.driver
        assert driver is not None
        await until(lambda: COMPARED in driver.log.read_text().rpartition(STARTED)[2])

    async def restart_driver(self, **environment: str) -> None:
        assert self.node.driver is not None
        await self.node.driver.kill()
        await self.node.runtime.wait_for(lambda plugins: not plugins)
        await self.node.start_driver(**environment)


def _given(share: str, number: int) -> dict[str, Any]:
    """What the scheduler adds for a card that several claims may have a share of."""
    return {"shareID": f"share-{number}", "consumedCapacity": {BANDWIDTH: share}} if share else {}


def _wait_until_seen_up(route: NetlinkSocket, name: str) -> None:
    """A list of links may show the old state for a second; asking for one link makes newer kernels look at once."""
    while not any(link.name == name and link.operstate == "up" for link in links.list_links(route)):
        links.get_link(route, name)
        time.sleep(0.01)


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until something is so; fails the test where it never is."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (the other side is another process)
            await asyncio.sleep(0.01)


def _seed() -> int | None:
    return int(os.environ["DRANET_SEED"]) if "DRANET_SEED" in os.environ else None


@asynccontextmanager
async def bench(cards: int = 2, *, flags: Sequence[str] = (), start: bool = True) -> AsyncIterator[Bench]:
    """A node with cards `card0`, ... (10.0.0.1/24, 10.1.0.1/24, ...) and a running driver."""
    api = SandboxApiServer()
    api.put(resources.NODES, {"metadata": {"name": NODE}})
    with tempfile.TemporaryDirectory(prefix="dranet-") as folder, Namespace.create() as fabric:
        runtime = replace(manner.settings, request_timeout=PATIENCE_SECONDS)
        async with SandboxNode(
            NODE, api, Path(folder), flags=flags, manner=manner, runtime=runtime, seed=_seed()
        ) as node:
            print(f"the played runtime behaves by seed {node.seed}; DRANET_SEED={node.seed} plays it again")
            made = Bench(node, api, fabric)
            for number in range(cards):
                made.add_card(f"card{number}", f"10.{number}.0.1/24")
            if start:
                await node.start_driver()
                await until(lambda: len(made.published()) == cards)
            yield made
