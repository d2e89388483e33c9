"""A small cluster in one process tree: machines of a known shape, each with the real driver.

A machine is a network namespace with the shape's NICs, a synthetic ``/sys`` in which they are PCI devices with NUMA
nodes and RDMA, and fake device nodes in ``/dev/infiniband``. Its GPUs are only ResourceSlices, as the GPU vendor's
driver would publish them. Only file descriptors of this process and the caller's folder hold the state, so nothing else
has to be cleaned up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from dranet.core.errors import DranetError, KernelError
from dranet.core.names import DRIVER_NAME
from dranet.kubernetes.api import resources
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.http import Transport
from dranet.linux import chardev
from dranet.machines.machine import Machine, machine_of_shape
from dranet.machines.shape import Shape
from dranet.machines.shape_devices import nic_devices, shape_links, shape_slices
from dranet.testing.apiserver import SandboxApiServer
from dranet.testing.fabric import Fabric
from dranet.testing.faults import LocalTransport
from dranet.testing.node import CONTAINERD, SandboxNode
from dranet.testing.sysfs_tree import write_sysfs
from dranet.testing.waiting import until

# A real runtime gives a plugin two seconds, and the kubelet retries. There is no retry here, so allow more time.
_RUNTIME = replace(CONTAINERD.settings, request_timeout=30.0)


class SandboxError(DranetError):
    """The sandbox cluster could not do what was requested."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One machine to create: its name, its shape, and its index among machines of that shape."""

    name: str
    shape: Shape
    index: int = 0


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """One machine of the cluster."""

    plan: NodePlan
    node: SandboxNode
    machine: Machine
    char_devices: bool
    """Whether device nodes could be created."""


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
            await self.wait_for_devices()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _build(self, plan: NodePlan) -> None:
        folder = self._folder / plan.name
        node = SandboxNode(plan.name, self.api, folder, runtime=_RUNTIME)
        await self._stack.enter_async_context(node)
        write_sysfs(plan.shape, folder / "sys", plan.index)
        with node.route() as route:
            for nic in shape_links(plan.shape, plan.index):
                self.fabric.plug(route, nic)
        made = create_char_devices(folder)
        self.nodes[plan.name] = ClusterNode(plan, node, machine_of_shape(plan.shape, plan.name), made)

    async def _start(self, node: ClusterNode) -> None:
        """Create the Node object and the GPUs' slices, and start the driver."""
        await self.client.create(resources.NODES, {"metadata": {"name": node.plan.name}})
        for made in shape_slices(node.plan.shape, node.plan.name, node.plan.index):
            if made["spec"]["driver"] != DRIVER_NAME:
                await self.client.create(resources.RESOURCE_SLICES, made)
        await node.node.start_driver()

    async def wait_for_devices(self) -> None:
        """Wait until every NIC is published without a taint.

        The kernel may need a second to detect the carrier of a link that was created or moved. Until then the driver
        publishes a link-down taint.
        """
        wanted = {plan.name: {str(nic.name) for nic in nic_devices(plan.shape, plan.index)} for plan in self._plans}

        def published() -> dict[str, set[str]]:
            return {name: self.published(name, tainted=False) for name in wanted}

        await until(
            lambda: all(wanted[name] <= found for name, found in published().items()),
            f"the devices {wanted}",
            seen=published,
        )

    def published(self, node: str, *, tainted: bool = True) -> set[str]:
        """The devices that the driver of a machine publishes now, with or without tainted ones."""
        slices = (item["spec"] for item in self.api.objects(resources.RESOURCE_SLICES))
        mine = [spec for spec in slices if spec["driver"] == DRIVER_NAME and spec.get("nodeName") == node]
        devices = [device for spec in mine for device in spec.get("devices") or ()]
        return {device["name"] for device in devices if tainted or not device.get("taints")}


def create_char_devices(folder: Path) -> bool:
    """Create fake nodes for the RDMA devices of the synthetic ``/sys``; False if the kernel does not permit it.

    Their number is 0:0. No driver has it, so nothing can be opened through them, and it is the only number that the
    kernel permits without privileges.
    """
    names = [path.name for kind in ("infiniband_verbs", "infiniband_mad") for path in _class(folder, kind)]
    if names:
        names.append("rdma_cm")
    try:
        for name in names:
            path = f"{chardev.INFINIBAND}/{name}"
            chardev.create(
                chardev.CharDeviceFile(path=path, major=0, minor=0, mode=0o666, uid=0, gid=0), root=str(folder)
            )
    except KernelError:
        return False
    return True


def _class(folder: Path, kind: str) -> list[Path]:
    return sorted((folder / "sys" / "class" / kind).glob("*"))
