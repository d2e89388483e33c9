"""A node for tests: a namespace with NICs (veth links whose peers are in the fabric), a store and pods."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dranet.core.device import Device
from dranet.core.netconfig_parse import parse
from dranet.linux import addresses, links, virtual_links
from dranet.linux.namespaces import Namespace, NamespaceError
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.sysfs import Sysfs
from dranet.node.claims.allocation import AllocatedDevice
from dranet.node.claims.planner import DeviceRequest, Planner
from dranet.node.edits.readiness_gate import ReadinessGates
from dranet.node.inventory.snapshot import Netdev, NetdevLocation, NodeDevice
from dranet.node.lifecycle.device_lifecycle import DeviceLifecycle
from dranet.node.namespaces import Host
from dranet.node.records.plan import ClaimPlan, DevicePlan, PodRef
from dranet.node.store import Store
from dranet.testing.node import RUNTIME_PROFILES, RuntimeProfile
from dranet.testing.waiting import wait_until
from tests import pictures

OpenStore = Callable[..., Store]
"""Takes the arguments of `Store`; without a path, every store of a test has the same file."""


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    return tmp_path / "dranet.sqlite"


@pytest.fixture
def open_store(store_path: Path) -> Iterator[OpenStore]:
    """Opens stores and closes them after the test: Python warns of a connection that stays open."""
    opened: list[Store] = []

    def open_one(path: str | None = str(store_path), *args: Any, **kwargs: Any) -> Store:
        opened.append(Store(path, *args, **kwargs))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


def claim_plan(*devices: DevicePlan, uid: str = "uid-1", pod: str = "pod-1", **fields: Any) -> ClaimPlan:
    """A plan that is not in any store."""
    user = PodRef(uid=pod, name=pod, namespace="default")
    return ClaimPlan(uid=uid, namespace="default", name=uid, pod=user, devices=devices, **fields)


@dataclass
class TestNode:
    """One node with NICs `nic0`, `nic1`, ..."""

    __test__ = False

    host: Host
    fabric: Namespace
    folder: Path
    store: Store
    lifecycle: DeviceLifecycle
    planner: Planner
    made: list[Namespace] = field(default_factory=list)

    def ip(self, *words: str, where: Namespace | None = None) -> list[dict[str, Any]]:
        """The output of `ip -j` in a namespace, the host's by default."""
        inside = where or self.host.namespace
        command = ["nsenter", f"--net=/proc/self/fd/{inside.fd}", "ip", "-j", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, pass_fds=[inside.fd])
        found: list[dict[str, Any]] = json.loads(done.stdout or "[]")
        return found

    def run(self, *command: str, where: Namespace | None = None) -> str:
        inside = where or self.host.namespace
        full = ["nsenter", f"--net=/proc/self/fd/{inside.fd}", *command]
        return subprocess.run(full, capture_output=True, text=True, check=True, pass_fds=[inside.fd]).stdout

    def pod(self) -> Namespace:
        """A new pod's namespace, with loopback up and a CNI-like eth0."""
        self.made.append(Namespace.create())
        pod = self.made[-1]
        with NetlinkSocket(namespace_fd=pod.fd) as route:
            route.request(links.change(1, up=True))
        return pod

    def add_nic(self, name: str, *cidrs: str, up: bool = True) -> None:
        """A NIC on the host; its other end is in the fabric under the same name."""
        self.host.route.request(virtual_links.create_veth(name, name, peer_namespace_fd=self.fabric.fd))
        nic = self.link(name)
        for cidr in cidrs:
            self.host.route.request(addresses.add(addresses.from_cidr(cidr, nic.index, flags=addresses.IFA_F_NODAD)))
        with NetlinkSocket(namespace_fd=self.fabric.fd) as far:
            peer = links.get_link(far, name)
            assert peer is not None
            far.request(links.change(peer.index, up=True))
        if up:
            self.host.route.request(links.change(nic.index, up=True))

    def device(self, name: str) -> NodeDevice:
        """As the inventory shows it; a NIC that is not here is in some pod."""
        nic = links.get_link(self.host.route, name)
        netdev = (
            Netdev(location=NetdevLocation.HOST, name=name, index=nic.index)
            if nic
            else Netdev(location=NetdevLocation.OTHER_NETNS)
        )
        return NodeDevice(device=Device(name=name), netdev=netdev)

    def plan(
        self, *names: str, uid: str = "uid-1", pod_uid: str = "pod-1", config: object = None, **fields: Any
    ) -> ClaimPlan:
        """A stored plan that gives these NICs to a pod."""
        settings = parse(config if isinstance(config, dict) else None)
        allocated = [AllocatedDevice(f"r-{n}", "node", n, None, False) for n in names]
        requests = [DeviceRequest(item, self.device(item.device), settings) for item in allocated]
        return self.put_plan(requests, uid=uid, pod=pod_uid, **fields)

    def put_plan(
        self, requests: Sequence[DeviceRequest], *, others: Sequence[ClaimPlan] = (), **fields: Any
    ) -> ClaimPlan:
        """A stored plan of these requests; takes the arguments of `claim_plan`. The NICs fit those of other plans."""
        devices = self.planner.plan(requests, others=[device for plan in others for device in plan.devices])
        plan = claim_plan(*devices, **fields)
        self.store.put(plan)
        return plan

    def attach(self, *names: str, **fields: Any) -> Namespace:
        """A pod that has these NICs; takes the arguments of `plan`."""
        pod, plan = self.pod(), self.plan(*names, **fields)
        self.lifecycle.attach(plan.pod.uid, pod.path)
        return pod

    def link(self, name: str) -> links.Link:
        """A link of the host."""
        found = links.get_link(self.host.route, name)
        assert found is not None
        return found

    def names(self, where: Namespace | None = None) -> set[str]:
        return {str(link["ifname"]) for link in self.ip("link", where=where)} - {"lo"}

    def picture(self, name: str) -> pictures.Picture:
        """Everything the kernel shows of a NIC, which must be the same after detach."""
        wait_until(lambda: self._is_settled(name))
        return pictures.take(self.host.namespace.fd, name)

    def _is_settled(self, name: str) -> bool:
        """A link that was raised a moment ago is not up yet."""
        nic = links.get_link(self.host.route, name)
        return nic is None or not nic.is_up or nic.operstate == "up"

    def close(self) -> None:
        self.lifecycle.close()
        self.store.close()
        self.host.close()
        for namespace in (*self.made, self.fabric):
            namespace.close()


