"""The guest as a cluster node: the real daemon as its own process on real NICs, kubelet and runtime played."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dranet.core.names import ClaimRef
from dranet.kubernetes.api import resources
from dranet.linux.namespaces import Namespace
from dranet.testing.apiserver import SandboxApiServer
from dranet.testing.node import CONTAINERD, SandboxNode, SandboxPod
from dranet.testing.processes import ProcessError

NAME = "guest"
FLAGS = ["--sysfs=/sys", "--dev-root=/"]
STARTS = 20
PATIENT = replace(CONTAINERD.settings, registration_timeout=60.0, request_timeout=60.0)
"""A real runtime waits two seconds for a hook, in which this emulated processor does the work of a tenth."""


class GuestNode(SandboxNode):
    """A sandbox node whose machine is this one, with its own namespace, sysfs and device nodes."""

    def __init__(self, api: SandboxApiServer, folder: Path, *flags: str) -> None:
        super().__init__(NAME, api, folder, flags=[*FLAGS, *flags], runtime=PATIENT)
        self.namespace.close()
        self.namespace = Namespace.current()

    async def driver_ready(self) -> None:
        """With more patience than the sandbox has: this processor is emulated."""
        for _ in range(STARTS - 1):
            try:
                return await super().driver_ready()
            except ProcessError:
                if self.driver is None or not self.driver.running:
                    raise
        return await super().driver_ready()

    def published(self) -> dict[str, dict[str, Any]]:
        """The devices in the node's slices, by name."""
        slices = self.api.objects(resources.RESOURCE_SLICES)
        return {device["name"]: device for one in slices for device in one["spec"].get("devices", ())}

    def claim(self, device: str, name: str, parameters: dict[str, Any] | None = None) -> SandboxPod:
        """An allocated claim reserved for a new pod of the same name."""
        opaque = {"driver": "dra.net", "parameters": parameters}
        results = [{"driver": "dra.net", "pool": NAME, "device": device, "request": "nic"}]
        config = [{"source": "FromClaim", "opaque": opaque}] if parameters else []
        status = {
            "reservedFor": [{"resource": "pods", "name": name, "uid": f"{name}-pod"}],
            "allocation": {"devices": {"results": results, "config": config}},
        }
        meta = {"name": name, "namespace": "default", "uid": f"{name}-claim"}
        self.api.put(resources.RESOURCE_CLAIMS, {"metadata": meta, "spec": {"devices": {}}, "status": status})
        spec = {
            "containers": [{"name": "main", "resources": {"claims": [{"name": "nic"}]}}],
            "resourceClaims": [{"name": "nic", "resourceClaimName": name}],
        }
        self.api.put(
            resources.PODS, {"metadata": {"name": name, "namespace": "default", "uid": f"{name}-pod"}, "spec": spec}
        )
        return SandboxPod(name, f"{name}-pod", claims=[ClaimRef("default", name, f"{name}-claim")])

    def conditions(self, claim: str) -> set[tuple[str, str]]:
        """Types and states of the conditions in the claim's status."""
        found = self.api.find(resources.RESOURCE_CLAIMS, claim, "default") or {}
        devices = found.get("status", {}).get("devices") or []
        return {(entry["type"], entry["status"]) for device in devices for entry in device["conditions"]}


@asynccontextmanager
async def guest_node(*flags: str, start: bool = True, kind: type[GuestNode] = GuestNode) -> AsyncIterator[GuestNode]:
    api = SandboxApiServer()
    api.put(resources.NODES, {"metadata": {"name": NAME}})
    with tempfile.TemporaryDirectory(prefix="dranet-") as folder:
        node = kind(api, Path(folder), *flags)
        async with node:
            if start:
                await node.start_driver()
            yield node
