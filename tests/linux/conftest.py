"""Network namespaces for tests: without a name, kept by a file descriptor, removed when the test ends."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyroute2 import IPRoute

from dranet.linux import links, sysctl, virtual_links
from dranet.linux.codec import Message
from dranet.linux.events import Change, Monitor
from dranet.linux.namespaces import Namespace, NamespaceError
from dranet.linux.netlink import NetlinkError, NetlinkSocket
from dranet.linux.traffic import bpf

MakeNamespace = Callable[[], Namespace]
MakeRoute = Callable[[Namespace], NetlinkSocket]


@pytest.fixture
def make_namespace() -> Iterator[MakeNamespace]:
    """Makes namespaces; skips where the tests may not."""
    made: list[Namespace] = []

    def make() -> Namespace:
        try:
            made.append(Namespace.create())
        except NamespaceError as error:
            pytest.skip(f"needs the right to make network namespaces: {error}")
        return made[-1]

    yield make
    for namespace in made:
        namespace.close()


def ask_pyroute2(netns: Namespace, question: Callable[[IPRoute], Any]) -> list[Any]:
    """What pyroute2, which shares no code with us, reads inside a namespace."""

    def ask() -> list[Any]:
        with IPRoute() as handle:
            return list(question(handle) or ())

    return netns.run(ask)


@pytest.fixture
def netns(make_namespace: MakeNamespace) -> Namespace:
    """An empty namespace whose links get no IPv6 addresses by themselves, so that nothing changes behind a test."""
    namespace = make_namespace()
    sysctl.write_all(namespace.fd, {"net/ipv6/conf/default/addr_gen_mode": "1"})
    return namespace


@pytest.fixture
def make_route(make_namespace: MakeNamespace) -> Iterator[MakeRoute]:
    """Opens route netlink sockets in namespaces and closes them at the end."""
    opened: list[NetlinkSocket] = []

    def make(namespace: Namespace) -> NetlinkSocket:
        opened.append(NetlinkSocket(namespace_fd=namespace.fd))
        return opened[-1]

    yield make
    for socket in opened:
        socket.close()


@pytest.fixture
def route(netns: Namespace, make_route: MakeRoute) -> NetlinkSocket:
    """A route netlink socket in `netns`."""
    return make_route(netns)


@pytest.fixture
def veth(netns: Namespace, route: NetlinkSocket) -> links.Link:
    """One end of a pair `v0`, `v1` in `netns`, both up and with a carrier."""
    create_or_skip(route, virtual_links.create_veth("v0", "v1"))
    with Monitor(frozenset({Change.LINK}), netns.fd) as monitor:
        everything = links.list_links(route)
        assert not any(route.batch([links.change(link.index, up=True) for link in everything]))
        while {link.operstate for link in links.list_links(route)} != {"up", "unknown"}:  # loopback stays unknown
            assert select.select([monitor], [], [], 10)[0], "the links did not come up"
            monitor.drain()
    found = links.get_link(route, "v0")
    assert found is not None
    return found


def create_or_skip(route: NetlinkSocket, message: Message) -> None:
    try:
        route.request(message)
    except NetlinkError as error:
        if error.kernel_text == "Unknown device type":
            pytest.skip(f"this kernel has no such kind of link: {error}")
        raise


@pytest.fixture
def far(route: NetlinkSocket, veth: links.Link, make_namespace: MakeNamespace) -> Namespace:
    """The namespace of `v1`, the other end of `v0`, which is down there. It keeps its index: `veth.index - 1`."""
    namespace = make_namespace()
    route.request(links.change(veth.index - 1, namespace_fd=namespace.fd))
    return namespace


@pytest.fixture
def create_link(route: NetlinkSocket) -> Callable[[Message], links.Link]:
    """Sends a `create_*` message and gives the link; skips where the kernel has no such kind."""

    def create(message: Message) -> links.Link:
        before = {link.index for link in links.list_links(route)}
        create_or_skip(route, message)
        return next(link for link in links.list_links(route) if link.index not in before)

    return create


@pytest.fixture
def ip(netns: Namespace) -> Callable[..., str]:
    """Runs the `ip` (or another) command inside `netns` and gives what it prints."""

    return lambda *words, command="ip": run_in(netns, command, *words)


def run_in(namespace: Namespace, *command: str) -> str:
    """The output of a command inside a namespace; fails with what it prints on stderr."""
    where = f"--net=/proc/{os.getpid()}/fd/{namespace.fd}"
    done = subprocess.run(["nsenter", where, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def load_program() -> Iterator[Callable[[int, str, int], int]]:
    """Loads a BPF program that does nothing: type, name, attach type; skips where the kernel forbids it."""
    loaded: list[int] = []

    def load(kind: int, name: str, attach_type: int = 0) -> int:
        code = struct.pack("=BBhi", 0xB7, 0, 0, 0) + struct.pack("=BBhi", 0x95, 0, 0, 0)  # return 0
        steps, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
        head = (kind, 2, ctypes.addressof(steps), ctypes.addressof(licence), 0, 0, 0, 0, 0)
        attribute = struct.pack("=IIQQIIQII16sII", *head, name.encode(), 0, attach_type)
        try:
            loaded.append(bpf.call(bpf.PROG_LOAD, attribute, "load a program")[0])
        except bpf.BpfError as error:
            pytest.skip(f"this kernel does not load BPF programs for us: {error}")
        return loaded[-1]

    yield load
    for fd in loaded:
        os.close(fd)
