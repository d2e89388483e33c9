"""The driver in a process that can be killed: its own objects, wired as the daemon wires them.

Prepare, hooks, reconciliation, recovery, store and readiness gates are real. The sequence calls them instead of the
sockets, and sends a copy of the API server's objects with every call.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import random
import resource
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from dranet.core import attributes, netconfig_parse
from dranet.core.backoff import Backoff
from dranet.core.device import Device
from dranet.core.names import ClaimRef
from dranet.core.pci import PciAddress
from dranet.kubernetes.api.claims import DeviceStatus
from dranet.kubernetes.api.errors import ObjectNotFound
from dranet.kubernetes.nri.messages import Container, PodSandbox
from dranet.kubernetes.nri.request_context import RequestContext
from dranet.linux import addresses, links
from dranet.linux.namespaces import CLONE_NEWNET
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.sysfs import Sysfs
from dranet.node import faultpoints
from dranet.node.claims.leases import Leases
from dranet.node.claims.planner import Planner
from dranet.node.claims.prepare import Preparer
from dranet.node.claims.profiles import Profiles
from dranet.node.edits.readiness_gate import ReadinessGates
from dranet.node.inventory import Netdev, NetdevLocation, NodeDevice, sharing
from dranet.node.lifecycle.device_lifecycle import DeviceLifecycle
from dranet.node.namespaces import Host
from dranet.node.records import plan
from dranet.node.records.plan import UnreadablePlan
from dranet.node.server.attach import Attacher
from dranet.node.server.handover import ClaimHandover
from dranet.node.server.hooks import Hooks
from dranet.node.server.metrics import HookMetrics
from dranet.node.server.recovery import Reconciler, Recovery
from dranet.node.server.reports import Reports
from dranet.node.store import Store
from tests.campaign.processes import Process

NODE = "node-1"
SETTLE_SECONDS = 20.0
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Claims:
    """A copy of the API server's objects."""

    claims: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    devices: Sequence[Device] = ()
    shared: Sequence[str] = ()
    """NICs that `--shared-cards` selects."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """The PCI functions of NICs by name."""

    async def claim(self, namespace: str, name: str) -> Mapping[str, Any]:
        if name not in self.claims:
            raise ObjectNotFound(f"get {namespace}/{name}", 404, {"message": "not found"})
        return self.claims[name]

    async def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        return self.pods.get(name)

    async def pci_addresses(self, node: str, devices: object) -> list[str]:
        return []

    async def claims_of_node(self, node: str) -> list[Mapping[str, Any]]:
        return list(self.claims.values())

    async def claims_named(self, names: Iterable[tuple[str, str]]) -> list[Mapping[str, Any]]:
        return [await self.claim(namespace, name) for namespace, name in names]

    async def published(self, node: str) -> list[Device]:
        return list(self.devices)


@dataclass
class FakeInventory:
    """What a scan of the node finds."""

    route: NetlinkSocket
    claims: Claims

    def find(self, name: str) -> NodeDevice | None:
        return device(self.route, name, self.claims.shared, self.claims.addresses.get(name, ""))

    def skip_reason(self, name: str) -> str:
        return ""

    async def rescan(self) -> None:
        return


def device(route: NetlinkSocket, name: str, shared: Sequence[str] = (), address: str = "") -> NodeDevice:
    """A NIC by its name on the host, as the driver publishes it."""
    nic = links.get_link(route, name)
    pci = PciAddress.parse(address) if address else None
    if nic is None:
        return NodeDevice(
            device=Device(name=name), netdev=Netdev(location=NetdevLocation.OTHER_NETNS, name=name), pci=pci
        )
    found = [a.cidr for a in addresses.list_addresses(route, nic.index) if a.scope == addresses.SCOPE_UNIVERSE]
    published_attributes = {
        attributes.IF_NAME: name,
        attributes.PCI_ADDRESS: address,
        attributes.IS_SRIOV_VF: bool(address) and Path("/sys/bus/pci/devices", address, "physfn").exists(),
        attributes.TYPE: nic.kind,
        attributes.ENCAPSULATION: "ether",
        attributes.MTU: nic.mtu,
        attributes.MAC: nic.mac,
        attributes.ALIAS: nic.alias,
        attributes.IPV4: ",".join(cidr for cidr in found if ":" not in cidr),
        attributes.IPV6: ",".join(cidr for cidr in found if ":" in cidr),
    }
    speed = {attributes.LINK_SPEED: "10G"}
    published = Device(
        name=name, attributes={key: value for key, value in published_attributes.items() if value}, capacity=speed
    )
    here = Netdev(location=NetdevLocation.HOST, name=name, index=nic.index)
    found_here = NodeDevice(device=published, netdev=here, pci=pci)
    return sharing.make_shareable(found_here) if name in shared else found_here


class FakeReporter:
    """Records events, and what the status of claims says of devices that are not ready."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def set(self, claim: object, devices: Sequence[DeviceStatus]) -> None:
        for device in devices:
            failed = [condition.message for condition in device.conditions if not condition.status]
            self.messages += [f"status of {device.device}: {message}" for message in failed]

    def clear(self, claim: object) -> None: ...

    def warning(self, about: object, reason: str, message: str) -> None:
        self.messages.append(f"{reason}: {message}")


