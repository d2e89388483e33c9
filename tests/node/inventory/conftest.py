"""Shared worlds for inventory tests: metadata services on loopback, hand-made sysfs trees, made-up kernels."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from dranet.core.errors import KernelError
from dranet.core.pciids import PciIds
from dranet.linux.addresses import Address
from dranet.linux.links import Link
from dranet.linux.namespaces import Namespace, NamespaceError
from dranet.linux.rdma import RdmaPort
from dranet.linux.routes import Route
from dranet.linux.rules import Rule
from dranet.linux.sysfs import Sysfs
from dranet.linux.traffic.bpf import Attachment
from dranet.linux.traffic.tc import BpfFilter
from dranet.node.inventory import Inventory, InventoryOptions

T = TypeVar("T")

Answer = str | tuple[int, str] | tuple[int, str, dict[str, str]] | None
"""A body with status 200; a status and a body; those and headers; None for never answering at all."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Server:
    """An HTTP server on loopback whose answers a test may change while it runs."""

    def __init__(self) -> None:
        self.handler: Callable[[Request], Answer] = lambda request: (404, "not found")
        self.requests: list[Request] = []
        self.waiting = 0
        self.most_waiting = 0
        """How many requests waited for their answer at the same time."""
        self.url = ""

    def answer(self, answers: Mapping[str, Answer]) -> None:
        """Answer by path without its query; everything else is 404."""
        self.handler = lambda request: answers.get(request.path.partition("?")[0], (404, "not found"))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ", 2)
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            request = Request(method, path, headers, body)
            self.requests.append(request)
            answer = self.handler(request)
            if answer is None:
                self.waiting += 1
                self.most_waiting = max(self.most_waiting, self.waiting)
                await reader.read()  # until the client gives up
                self.waiting -= 1
            else:
                writer.write(_raw(answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _raw(answer: str | tuple[Any, ...]) -> bytes:
    text: str
    headers: dict[str, str]
    status, text, headers = (200, answer, {}) if isinstance(answer, str) else (*answer, {})[:3]
    body = text.encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*lines, *(f"{k}: {v}" for k, v in headers.items())]).encode() + b"\r\n\r\n" + body


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = "http://{}:{}".format(*listening.sockets[0].getsockname())
    yield made
    listening.close()


@pytest.fixture
def closed_url() -> str:
    """A loopback address without a listener, now and later: other tests take ports of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.77", 0))
        return "http://{}:{}".format(*probe.getsockname())


class Machine:
    """A hand-made sysfs, one part at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("bus/pci/devices", "bus/pci/drivers", "class/net", "devices/virtual/net"):
            (root / folder).mkdir(parents=True)

    def write(self, path: str, content: object) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{content}\n")

    def link(self, path: str, target: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        (self.root / target).mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(self.root / target, place.parent))

    def nic(
        self,
        address: str,
        *,
        below: str = "pci0000:10",
        driver: str | None = "mlx5_core",
        ids: tuple[str, str, str] = ("15b3", "1021", "0023"),
        pci_class: str = "020000",
        numa: int = 0,
        netdevs: Sequence[str] = (),
        rdma: str | None = None,
        **files: object,
    ) -> str:
        """A PCI function with its netdevs and RDMA device; other keywords become files. Its path."""
        path = f"devices/{below}/{address}"
        vendor, device, subsystem = (text.upper().zfill(8) for text in ids)
        base, sub, interface = (pci_class[i : i + 2] for i in (0, 2, 4))
        self.write(f"{path}/modalias", f"pci:v{vendor}d{device}sv{vendor}sd{subsystem}bc{base}sc{sub}i{interface}")
        self.write(f"{path}/numa_node", numa)
        for name, content in files.items():
            self.write(f"{path}/{name}", content)
        self.link(f"bus/pci/devices/{address}", path)
        if driver is not None:
            self.link(f"{path}/driver", f"bus/pci/drivers/{driver}")
        for netdev in netdevs:
            self.netdev(path, netdev)
        if rdma is not None:
            self.rdma(path, rdma)
        return path

    def netdev(self, parent: str, name: str, **files: object) -> None:
        (self.root / parent / "net" / name).mkdir(parents=True)
        self.link(f"class/net/{name}", f"{parent}/net/{name}")
        for file, content in files.items():
            self.write(f"{parent}/net/{name}/{file}", content)

    def rdma(
        self, parent: str, name: str, *, layer: str = "Ethernet", state: str = "4: ACTIVE", **files: object
    ) -> None:
        path = f"{parent}/infiniband/{name}"
        facts = {"node_guid": "0000:0000:0000:0000", "ports/1/state": state, "ports/1/link_layer": layer, **files}
        for file, content in facts.items():
            self.write(f"{path}/{file}", content)
        self.link(f"{path}/device", parent)
        self.link(f"class/infiniband/{name}", path)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "sys")


