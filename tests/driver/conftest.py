"""A node for tests: a namespace with cards (veth links whose peers are the fabric), a store and pods."""

from __future__ import annotations

import inspect
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dranet.driver.claims.allotment import Allotted
from dranet.driver.claims.planner import Planner, Wish
from dranet.driver.moving.cards import Cards
from dranet.driver.moving.receipt import Receipts
from dranet.driver.namespaces import Host
from dranet.driver.records.plan import ClaimPlan, PodRef
from dranet.driver.store import Store
from dranet.inventory.snapshot import Netdev, NodeDevice, Place
from dranet.kernel import addresses, links, virtual_links
from dranet.kernel.namespaces import Namespace, NamespaceError
from dranet.kernel.netlink import NetlinkSocket
from dranet.kernel.sysfs import Sysfs
from dranet.model.device import Device
from dranet.model.netconfig_parse import parse
from dranet.sandbox.manners import CONTAINERD, MANNERS, Manner
from tests import pictures
from tests.driver import daemon_bench

SETTLE_SECONDS = 30.0


@pytest.fixture(autouse=True)
def stores_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test opens, also to look at a file once more: from 3.13 on Python warns of one that stays open."""
    opened: list[Store] = []
    open_it = Store.__init__

    def remembered(store: Store, *args: Any, **kwargs: Any) -> None:
        open_it(store, *args, **kwargs)
        opened.append(store)

    monkeypatch.setattr(Store, "__init__", remembered)
    yield
    for store in opened:
        store.close()


@dataclass
class TestNode:
    """One node with cards `card0`, `card1`, ..."""

    __test__ = False

    host: Host
    fabric: Namespace
    folder: Path
    store: Store
    cards: Cards
    planner: Planner
    made: list[Namespace] = field(default_factory=list)

    def ip(self, *words: str, where: Namespace | None = None) -> list[dict[str, Any]]:
        """What `ip -j` says in a namespace, the host's by default."""
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

    def add_card(self, name: str, *cidrs: str, up: bool = True) -> None:
        """A card on the host; its other end is in the fabric under the same name."""
        self.host.route.request(virtual_links.create_veth(name, name, peer_namespace_fd=self.fabric.fd))
        card = links.get_link(self.host.route, name)
        assert card is not None
        for cidr in cidrs:
            self.host.route.request(addresses.add(addresses.from_cidr(cidr, card.index, flags=addresses.IFA_F_NODAD)))
        with NetlinkSocket(namespace_fd=self.fabric.fd) as far:
            peer = links.get_link(far, name)
            assert peer is not None
            far.request(links.change(peer.index, up=True))
        if up:
            self.host.route.request(links.change(card.index, up=True))

    def device(self, name: str) -> NodeDevice:
        """As the inventory shows it; a card that is not here is in some pod."""
        card = links.get_link(self.host.route, name)
        netdev = Netdev(place=Place.HERE, name=name, index=card.index) if card else Netdev(place=Place.ELSEWHERE)
        return NodeDevice(device=Device(name=name), netdev=netdev)

    def plan(
        self, *names: str, uid: str = "uid-1", pod_uid: str = "pod-1", config: object = None, **fields: Any
    ) -> ClaimPlan:
        """A stored plan that gives these cards to a pod."""
        settings = parse(config if isinstance(config, dict) else None)
        wishes = [Wish(Allotted(f"r-{n}", "node", n, None, False), self.device(n), settings) for n in names]
        user = PodRef(uid=pod_uid, name=pod_uid, namespace="default")
        devices = tuple(self.planner.plan(wishes))
        plan = ClaimPlan(uid=uid, namespace="default", name=uid, pod=user, devices=devices, **fields)
        self.store.put(plan)
        return plan

    def names(self, where: Namespace | None = None) -> set[str]:
        return {str(link["ifname"]) for link in self.ip("link", where=where)} - {"lo"}

    def picture(self, name: str) -> pictures.Picture:
        """All that must be the same when the card comes home: everything the kernel tells."""
        end = time.monotonic() + SETTLE_SECONDS
        while not self._is_settled(name) and time.monotonic() < end:
            time.sleep(0.01)
        return pictures.take(self.host.namespace.fd, name)

    def _is_settled(self, name: str) -> bool:
        """A link that was raised a moment ago is not up yet."""
        card = links.get_link(self.host.route, name)
        return card is None or not card.is_up or card.operstate == "up"

    def close(self) -> None:
        self.cards.close()
        self.store.close()
        self.host.close()
        for namespace in (*self.made, self.fabric):
            namespace.close()


def make_node(folder: Path) -> TestNode:
    namespace, fabric = Namespace.create(), Namespace.create()
    host = Host(namespace, NetlinkSocket(namespace_fd=namespace.fd))
    host.route.request(links.change(1, up=True))
    store = Store(str(folder / "dranet.sqlite"))
    cards = Cards(host, store, Receipts(str(folder / "cdi")))
    return TestNode(host, fabric, folder, store, cards, Planner(host, Sysfs(str(folder)), str(folder)))


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
    """A node with two cards."""
    made = new_node()
    made.add_card("card0", "10.1.0.1/24", "fd00:1::1/64")
    made.add_card("card1", "10.2.0.1/24")
    return made


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Whatever plays a runtime plays it in the manner of each."""
    if hasattr(metafunc.module, "bench") and inspect.iscoroutinefunction(metafunc.function):
        metafunc.parametrize("manner", MANNERS, ids=[one.name for one in MANNERS], indirect=True)


@pytest.fixture(autouse=True)
def manner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Manner:
    """The manner of the runtime that `bench` plays in this test."""
    found: Manner = getattr(request, "param", CONTAINERD)
    monkeypatch.setattr(daemon_bench, "manner", found)
    return found


@pytest.fixture(scope="session")
def may_make_namespaces() -> None:
    """Skip what needs network namespaces where the tests may not make any."""
    try:
        Namespace.create().close()
    except NamespaceError as error:
        pytest.skip(f"needs the right to make network namespaces: {error}")
