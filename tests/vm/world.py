"""The guest's world for tests: NICs by what the machine was built with, soft-RoCE pairs, namespaces, RDMA modes.

A pytest plugin, loaded for every run in the guest. Every fixture puts back what it changed, for all tests share one
machine. Waiting is polling where the kernel sends no event (a namespace that is still dying, a port that
comes up).
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dranet.linux import rdma
from dranet.linux.hardware import pci_function
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkError, NetlinkSocket
from dranet.linux.sysfs import Sysfs
from dranet.testing.waiting import wait_until
from tests.kernel_tools import set_shared
from tests.vm.machine import E1000E_NODE0, E1000E_SWITCH, LINKLESS_FUNCTION, NICS, SRIOV_NODE1, Nic

VFS = 2


def pytest_addoption(parser: pytest.Parser) -> None:
    help_ = "pods of each of four kinds whose GIDs are compared; 26 make 104 in all, and take some ten minutes"
    parser.addoption("--gid-pods", type=int, default=2, help=help_)
    parser.addoption("--function-claims", type=int, default=5, help="random claims of a NIC or of parts of it")
    parser.addoption("--every-point", action="store_true", help="of those where a driver of virtual functions dies")
    parser.addoption("--sequences", default="1", help="of malicious pods, each with three kinds of NICs")
    parser.addoption("--churn-minutes", type=float, default=30.0, help="of pods that come and go and make no fault")
    parser.addoption("--first-seed", default="20002", help="of those sequences and claims")


def tool(*words: str) -> str:
    """What a command line tool prints; its complaint becomes the test's failure."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


def netdev_of(nic: Nic) -> str:
    """The name of a NIC's link now; names change between boots, addresses do not."""
    return netdev_at(nic.address)


def netdev_at(address: str) -> str:
    """The name of the link of a PCI function now."""
    function = pci_function(Sysfs(), address)
    assert function is not None, f"no NIC at {address}"
    (name,) = function.netdevs
    return name


@contextmanager
def cable_pulled(nic: Nic) -> Iterator[None]:
    """The NIC without carrier for as long as the block lasts; the host does the pulling (run.py)."""
    wires = Path("/run/wires")
    wires.write_text(f"nic{NICS.index(nic)} off\n")
    try:
        yield
    finally:
        wires.write_text(f"nic{NICS.index(nic)} on\n")


@dataclass(frozen=True)
class NamedNamespace:
    """A namespace that the tools know by name, too."""

    name: str
    opened: Namespace

    @property
    def fd(self) -> int:
        return self.opened.fd

    def tool(self, *words: str) -> str:
        return tool("ip", "netns", "exec", self.name, *words)


@contextmanager
def named_namespace(name: str) -> Iterator[NamedNamespace]:
    tool("ip", "netns", "add", name)
    try:
        with Namespace.open(f"/run/netns/{name}") as opened:
            yield NamedNamespace(name, opened)
    finally:
        tool("ip", "netns", "del", name)


@pytest.fixture
def pod() -> Iterator[NamedNamespace]:
    with named_namespace("pod") as namespace:
        yield namespace


@pytest.fixture
def rdma_socket() -> Iterator[NetlinkSocket]:
    socket = rdma.open_socket()
    assert socket is not None, "this kernel has no RDMA"
    with socket:
        yield socket


@dataclass(frozen=True)
class SoftRoce:
    """An rxe device on a NIC; its link is up and has an address."""

    device: str
    nic: Nic
    netdev: str
    address: str


def make_soft_roce(device: str, nic: Nic, address: str) -> SoftRoce:
    netdev = netdev_of(nic)
    tool("ip", "link", "set", netdev, "up")
    tool("ip", "address", "replace", f"{address}/24", "dev", netdev)
    tool("rdma", "link", "add", device, "type", "rxe", "netdev", netdev)
    return SoftRoce(device, nic, netdev, address)


def port_is_active(made: SoftRoce) -> bool:
    """A NIC that was just raised finds its carrier a moment later, and its port follows that."""
    return f"{made.device}/1 state ACTIVE" in tool("rdma", "link")