def make_node(folder: Path) -> TestNode:
    namespace, fabric = Namespace.create(), Namespace.create()
    host = Host(namespace, NetlinkSocket(namespace_fd=namespace.fd))
    host.route.request(links.change(1, up=True))
    store = Store(str(folder / "dranet.sqlite"))
    lifecycle = DeviceLifecycle(host, store, ReadinessGates(str(folder / "cdi")))
    return TestNode(host, fabric, folder, store, lifecycle, Planner(host, Sysfs(str(folder)), str(folder)))


@pytest.fixture
def new_node(tmp_path: Path) -> Iterator[Callable[[], TestNode]]:
    made: list[TestNode] = []

    def new() -> TestNode:
        try:
            made.append(make_node(tmp_path))
        except NamespaceError as error:
            pytest.skip(f"needs the right to make network namespaces: {error}")
        return made[-1]

    yield new
    for one in made:
        one.close()


@pytest.fixture
def node(new_node: Callable[[], TestNode]) -> TestNode:
    """A node with two NICs."""
    made = new_node()
    made.add_nic("nic0", "10.1.0.1/24", "fd00:1::1/64")
    made.add_nic("nic1", "10.2.0.1/24")
    return made


@pytest.fixture(params=RUNTIME_PROFILES, ids=lambda profile: profile.name)
def runtime(request: pytest.FixtureRequest) -> RuntimeProfile:
    """Each container runtime in turn, for tests of behaviour that differs between them."""
    found: RuntimeProfile = request.param
    return found


@pytest.fixture(scope="session")
def may_make_namespaces() -> None:
    """Skip what needs network namespaces where the tests may not make any."""
    try:
        Namespace.create().close()
    except NamespaceError as error:
        pytest.skip(f"needs the right to make network namespaces: {error}")
