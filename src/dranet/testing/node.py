"""One sandbox node: a network namespace that represents a machine, with the real driver in it.

Real are the kernel and its namespaces, the driver as a process of its own, its sockets and protocols, its store and its
CDI specs. Fake are the kubelet's and the runtime's side of those protocols, and containers, which are only a list of
what a container would get.

The fake runtime behaves like containerd or CRI-O (see `RuntimeProfile`): it lists stopped sandboxes next to running
ones, in any order, and it may report late or twice that one has stopped. A seed decides when.
"""

from __future__ import annotations

import asyncio
import contextlib
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

from dranet.core.errors import DranetError
from dranet.core.logs import get_logger
from dranet.core.names import DRIVER_NAME, ClaimRef
from dranet.kubernetes.kubelet.client import Kubelet
from dranet.kubernetes.kubelet.handler import PreparedDevice
from dranet.kubernetes.nri import messages
from dranet.kubernetes.nri.runtime import Inventory, Runtime, Settings
from dranet.linux import links
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.testing import apihttp
from dranet.testing.apiserver import SandboxApiServer
from dranet.testing.processes import Child, ProcessError, python_module

log = get_logger(__name__)

_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RuntimeProfile:
    """How a container runtime behaves towards an NRI plugin.

    containerd's profile was observed. CRI-O's is from its sources (2026). Both enable NRI by default, with the same
    timeouts.
    """

    settings: Settings
    deletes_namespace_first: bool = False
    """The network namespace is deleted before the stop hook, although the hook still gets its path."""
    reports_pid: bool = True
    """A running sandbox has a process of its own."""
    removes_refused: bool = False
    """A sandbox that a plugin refused is stopped and removed."""
    repeats_stop: bool = True
    """The stop hook is called again for sandboxes that have stopped."""
    lists_duplicates: bool = True
    """The list may contain a sandbox more than once."""
    reports_cdi: bool = True
    """The create hook gets the CDI devices of a container."""
    runtime_handler: str = ""

    @property
    def name(self) -> str:
        return self.settings.name


CONTAINERD = RuntimeProfile(Settings(name="containerd", version="v2.1.4"))
CRIO = RuntimeProfile(
    Settings(name="cri-o", version="1.34.0"),
    deletes_namespace_first=True,
    reports_pid=False,
    removes_refused=True,
    repeats_stop=False,
    lists_duplicates=False,
    reports_cdi=False,
    runtime_handler="crun",
)
RUNTIME_PROFILES = (CONTAINERD, CRIO)


class ContainerRefused(DranetError):
    """The runtime refused to create a container; the kubelet would retry later."""


@dataclass(frozen=True, slots=True)
class ContainerView:
    """What a container would get: device nodes by path, and environment variables."""

    devices: Mapping[str, tuple[int, int]]
    environment: Mapping[str, str]


