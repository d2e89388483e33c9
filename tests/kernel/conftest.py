"""Network namespaces for tests: made without a name, held by a file descriptor, gone when the test ends."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import subprocess
from collections.abc import Callable, Iterator

import pytest

from dranet.kernel import links, sysctl, virtual_links
from dranet.kernel.codec import Message
from dranet.kernel.events import Change, Monitor
from dranet.kernel.namespaces import Namespace, NamespaceError
from dranet.kernel.netlink import NetlinkError, NetlinkSocket
from dranet.kernel.traffic import bpf


@pytest.fixture
def make_namespace() -> Iterator[Callable[[], Namespace]]:
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


@pytest.fixture
def netns(make_namespace: Callable[[], Namespace]) -> Namespace:
    """An empty namespace whose links get no IPv6 addresses by themselves, so that nothing changes behind a test."""
    namespace = make_namespace()
    sysctl.write_all(namespace.fd, {"net/ipv6/conf/default/addr_gen_mode": "1"})
    return namespace


@pytest.fixture
def make_route(make_namespace: Callable[[], Namespace]) -> Iterator[Callable[[Namespace], NetlinkSocket]]:
    """Opens route netlink sockets in namespaces and closes them at the end."""
    opened: list[NetlinkSocket] = []

    def make(namespace: Namespace) -> NetlinkSocket:
        opened.append(NetlinkSocket(namespace_fd=namespace.fd))
        return opened[-1]

    yield make
    for socket in opened:
        socket.close()


@pytest.fixture
def route(netns: Namespace, make_route: Callable[[Namespace], NetlinkSocket]) -> NetlinkSocket:
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

    def run(*words: str, command: str = "ip") -> str:
        where = f"--net=/proc/{os.getpid()}/fd/{netns.fd}"
        done = subprocess.run(["nsenter", where, command, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


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