class LogRecorder(logging.Handler):
    """Records warnings and errors of the log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


class DriverProcess:
    """The called side, in the child."""

    def __init__(self, folder: Path, namespace_fd: int, fault_point: str) -> None:
        if _libc.setns(namespace_fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        self._log = LogRecorder()
        logging.getLogger().handlers[:] = [self._log]
        faultpoints.arm(fault_point)
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._claims = Claims()
        self._reporter = FakeReporter()
        host, store = Host.open(), Store(str(folder / "dranet.db"))
        lifecycle = DeviceLifecycle(host, store, ReadinessGates(str(folder / "cdi")))
        leases, reports = Leases(host, store), Reports(self._reporter, self._reporter)
        self._preparer = Preparer(
            node=NODE,
            store=store,
            lifecycle=lifecycle,
            planner=Planner(host, Sysfs("/sys"), str(folder)),
            cluster=self._claims,
            inventory=FakeInventory(host.route, self._claims),
            profiles=Profiles(),
            leases=leases,
            patience=0.0,
        )
        recovery = Recovery(
            store, node=NODE, cluster=self._claims, preparer=self._preparer, delays=Backoff(random.Random())
        )
        attacher = Attacher(lifecycle, reports, leases, Backoff(random.Random(), first=0.01, limit=0.1))
        self._reconciler = Reconciler(attacher, recover=recovery)
        self._hooks = Hooks(
            attacher=attacher,
            reconciler=self._reconciler,
            handover=ClaimHandover(self._claims, attacher, self._preparer, lambda: iter((0.01,) * 20)),
            metrics=HookMetrics(CollectorRegistry()),
            on_detached=lambda: None,
        )

    def __call__(self, verb: str, claims: Claims, *words: Any) -> tuple[Any, list[str], list[str]]:
        self._claims.__dict__.update(claims.__dict__)
        try:
            answer = self._loop.run_until_complete(self._answer(verb, *words))
        except Exception as error:
            answer = error_of(error)
        logs, reports = self._log.messages, self._reporter.messages
        self._log.messages, self._reporter.messages = [], []
        return answer, logs, reports

    async def _answer(self, verb: str, *words: Any) -> Any:
        result = await getattr(self, f"_{verb}")(*words)
        await self._settle()
        return result

    async def _settle(self) -> None:
        """Wait for background tasks."""
        while pending := [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]:
            done, _ = await asyncio.wait(pending, timeout=SETTLE_SECONDS)
            if not done:
                raise TimeoutError(f"the driver is still busy after {SETTLE_SECONDS:g} s: {pending}")

    async def _prepare(self, ref: ClaimRef) -> list[str]:
        return [cdi for device in await self._preparer.prepare(ref) for cdi in device.cdi_ids]

    async def _after_reply(self, ref: ClaimRef) -> None:
        await self._preparer.after_reply(ref)

    async def _unprepare(self, ref: ClaimRef) -> None:
        await self._preparer.unprepare(ref)
        await self._preparer.after_reply(ref)

    async def _run(self, sandbox: bytes) -> None:
        await self._hooks.run_pod_sandbox(PodSandbox.FromString(sandbox), _PATIENT)

    async def _create(self, sandbox: bytes, container: bytes) -> None:
        await self._hooks.create_container(PodSandbox.FromString(sandbox), Container.FromString(container), _PATIENT)

    async def _stop(self, sandbox: bytes) -> None:
        await self._hooks.stop_pod_sandbox(PodSandbox.FromString(sandbox), _PATIENT)

    async def _synchronize(self, sandboxes: Sequence[bytes]) -> None:
        await self._hooks.synchronize([PodSandbox.FromString(one) for one in sandboxes], [], _PATIENT)
        await self._reconciler.wait()

    async def _limit(self, what: str, tight: bool) -> None:
        """Fill the disk or use up the file descriptors; or undo it."""
        kind = {"disk": resource.RLIMIT_FSIZE, "descriptors": resource.RLIMIT_NOFILE}[what]
        _, most = resource.getrlimit(kind)
        least = 0 if what == "disk" else len(os.listdir("/proc/self/fd")) + 1
        resource.setrlimit(kind, (least if tight else min(most, 4096) if what == "descriptors" else most, most))


_PATIENT = RequestContext(received_at=0.0, deadline=None, now=lambda: 0.0, hung_up=lambda: False)


class Refusal(str):
    """The error of the driver."""


def error_of(error: Exception) -> Refusal:
    return Refusal(f"{type(error).__name__}: {error}")


def warm_up(configs: Iterable[Mapping[str, Any] | None]) -> None:
    """Build msgspec decoders once here, before the forks: that takes longer than the work of a short-lived driver."""
    with contextlib.suppress(UnreadablePlan):
        plan.decode(b"{}")
    for config in configs:
        netconfig_parse.parse_leniently(config)


class Driver:
    """The calling side: starts and kills the driver's process."""

    def __init__(self, folder: Path, namespace_fd: int) -> None:
        self._folder = folder
        self._namespace_fd = namespace_fd
        self._process: Process | None = None
        self.messages: list[str] = []
        self.reports: list[str] = []
        """Events and statuses, which users see."""
        self.deaths = 0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    def start(self, fault_point: str = "") -> None:
        self.kill()
        self._process = Process(
            lambda: DriverProcess(self._folder, self._namespace_fd, fault_point), keep=[self._namespace_fd]
        )

    def call(self, verb: str, claims: Claims, *words: Any) -> Any:
        """Raises processes.Died if the process dies during the call."""
        assert self._process is not None
        try:
            answer, logs, reports = self._process.call(verb, claims, *words)
        except BaseException:
            self.deaths += not self._process.alive
            raise
        self.messages += logs + reports
        self.reports += reports
        return answer

    def kill(self) -> None:
        if self._process is not None and self._process.alive:
            self._process.kill()

    def damage_store(self) -> None:
        """Overwrite what a disk may lose, while the driver has the file open."""
        for path in self._folder.glob("dranet.db*"):
            if path.stat().st_size:
                with path.open("r+b") as file:
                    file.write(b"\xff" * 4096)

    def lose_store(self) -> None:
        for path in self._folder.glob("dranet.db*"):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
