"""One sandbox node: a network namespace that stands for a machine, with the real driver in it.

What is real: the kernel and its namespaces, the driver daemon as its own process, the sockets and protocols it speaks,
its store and its receipts. What is played: the kubelet's and the runtime's side of those protocols, and containers,
which are only the list of things a container would get.

The played runtime has the habits of real ones, in the manner of containerd or CRI-O (:mod:`dranet.sandbox.manners`): it
lists ended sandboxes beside running ones, in no order, and it may say late, or again, that one has stopped. Which habit
shows when comes from a seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dranet.kernel import links
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket
from dranet.kubelet.client import Kubelet
from dranet.kubelet.handler import PreparedDevice
from dranet.model.errors import DranetError
from dranet.model.names import DRIVER_NAME, ClaimRef
from dranet.nri import messages
from dranet.nri.runtime import Inventory, Runtime, Settings
from dranet.sandbox import apihttp
from dranet.sandbox.apiserver import SandboxApiServer
from dranet.sandbox.manners import CONTAINERD, Manner
from dranet.sandbox.processes import Child, ProcessError, python_module

log = logging.getLogger(__name__)

START_SECONDS = 60.0


class ContainerRefused(DranetError):
    """A container could not be created; the kubelet would try again later."""


@dataclass(frozen=True, slots=True)
class ContainerView:
    """What a container would get: device nodes by path and variables."""

    devices: Mapping[str, tuple[int, int]]
    environment: Mapping[str, str]


@dataclass
class SandboxPod:
    """A pod as the node has it."""

    name: str
    uid: str
    namespace: str = "default"
    claims: Sequence[ClaimRef] = ()
    netns: Namespace | None = None
    sandboxes: int = 0
    """How many sandboxes it has had."""
    path: str = ""
    """Where the namespace of the present one is; no two sandboxes have the same path."""
    prepared: dict[str, Sequence[PreparedDevice]] = field(default_factory=dict)
    hook_seconds: dict[str, float] = field(default_factory=dict)
    """How long the runtime waited for its plugins, by hook: ``run`` and ``stop``."""

    def message(self, manner: Manner = CONTAINERD) -> messages.PodSandbox:
        """The pod in the runtime's words."""
        spaces = [messages.LinuxNamespace(type="network", path=self.path)] if self.path else []
        return messages.PodSandbox(
            id=f"sandbox-{self.uid}-{self.sandboxes}",
            pid=os.getpid() if self.netns is not None and manner.tells_process else 0,
            runtime_handler=manner.runtime_handler,
            name=self.name,
            uid=self.uid,
            namespace=self.namespace,
            linux=messages.LinuxPodSandbox(namespaces=spaces),
        )


