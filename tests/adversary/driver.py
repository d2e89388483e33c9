"""One life of the driver: its own parts, wired as the daemon wires them, in a process that can really be killed.

Everything that decides is real: prepare, hooks, reconciliation, rebuilding, store, receipts. Left out are the sockets
(the sequence asks in their place) and the API server (a copy of the claims comes along with every question).
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

from dranet.basics.backoff import Backoff
from dranet.driver import faultpoints
from dranet.driver.claims.leases import Leases
from dranet.driver.claims.planner import Planner
from dranet.driver.claims.prepare import Preparer
from dranet.driver.claims.profiles import Profiles
from dranet.driver.moving.cards import Cards
from dranet.driver.moving.receipt import Receipts
from dranet.driver.namespaces import Host
from dranet.driver.records import plan
from dranet.driver.records.plan import UnreadablePlan
from dranet.driver.serving.attaching import Attaching
from dranet.driver.serving.hooks import Hooks
from dranet.driver.serving.metrics import HookMetrics
from dranet.driver.serving.rebuild import Rebuilder
from dranet.driver.serving.reconcile import Reconciler
from dranet.driver.serving.reports import Reports
from dranet.driver.serving.successors import Successors
from dranet.driver.store import Store
from dranet.inventory import Netdev, NodeDevice, Place, sharing
from dranet.kernel import addresses, links
from dranet.kernel.namespaces import CLONE_NEWNET
from dranet.kernel.netlink import NetlinkSocket
from dranet.kernel.sysfs import Sysfs
from dranet.kube.errors import Missing
from dranet.model import attributes, netconfig_parse
from dranet.model.device import Device
from dranet.model.names import ClaimRef
from dranet.model.pci import PciAddress
from dranet.nri.arrivals import RequestContext
from dranet.nri.messages import Container, PodSandbox
from tests.adversary.processes import Process

NODE = "node-1"
SETTLE_SECONDS = 20.0
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Claims:
    """The API server's side, as a copy."""

    claims: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    pods: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    devices: Sequence[Device] = ()
    shared: Sequence[str] = ()
    """Cards that `--shared-cards` would name."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """The PCI functions of cards, by name, where they have any."""

    async def claim(self, namespace: str, name: str) -> Mapping[str, Any]:
        if name not in self.claims:
            raise Missing(f"get {namespace}/{name}", 404, {"message": "not found"})
        return self.claims[name]

    async def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        return self.pods.get(name)

    async def pci_addresses(self, node: str, devices: object) -> list[str]:
        return []

    async def claims_of_node(self, node: str) -> list[Mapping[str, Any]]:
        return list(self.claims.values())

    async def published(self, node: str) -> list[Device]:
        return list(self.devices)


@dataclass
class Look:
    """The inventory's side: what a look at the node would say of a card now."""

    route: NetlinkSocket
    claims: Claims

    def find(self, name: str) -> NodeDevice | None:
        return device(self.route, name, self.claims.shared, self.claims.addresses.get(name, ""))

    def why_not(self, name: str) -> str:
        return ""

    async def look_again(self) -> None:
        return


def device(route: NetlinkSocket, name: str, shared: Sequence[str] = (), address: str = "") -> NodeDevice:
    """A card by its name on the node, as it would be published."""
    card = links.get_link(route, name)
    pci = PciAddress.parse(address) if address else None
    if card is None:
        return NodeDevice(device=Device(name=name), netdev=Netdev(place=Place.ELSEWHERE, name=name), pci=pci)
    found = [a.cidr for a in addresses.list_addresses(route, card.index) if a.scope == addresses.SCOPE_UNIVERSE]
    said = {
        attributes.IF_NAME: name,
        attributes.PCI_ADDRESS: address,
        attributes.IS_SRIOV_VF: bool(address) and Path("/sys/bus/pci/devices", address, "physfn").exists(),
        attributes.TYPE: card.kind,
        attributes.ENCAPSULATION: "ether",
        attributes.MTU: card.mtu,
        attributes.MAC: card.mac,
        attributes.ALIAS: card.alias,
        attributes.IPV4: ",".join(cidr for cidr in found if ":" not in cidr),
        attributes.IPV6: ",".join(cidr for cidr in found if ":" in cidr),
    }
    speed = {attributes.LINK_SPEED: "10G"}
    published = Device(name=name, attributes={key: value for key, value in said.items() if value}, capacity=speed)
    here = Netdev(place=Place.HERE, name=name, index=card.index)
    found_here = NodeDevice(device=published, netdev=here, pci=pci)
    return sharing.shared(found_here) if name in shared else found_here


