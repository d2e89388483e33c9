"""A small cluster in one process tree: machines of a known shape, each with the real driver.

Every machine is a network namespace with the shape's cards, a synthetic ``/sys`` in which they are PCI devices with
NUMA nodes and RDMA, and stand-ins for the nodes below ``/dev/infiniband``. The GPUs exist on paper only: their slices
are published as the GPU vendor's driver would publish them. Everything is held by file descriptors of this process and
by a folder the caller gives, so nothing outlives the two.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from dranet.kernel import chardev
from dranet.kernel.errors import KernelError
from dranet.kube import resources
from dranet.kube.client import KubeClient
from dranet.kube.http import Transport
from dranet.model.errors import DranetError
from dranet.model.names import DRIVER_NAME
from dranet.sandbox.apiserver import SandboxApiServer
from dranet.sandbox.fabric import Fabric
from dranet.sandbox.faults import LocalTransport
from dranet.sandbox.manners import CONTAINERD
from dranet.sandbox.node import SandboxNode
from dranet.sandbox.sysfs_tree import write_sysfs
from dranet.topology.machine import Machine, machine_of_shape
from dranet.topology.shape import Shape
from dranet.topology.shape_devices import links, nic_devices, shape_slices

PATIENCE_SECONDS = 30.0
RUNTIME = replace(CONTAINERD.settings, request_timeout=PATIENCE_SECONDS)
"""A real runtime gives a plugin two seconds, and its kubelet tries again. Nobody does here, and machines are busy."""


class SandboxError(DranetError):
    """The sandbox could not do what was asked."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One machine to build: its name, its shape, and which of several alike it is."""

    name: str
    shape: Shape
    index: int = 0


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """One machine that stands."""

    plan: NodePlan
    node: SandboxNode
    machine: Machine
    char_devices: bool
    """Whether this machine may have device nodes."""


class SandboxCluster:
    """Machines, fabric and API server. Use as an async context manager."""

    def __init__(self, plans: Sequence[NodePlan], folder: Path) -> None:
        self.api = SandboxApiServer()
        self.client = KubeClient(cast(Transport, LocalTransport(self.api)), user_agent="dranet-sandbox")
        self.fabric = Fabric()
        self.nodes: dict[str, ClusterNode] = {}
        self._plans = tuple(plans)
        self._folder = folder
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> SandboxCluster:
        self._stack.callback(self.fabric.close)
        try:
            for plan in self._plans:
                await self._build(plan)
            await asyncio.gather(*(self._start(node) for node in self.nodes.values()))
            await self.settled()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _build(self, plan: NodePlan) -> None:
        folder = self._folder / plan.name
        node = SandboxNode(plan.name, self.api, folder, runtime=RUNTIME)
        await self._stack.enter_async_context(node)
        write_sysfs(plan.shape, folder / "sys", plan.index)
        with node.route() as route:
            for card in links(plan.shape, plan.index):
                self.fabric.plug(route, card)
        made = make_char_devices(folder)
        self.nodes[plan.name] = ClusterNode(plan, node, machine_of_shape(plan.shape, plan.name), made)

    async def _start(self, node: ClusterNode) -> None:
        """The machine joins the cluster: its Node object, its GPUs' slices, its driver."""
        await self.client.create(resources.NODES, {"metadata": {"name": node.plan.name}})
        for made in shape_slices(node.plan.shape, node.plan.name, node.plan.index):
            if made["spec"]["driver"] != DRIVER_NAME:
                await self.client.create(resources.RESOURCE_SLICES, made)
        await node.node.start_driver()

    async def settled(self) -> None:
        """Wait until every card is offered without a taint.

        The kernel may take a second to notice the carrier of a link that was just plugged in or came home, and until
        then the driver rightly calls it down.
        """
        wanted = {plan.name: {str(card.name) for card in nic_devices(plan.shape, plan.index)} for plan in self._plans}

        def found() -> dict[str, set[str]]:
            return {name: self.published(name, tainted=False) for name in wanted}

        await until(
            lambda: all(wanted[name] <= cards for name, cards in found().items()),
            lambda: f"expected the cards {wanted}, found {found()}",
        )

    def published(self, node: str, *, tainted: bool = True) -> set[str]:
        """The cards that the driver of a machine offers now, with or without those that have a taint."""
        slices = (item["spec"] for item in self.api.objects(resources.RESOURCE_SLICES))
        mine = [spec for spec in slices if spec["driver"] == DRIVER_NAME and spec.get("nodeName") == node]
        devices = [device for spec in mine for device in spec.get("devices") or ()]
        return {device["name"] for device in devices if tainted or not device.get("taints")}


def make_char_devices(folder: Path) -> bool:
    """Stand-ins for the device nodes the synthetic ``/sys`` speaks of; False where the kernel does not allow any.

    They carry the number 0:0, which no driver ever has: nothing can be opened through them, on no machine. It is also
    the one number that the kernel lets everybody use.
    """
    names = [path.name for kind in ("infiniband_verbs", "infiniband_mad") for path in _class(folder, kind)]
    if names:
        names.append("rdma_cm")
    try:
        for name in names:
            path = f"{chardev.INFINIBAND}/{name}"
            chardev.make(
                chardev.CharDeviceFile(path=path, major=0, minor=0, mode=0o666, uid=0, gid=0), root=str(folder)
            )
    except KernelError:
        return False
    return True


def _class(folder: Path, kind: str) -> list[Path]:
    return sorted((folder / "sys" / "class" / kind).glob("*"))


async def until(
    condition: Callable[[], object], otherwise: Callable[[], str], seconds: float = PATIENCE_SECONDS
) -> None:
    """Wait until something is so in another process; raises with what was found instead."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 (the other side is another process)
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise SandboxError(f"waited {seconds:g} s: {otherwise()}") from None