def remove_soft_roce(made: SoftRoce) -> None:
    """Waits for the NIC first: a namespace that just went returns it a moment later, perhaps renamed."""
    wait_until(lambda: has_link(made.nic.address), f"{made.netdev} to return to the host")
    wait_until(lambda: (Path("/sys/class/infiniband") / made.device).exists(), f"{made.device} to return to the host")
    tool("rdma", "link", "delete", made.device)
    link = netdev_of(made.nic)
    tool("ip", "address", "flush", "dev", link)
    tool("ip", "link", "set", link, "down", "name", made.netdev)


@pytest.fixture
def soft_roce() -> Iterator[tuple[SoftRoce, SoftRoce]]:
    """Two RDMA devices on one wire, on different NUMA nodes."""
    with soft_roce_pair() as pair:
        yield pair


@contextmanager
def soft_roce_pair() -> Iterator[tuple[SoftRoce, SoftRoce]]:
    first = make_soft_roce("rxe0", E1000E_NODE0, "10.8.0.1")
    try:
        second = make_soft_roce("rxe1", E1000E_SWITCH, "10.8.0.2")
        try:
            for made in (first, second):
                wait_until(lambda made=made: port_is_active(made), f"the port of {made.device}")  # type: ignore[misc]
            yield first, second
        finally:
            remove_soft_roce(second)
    finally:
        remove_soft_roce(first)


@pytest.fixture
def rdma_only_nic(pod: NamedNamespace) -> Iterator[str]:
    """An RDMA device shown under a function without a link; the link it needs is hidden in a namespace."""
    parameter = Path("/sys/module/rdma_rxe/parameters/nic")
    tool("ip", "link", "add", "hidden", "type", "dummy")
    parameter.write_text(LINKLESS_FUNCTION)
    try:
        tool("rdma", "link", "add", "ib0", "type", "rxe", "netdev", "hidden")
    finally:
        parameter.write_text("none")  # an empty text would not be written at all
    tool("ip", "link", "set", "hidden", "netns", pod.name)
    yield "ib0"
    tool("rdma", "link", "delete", "ib0")
    pod.tool("ip", "link", "delete", "hidden")


@pytest.fixture
def virtual_functions() -> Iterator[list[str]]:
    """Two virtual functions of the SR-IOV NIC, by PCI address, each with its link."""
    with made_functions(VFS) as found:
        yield found


@contextmanager
def made_functions(count: int) -> Iterator[list[str]]:
    folder = Path("/sys/bus/pci/devices") / SRIOV_NODE1.address
    (folder / "sriov_numvfs").write_text(str(count))
    try:
        found = [(folder / f"virtfn{number}").resolve().name for number in range(count)]
        for address in found:
            wait_until(lambda address=address: has_link(address), f"the link of {address}")  # type: ignore[misc]
        yield found
    finally:
        (folder / "sriov_numvfs").write_text("0")


def has_link(address: str) -> bool:
    function = pci_function(Sysfs(), address)
    return function is not None and bool(function.netdevs)


def set_rdma_mode(shared: bool) -> None:
    """The kernel refuses while any other namespace exists, and a deleted one lives on for a moment."""
    with rdma.open_socket() as socket:  # type: ignore[union-attr]
        wait_until(lambda: _accepted(socket, shared), "the last namespace to die, to change the RDMA mode")


def _accepted(socket: NetlinkSocket, shared: bool) -> bool:
    try:
        socket.request(set_shared(shared))
    except NetlinkError:
        return False
    return rdma.is_shared(socket) is shared


@pytest.fixture
def exclusive_mode() -> Iterator[None]:
    """RDMA devices belong to namespaces. Ask for it before any fixture that makes a namespace."""
    set_rdma_mode(shared=False)
    yield
    set_rdma_mode(shared=True)


@pytest.fixture(params=["shared", "exclusive"])
def rdma_mode(request: pytest.FixtureRequest) -> str:
    """Both modes, one after the other. Ask for it before any fixture that makes a namespace."""
    if request.param == "exclusive":
        request.getfixturevalue("exclusive_mode")
    return str(request.param)


@pytest.fixture(scope="module", autouse=True)
def rdma_devices_to_read(request: pytest.FixtureRequest) -> Iterator[None]:
    """The tests of RDMA in tests/linux read whatever there is: here, two devices."""
    if request.path.parts[-2:] == ("linux", "test_rdma.py"):
        with soft_roce_pair():
            yield
    else:
        yield