class Sink:
    """Where status and events go: the words are kept."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def set(self, claim: object, devices: object) -> None: ...

    def clear(self, claim: object) -> None: ...

    def warning(self, about: object, reason: str, message: str) -> None:
        self.said.append(f"{reason}: {message}")


class Words(logging.Handler):
    """What the driver logs as a problem."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class Life:
    """The answering side, in the child."""

    def __init__(self, folder: Path, namespace_fd: int, fault_point: str) -> None:
        if _libc.setns(namespace_fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        self._words = Words()
        logging.getLogger().handlers[:] = [self._words]
        faultpoints.arm(fault_point)
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._claims = Claims()
        self._sink = Sink()
        host, store = Host.open(), Store(str(folder / "dranet.db"))
        cards = Cards(host, store, Receipts(str(folder / "cdi")))
        leases, reports = Leases(host, store), Reports(self._sink, self._sink)
        self._preparer = Preparer(
            node=NODE,
            store=store,
            cards=cards,
            planner=Planner(host, Sysfs("/sys"), str(folder)),
            cluster=self._claims,
            inventory=Look(host.route, self._claims),
            profiles=Profiles(),
            leases=leases,
            patience=0.0,
        )
        rebuilder = Rebuilder(
            store, node=NODE, cluster=self._claims, preparer=self._preparer, delays=Backoff(random.Random())
        )  # type: ignore[arg-type]
        self._reconciler = Reconciler(cards, reports, leases, rebuild=rebuilder)
        self._hooks = Hooks(
            cards=cards,
            attaching=Attaching(cards, reports, leases, Backoff(random.Random(), first=0.01, limit=0.1)),
            reports=reports,
            reconciler=self._reconciler,
            successors=Successors(self._claims, cards, reports, leases, lambda: iter((0.01,) * 20), self._preparer),
            leases=leases,
            metrics=HookMetrics(CollectorRegistry()),
            on_returned=lambda: None,
        )

    def __call__(self, verb: str, claims: Claims, *words: Any) -> tuple[Any, list[str]]:
        self._claims.__dict__.update(claims.__dict__)
        try:
            return self._loop.run_until_complete(self._answer(verb, *words)), self._heard()
        except Exception as error:
            return error_of(error), self._heard()

    def _heard(self) -> list[str]:
        said = self._words.said + self._sink.said
        self._words.said, self._sink.said = [], []
        return said

    async def _answer(self, verb: str, *words: Any) -> Any:
        result = await getattr(self, f"_{verb}")(*words)
        await self._settle()
        return result

    async def _settle(self) -> None:
        """Wait for what was begun in the background, except what goes on for ever."""
        while pending := [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]:
            done, _ = await asyncio.wait(pending, timeout=SETTLE_SECONDS)
            if not done:
                raise TimeoutError(f"the driver is still busy after {SETTLE_SECONDS:g} s: {pending}")

    async def _prepare(self, ref: ClaimRef) -> list[str]:
        return [cdi for device in await self._preparer.prepare(ref) for cdi in device.cdi_ids]

    async def _follow_up(self, ref: ClaimRef) -> None:
        await self._preparer.follow_up(ref)

    async def _unprepare(self, ref: ClaimRef) -> None:
        await self._preparer.unprepare(ref)

    async def _run(self, sandbox: bytes) -> None:
        await self._hooks.run_pod_sandbox(PodSandbox.FromString(sandbox), _PATIENT)

    async def _create(self, sandbox: bytes, container: bytes) -> None:
        await self._hooks.create_container(PodSandbox.FromString(sandbox), Container.FromString(container), _PATIENT)

    async def _stop(self, sandbox: bytes) -> None:
        await self._hooks.stop_pod_sandbox(PodSandbox.FromString(sandbox), _PATIENT)

    async def _synchronize(self, sandboxes: Sequence[bytes]) -> None:
        await self._hooks.synchronize([PodSandbox.FromString(one) for one in sandboxes], [], _PATIENT)
        await self._reconciler.settled()

    async def _limit(self, what: str, tight: bool) -> None:
        """The disk is full, or the driver may open nothing more; or all is well again."""
        kind = {"disk": resource.RLIMIT_FSIZE, "descriptors": resource.RLIMIT_NOFILE}[what]
        _, most = resource.getrlimit(kind)
        least = 0 if what == "disk" else len(os.listdir("/proc/self/fd")) + 1
        resource.setrlimit(kind, (least if tight else min(most, 4096) if what == "descriptors" else most, most))


_PATIENT = RequestContext(received_at=0.0, deadline=None, now=lambda: 0.0, hung_up=lambda: False)


class Refusal(str):
    """What the driver answered instead of doing it."""


def error_of(error: Exception) -> Refusal:
    return Refusal(f"{type(error).__name__}: {error}")


def warm(configs: Iterable[Mapping[str, Any] | None]) -> None:
    """Find out here what every life would find out about its types, which takes longer than its work: lives are forks
    of this process, and a real driver lives long."""
    with contextlib.suppress(UnreadablePlan):
        plan.decode(b"{}")
    for config in configs:
        netconfig_parse.examine(config)


class Driver:
    """The asking side: starts lives and knows whether one is there."""

    def __init__(self, folder: Path, namespace_fd: int) -> None:
        self._folder = folder
        self._namespace_fd = namespace_fd
        self._process: Process | None = None
        self.said: list[str] = []
        self.deaths = 0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    def start(self, fault_point: str = "") -> None:
        self.kill()
        self._process = Process(lambda: Life(self._folder, self._namespace_fd, fault_point), keep=[self._namespace_fd])

    def ask(self, verb: str, claims: Claims, *words: Any) -> Any:
        """Raises processes.Died where the life ends on it."""
        assert self._process is not None
        try:
            answer, said = self._process.call(verb, claims, *words)
        except BaseException:
            self.deaths += not self._process.alive
            raise
        self.said += said
        return answer

    def kill(self) -> None:
        if self._process is not None and self._process.alive:
            self._process.kill()

    def lose_store(self) -> None:
        for path in self._folder.glob("dranet.db*"):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