class SandboxNode:
    """A node with its driver. Use as an async context manager."""

    def __init__(
        self,
        name: str,
        api: SandboxApiServer,
        folder: Path,
        *,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        manner: Manner = CONTAINERD,
        runtime: Settings | None = None,
        seed: int | None = None,
    ) -> None:
        self.name = name
        self.api = api
        self.folder = folder
        self.flags = list(flags)
        self.environment = dict(environment or {})
        self.manner = manner
        self.namespace = Namespace.create()
        self.pods: dict[str, SandboxPod] = {}
        self.ended: defaultdict[str, list[messages.PodSandbox]] = defaultdict(list)
        """Sandboxes that have ended and are not removed yet, by pod UID."""
        self.seed = seed if seed is not None else random.SystemRandom().randrange(1 << 32)
        self._random = random.Random(self.seed)
        log.info("the runtime of %s behaves by seed %d", name, self.seed)
        self.driver: Child | None = None
        for part in ("kubelet", "cdi", "sys", "log", "netns"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        with self.route() as route:
            route.request(links.change(1, up=True))
        self.kubelet = Kubelet(folder / "kubelet")
        self.runtime = Runtime(folder / "nri.sock", inventory=self._inventory, settings=runtime or manner.settings)
        self._stack = contextlib.AsyncExitStack()

    def route(self) -> NetlinkSocket:
        """A netlink socket in the node's namespace."""
        return NetlinkSocket(namespace_fd=self.namespace.fd)

    async def __aenter__(self) -> SandboxNode:
        """Start everything but the driver."""
        listener = self.namespace.run(_listen)
        port = await self._stack.enter_async_context(apihttp.serve(self.api, listener=listener))
        (self.folder / "kubeconfig.json").write_bytes(msgspec.json.encode(_kubeconfig(port)))
        await self._stack.enter_async_context(self.kubelet)
        await self._stack.enter_async_context(self.runtime)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.driver is not None:
            await self.driver.kill()
        await self._stack.aclose()
        for pod in self.pods.values():
            if pod.netns is not None:
                pod.netns.close()
        self.namespace.close()

    # The driver.

    def command(self) -> list[str]:
        """How the driver is started here."""
        folder = self.folder
        flags = [
            f"--node-name={self.name}",
            f"--kubeconfig={folder / 'kubeconfig.json'}",
            f"--kubelet-root-dir={folder / 'kubelet'}",
            f"--db-path={folder / 'dranet.sqlite'}",
            f"--nri-socket={folder / 'nri.sock'}",
            f"--cdi-dir={folder / 'cdi'}",
            f"--sysfs={folder / 'sys'}",
            f"--dev-root={folder}",
            "--bind-address=127.0.0.1:9177",
            "--cloud-provider-hint=NONE",
            "--filter=",
        ]
        return python_module("dranet", "run", *flags, *self.flags)

    async def start_driver(self, **environment: str) -> Child:
        """Start the driver and wait until kubelet and runtime know it, and not only the one that died before it."""
        if self.driver is not None and not self.driver.running:
            for left_behind in (self.folder / "kubelet" / "plugins_registry").glob("*.sock"):
                left_behind.unlink()
            await self.kubelet.wait_for(lambda plugins: not plugins)
        self.driver = await Child.start(
            self.command(),
            inside=self.namespace,
            log=self.folder / "log" / "driver.log",
            environment={**self.environment, **environment},
        )
        await self.driver_ready()
        return self.driver

    async def driver_ready(self) -> None:
        """Wait until the driver is registered on both sides; raises with its log where it died instead."""
        assert self.driver is not None
        ready = asyncio.ensure_future(self._both_sides())
        ended = asyncio.ensure_future(self.driver.wait())
        await asyncio.wait({ready, ended}, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not ready.done():
            ready.cancel()
            raise ProcessError(f"the driver of {self.name} did not get ready:\n{self.driver.tail()}")

    async def _both_sides(self) -> None:
        await self.kubelet.wait_for(lambda plugins: any(p.driver == DRIVER_NAME for p in plugins))
        await self.runtime.wait_for(lambda plugins: any(p.endswith(DRIVER_NAME) for p in plugins))

    # The kubelet's and the runtime's side of a pod's life.

    async def prepare(self, pod: SandboxPod) -> None:
        for claim in pod.claims:
            pod.prepared[claim.uid] = await self.kubelet.prepare(DRIVER_NAME, claim)

    async def run_sandbox(self, pod: SandboxPod) -> None:
        """Make the pod's namespace and call the hook; a refusal takes the namespace away again, as a runtime does."""
        self._new_namespace(pod)
        try:
            with _timed(pod, "run"):
                await self.runtime.run_pod_sandbox(pod.message(self.manner))
        except BaseException:
            if self.manner.undoes_refused:
                await self.runtime.stop_pod_sandbox(pod.message(self.manner))
                await self.runtime.remove_pod_sandbox(pod.message(self.manner))
            self._end(pod)
            raise
        await self._stop_again(pod.uid)

    def _new_namespace(self, pod: SandboxPod) -> None:
        pod.netns = Namespace.create()
        with NetlinkSocket(namespace_fd=pod.netns.fd) as route:
            route.request(links.change(1, up=True))
        pod.sandboxes += 1
        pod.path = str(self.folder / "netns" / f"{pod.uid}-{pod.sandboxes}")
        os.symlink(f"/proc/{os.getpid()}/fd/{pod.netns.fd}", pod.path)
        self.pods[pod.uid] = pod

    async def _stop_again(self, uid: str) -> None:
        """The kubelet stops what has ended, again and late: it has nothing else to go by than the list."""
        if not self.manner.stops_again:
            return
        ended = [sandbox for sandbox in self.ended[uid] for _ in range(self._random.randrange(3))]
        self._random.shuffle(ended)
        for sandbox in ended:
            await self.runtime.stop_pod_sandbox(sandbox)

    async def create_container(
        self, pod: SandboxPod, name: str = "main", *, names_claims: bool = True
    ) -> ContainerView:
        """What the container would get; refuses as the runtime does where a named CDI device cannot be resolved."""
        wanted = (
            [cdi for devices in pod.prepared.values() for d in devices for cdi in d.cdi_ids] if names_claims else []
        )
        edits = [self._cdi_edits(cdi) for cdi in dict.fromkeys(wanted)]
        sandbox = pod.message(self.manner)
        named = [messages.CDIDevice(name=cdi) for cdi in wanted] if self.manner.tells_cdi else []
        variables = [item for edit in edits for item in edit.get("env", [])]
        container = messages.Container(
            id=f"{pod.uid}-{name}", pod_sandbox_id=sandbox.id, name=name, CDI_devices=named, env=variables
        )
        answer = await self.runtime.create_container(sandbox, container)
        nodes = {node["path"]: (node["major"], node["minor"]) for edit in edits for node in edit.get("deviceNodes", [])}
        nodes |= {device.path: (device.major, device.minor) for device in answer.adjust.linux.devices}
        return ContainerView(dict(sorted(nodes.items())), dict(item.partition("=")[::2] for item in variables))

    def _cdi_edits(self, cdi: str) -> dict[str, Any]:
        kind, _, name = cdi.partition("=")
        for path in sorted((self.folder / "cdi").glob("*.json")):
            spec = msgspec.json.decode(path.read_bytes())
            for device in spec["devices"] if spec["kind"] == kind else []:
                if device["name"] == name:
                    found: dict[str, Any] = device["containerEdits"]
                    return found
        raise ContainerRefused(f"CDI device injection failed: unresolvable CDI devices {cdi}")

    async def stop_sandbox(self, pod: SandboxPod) -> None:
        """Call the stop hook; then the namespace goes, with whatever is still in it, and the sandbox has ended.

        In another manner the namespace goes first, and its path is named all the same.
        """
        sandbox = pod.message(self.manner)
        if self.manner.namespace_goes_first:
            self._end(pod)
        try:
            with _timed(pod, "stop"):
                await self.runtime.stop_pod_sandbox(sandbox)
        finally:
            self._end(pod)

    async def remove_sandboxes(self, uid: str) -> None:
        """The kubelet cleans up after a pod that is over."""
        for sandbox in self.ended.pop(uid, ()):
            await self.runtime.remove_pod_sandbox(sandbox)

    async def unprepare(self, pod: SandboxPod) -> None:
        for claim in pod.claims:
            await self.kubelet.unprepare(DRIVER_NAME, claim)

    async def start_pod(self, pod: SandboxPod) -> None:
        """Prepare its claims, then start its sandbox, in the kubelet's order."""
        await self.prepare(pod)
        await self.run_sandbox(pod)

    async def stop_pod(self, pod: SandboxPod) -> None:
        """Stop its sandbox, once more as runtimes do, then unprepare its claims, in the kubelet's order."""
        await self.stop_sandbox(pod)
        await self._stop_again(pod.uid)
        await self.unprepare(pod)
        await self.remove_sandboxes(pod.uid)

    def _end(self, pod: SandboxPod) -> None:
        self.pods.pop(pod.uid, None)
        if pod.netns is not None:
            os.unlink(pod.path)
            pod.netns.close()
            pod.netns = None
            self.ended[pod.uid].append(pod.message(self.manner))
            pod.path = ""

    def _inventory(self) -> Inventory:
        """All that a real runtime lists: also what has ended, in no order, and perhaps something twice."""
        ended = [sandbox for sandboxes in self.ended.values() for sandbox in sandboxes]
        listed = [*(pod.message(self.manner) for pod in self.pods.values()), *ended]
        if self.manner.lists_twice:
            listed += [sandbox for sandbox in listed if self._random.random() < 0.3]
        self._random.shuffle(listed)
        return Inventory(pods=listed)


@contextlib.contextmanager
def _timed(pod: SandboxPod, hook: str) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        pod.hook_seconds[hook] = time.perf_counter() - start


def _listen() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener


def _kubeconfig(port: int) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "sandbox",
        "clusters": [{"name": "sandbox", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "sandbox", "user": {}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
    }