@dataclass
class SandboxPod:
    """A pod on this node."""

    name: str
    uid: str
    namespace: str = "default"
    claims: Sequence[ClaimRef] = ()
    netns: Namespace | None = None
    sandboxes: int = 0
    """How many sandboxes the pod has had."""
    path: str = ""
    """The path of the current sandbox's network namespace, unique to that sandbox."""
    prepared: dict[str, Sequence[PreparedDevice]] = field(default_factory=dict)
    hook_seconds: dict[str, float] = field(default_factory=dict)
    """How long the runtime waited for its plugins, by hook: ``run`` and ``stop``."""

    def message(self, profile: RuntimeProfile = CONTAINERD) -> messages.PodSandbox:
        """The current sandbox as an NRI message."""
        spaces = [messages.LinuxNamespace(type="network", path=self.path)] if self.path else []
        return messages.PodSandbox(
            id=f"sandbox-{self.uid}-{self.sandboxes}",
            pid=os.getpid() if self.netns is not None and profile.reports_pid else 0,
            runtime_handler=profile.runtime_handler,
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
        profile: RuntimeProfile = CONTAINERD,
        runtime: Settings | None = None,
        seed: int | None = None,
    ) -> None:
        self.name = name
        self.api = api
        self.folder = folder
        self.flags = list(flags)
        self.environment = dict(environment or {})
        self.profile = profile
        self.namespace = Namespace.create()
        self.pods: dict[str, SandboxPod] = {}
        self.ended: defaultdict[str, list[messages.PodSandbox]] = defaultdict(list)
        """Sandboxes that have stopped and are not removed yet, by pod UID."""
        self.seed = seed if seed is not None else random.SystemRandom().randrange(1 << 32)
        self._random = random.Random(self.seed)
        log.info("Seeded the fake runtime", node=name, seed=self.seed)
        self.driver: Child | None = None
        for part in ("kubelet", "cdi", "sys", "log", "netns"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        with self.route() as route:
            route.request(links.change(1, up=True))
        self.kubelet = Kubelet(folder / "kubelet")
        self.runtime = Runtime(folder / "nri.sock", inventory=self._inventory, settings=runtime or profile.settings)
        self._stack = contextlib.AsyncExitStack()

    def route(self) -> NetlinkSocket:
        """A netlink socket in the node's namespace."""
        return NetlinkSocket(namespace_fd=self.namespace.fd)

    async def __aenter__(self) -> SandboxNode:
        """Start everything except the driver."""
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
        """The driver's command line."""
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
        """Start the driver and wait until the kubelet and the runtime have registered it."""
        if self.driver is not None and not self.driver.running:
            # A killed driver leaves its socket, which would look like the registration of the new one.
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
        """Wait until the driver is registered on both sides; raises with its log if it exits first."""
        assert self.driver is not None
        ready = asyncio.ensure_future(self._both_sides())
        ended = asyncio.ensure_future(self.driver.wait())
        await asyncio.wait({ready, ended}, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not ready.done():
            ready.cancel()
            raise ProcessError(f"the driver of {self.name} did not become ready:\n{self.driver.tail()}")

    async def _both_sides(self) -> None:
        await self.kubelet.wait_for(lambda plugins: any(p.driver == DRIVER_NAME for p in plugins))
        await self.runtime.wait_for(lambda plugins: any(p.endswith(DRIVER_NAME) for p in plugins))

    # The kubelet's and the runtime's side of a pod's lifecycle.

    async def prepare(self, pod: SandboxPod) -> None:
        for claim in pod.claims:
            pod.prepared[claim.uid] = await self.kubelet.prepare(DRIVER_NAME, claim)

    async def run_sandbox(self, pod: SandboxPod) -> None:
        """Create the pod's namespace and call the hook; deletes the namespace again if a plugin refuses."""
        self._new_namespace(pod)
        try:
            with _timed(pod, "run"):
                await self.runtime.run_pod_sandbox(pod.message(self.profile))
        except BaseException:
            if self.profile.removes_refused:
                await self.runtime.stop_pod_sandbox(pod.message(self.profile))
                await self.runtime.remove_pod_sandbox(pod.message(self.profile))
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
        """Stop stopped sandboxes again and late, as the kubelet does, which knows only the runtime's list."""
        if not self.profile.repeats_stop:
            return
        ended = [sandbox for sandbox in self.ended[uid] for _ in range(self._random.randrange(3))]
        self._random.shuffle(ended)
        for sandbox in ended:
            await self.runtime.stop_pod_sandbox(sandbox)

    async def create_container(
        self, pod: SandboxPod, name: str = "main", *, names_claims: bool = True
    ) -> ContainerView:
        """What the container would get; raises ContainerRefused for an unknown CDI device, as the runtime does."""
        wanted = (
            [cdi for devices in pod.prepared.values() for d in devices for cdi in d.cdi_ids] if names_claims else []
        )
        edits = [self._cdi_edits(cdi) for cdi in dict.fromkeys(wanted)]
        sandbox = pod.message(self.profile)
        named = [messages.CDIDevice(name=cdi) for cdi in wanted] if self.profile.reports_cdi else []
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
        """Call the stop hook and delete the namespace with everything in it, in the order of the profile."""
        sandbox = pod.message(self.profile)
        if self.profile.deletes_namespace_first:
            self._end(pod)
        try:
            with _timed(pod, "stop"):
                await self.runtime.stop_pod_sandbox(sandbox)
        finally:
            self._end(pod)

    async def remove_sandboxes(self, uid: str) -> None:
        """Remove the stopped sandboxes of a pod."""
        for sandbox in self.ended.pop(uid, ()):
            await self.runtime.remove_pod_sandbox(sandbox)

    async def unprepare(self, pod: SandboxPod) -> None:
        for claim in pod.claims:
            await self.kubelet.unprepare(DRIVER_NAME, claim)

    async def start_pod(self, pod: SandboxPod) -> None:
        """Prepare the claims, then start the sandbox, as the kubelet does."""
        await self.prepare(pod)
        await self.run_sandbox(pod)

    async def stop_pod(self, pod: SandboxPod) -> None:
        """Stop the sandbox (again, as runtimes do), then unprepare the claims, as the kubelet does."""
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
            self.ended[pod.uid].append(pod.message(self.profile))
            pod.path = ""

    def _inventory(self) -> Inventory:
        """What a real runtime lists: also stopped sandboxes, in any order, perhaps with duplicates."""
        ended = [sandbox for sandboxes in self.ended.values() for sandbox in sandboxes]
        listed = [*(pod.message(self.profile) for pod in self.pods.values()), *ended]
        if self.profile.lists_duplicates:
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