@dataclass
class World:
    """A kernel whose answers a test writes down; sysfs is a hand-made one."""

    root: Path
    links_: list[Link] = field(default_factory=list)
    addresses_: list[Address] = field(default_factory=list)
    routes_: list[Route] = field(default_factory=list)
    classifiers_: list[BpfFilter] = field(default_factory=list)
    programs_: list[Attachment] = field(default_factory=list)
    ports_: list[RdmaPort] = field(default_factory=list)
    rules_: list[Rule] = field(default_factory=list)
    all_routes: list[Route] = field(default_factory=list)
    ways: dict[str, int] = field(default_factory=dict)
    """The link by which an address is reached."""
    broken: set[str] = field(default_factory=set)

    def sysfs(self) -> Sysfs:
        return Sysfs(str(self.root))

    def links(self) -> list[Link]:
        return self._answer("links", self.links_)

    def addresses(self) -> list[Address]:
        return self._answer("addresses", self.addresses_)

    def default_routes(self) -> list[Route]:
        return self._answer("wide_routes", self.routes_)

    def routes(self) -> list[Route]:
        return self._answer("routes", self.all_routes)

    def rules(self) -> list[Rule]:
        return self._answer("rules", self.rules_)

    def egress_link(self, address: str) -> int | None:
        return self.ways.get(address)

    def classifiers(self) -> list[BpfFilter]:
        return self._answer("classifiers", self.classifiers_)

    def programs(self, indexes: Sequence[int]) -> list[Attachment]:
        return self._answer("programs", [program for program in self.programs_ if program.index in indexes])

    def rdma_ports(self) -> list[RdmaPort]:
        return self._answer("rdma_ports", self.ports_)

    def _answer(self, question: str, answer: list[T]) -> list[T]:
        if question in self.broken:
            raise KernelError(f"cannot tell {question}")
        return answer

    def link(self, name: str, index: int = 0, **fields: Any) -> Link:
        """Add a link; fields not given are those of a plain Ethernet NIC that is up."""
        made = Link(**{**PLAIN_LINK, "index": index or len(self.links_) + 1, "name": name, **fields})
        self.links_.append(made)
        return made

    def default_route(self, index: int | None, **fields: Any) -> None:
        self.routes_.append(Route(**{"family": 2, "destination": "0.0.0.0/0", "index": index, **fields}))


_ZEROS: dict[str, Any] = {"int": 0, "str": "", "bytes": b""}
PLAIN_LINK: dict[str, Any] = {
    **{name: _ZEROS.get(kind, () if kind.startswith("tuple") else None) for name, kind in Link.__annotations__.items()},
    "kind": "device",
    "flags": 0x1043,
    "mtu": 1500,
    "mac": "02:00:00:00:00:01",
    "operstate": "up",
    "encapsulation": "ether",
}


@pytest.fixture
def world(machine: Machine) -> World:
    return World(machine.root)


@pytest.fixture
def ids(tmp_path: Path) -> PciIds:
    path = tmp_path / "pci.ids"
    path.write_text("15b3  Mellanox Technologies\n\t1021  MT2910 Family [ConnectX-7]\n")
    return PciIds(path)


@pytest.fixture
def inventory(world: World, ids: PciIds) -> Inventory:
    return Inventory(InventoryOptions(), world, pci_ids=ids)


@pytest.fixture
def netns() -> Iterator[Namespace]:
    """An empty network namespace; skips where we may not make one."""
    try:
        made = Namespace.create()
    except NamespaceError as error:
        pytest.skip(f"needs the right to make network namespaces: {error}")
    with made:
        yield made
