"""RDMA netlink where there is RDMA: modes, moves and what they change.

Reading is compared with the `rdma` tool by the kernel room's own tests, which run here with devices to read.
"""

import errno
import os
from pathlib import Path

import pytest

from dranet.linux import events, rdma
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkError, NetlinkSocket
from dranet.linux.rdma import RdmaDevice
from dranet.testing.waiting import wait_until
from tests.kernel_tools import char_device, create_rdma, delete_rdma, set_shared
from tests.vm.machine import VIRTIO_NODE1
from tests.vm.world import NamedNamespace, SoftRoce, netdev_of, tool

Pair = tuple[SoftRoce, SoftRoce]


def device(socket: NetlinkSocket, name: str) -> RdmaDevice:
    found = rdma.get_device(socket, name)
    assert found is not None, f"no RDMA device {name}"
    return found


def names(socket: NetlinkSocket) -> list[str]:
    return [found.name for found in rdma.list_devices(socket)]


def inside(namespace: NamedNamespace) -> NetlinkSocket:
    socket = rdma.open_socket(namespace.fd)
    assert socket is not None
    return socket


def test_a_port_follows_its_link_down_and_up(soft_roce: Pair, rdma_socket: NetlinkSocket) -> None:
    made = soft_roce[0]

    def state() -> str:
        return rdma.list_ports(rdma_socket, device(rdma_socket, made.device))[0].state

    wait_until(lambda: state() == "active", "the port to become active")
    tool("ip", "link", "set", made.netdev, "down")
    wait_until(lambda: state() == "down", "the port to go down")


def test_a_device_made_by_us_is_known_to_the_rdma_tool_until_we_delete_it(rdma_socket: NetlinkSocket) -> None:
    rdma_socket.request(create_rdma("rxe7", "rxe", netdev_of(VIRTIO_NODE1)))
    made = device(rdma_socket, "rxe7")
    assert "rxe7" in tool("rdma", "dev")
    rdma_socket.request(delete_rdma(made.index))
    wait_until(lambda: "rxe7" not in tool("rdma", "dev"), "the device to go")


@pytest.mark.parametrize(("kind", "port"), [("uverbs", None), ("umad", 1)])
def test_a_character_device_has_the_numbers_of_its_file(
    soft_roce: Pair, rdma_socket: NetlinkSocket, kind: str, port: int | None
) -> None:
    for made in soft_roce:
        found = char_device(rdma_socket, kind, device(rdma_socket, made.device).index, port)
        assert found is not None
        assert found.name.startswith(kind)
        file = os.stat(f"/dev/infiniband/{found.name}")
        assert (found.major, found.minor) == (os.major(file.st_rdev), os.minor(file.st_rdev))


def test_rdma_cm_belongs_to_the_machine(rdma_socket: NetlinkSocket) -> None:
    found = char_device(rdma_socket, "rdma_cm")
    assert found is not None
    file = os.stat("/dev/infiniband/rdma_cm")
    assert (found.name, found.minor) == ("rdma_cm", os.minor(file.st_rdev))


def test_the_mode_is_shared_unless_it_was_changed(rdma_socket: NetlinkSocket) -> None:
    assert rdma.is_shared(rdma_socket)
    assert "netns shared" in tool("rdma", "system")


def test_the_mode_we_set_is_the_mode_the_tool_reads(exclusive_mode: None, rdma_socket: NetlinkSocket) -> None:
    assert not rdma.is_shared(rdma_socket)
    assert "netns exclusive" in tool("rdma", "system")


def test_the_mode_cannot_change_while_a_namespace_exists(pod: NamedNamespace, rdma_socket: NetlinkSocket) -> None:
    with pytest.raises(NetlinkError) as refused:
        rdma_socket.request(set_shared(False))
    assert refused.value.errno == errno.EBUSY


def test_in_shared_mode_no_device_moves(soft_roce: Pair, pod: NamedNamespace, rdma_socket: NetlinkSocket) -> None:
    with pytest.raises(NetlinkError) as refused:
        rdma_socket.request(rdma.move(device(rdma_socket, "rxe1").index, pod.fd))
    assert refused.value.errno == errno.EOPNOTSUPP


def test_in_shared_mode_every_namespace_sees_every_device(soft_roce: Pair, pod: NamedNamespace) -> None:
    with inside(pod) as socket:
        assert names(socket) == ["rxe0", "rxe1"]


def test_a_moved_device_is_in_the_other_namespace_only(
    exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace, rdma_socket: NetlinkSocket
) -> None:
    rdma_socket.request(rdma.move(device(rdma_socket, "rxe1").index, pod.fd))
    with inside(pod) as socket:
        assert (names(rdma_socket), names(socket)) == (["rxe0"], ["rxe1"])
    assert not Path("/sys/class/infiniband/rxe1").exists()


def return_to_host(name: str, home_fd: int) -> None:
    with rdma.open_socket() as socket:  # type: ignore[union-attr]
        socket.request(rdma.move(device(socket, name).index, home_fd))


def test_a_moved_device_is_returned_to_the_host_from_inside_its_namespace(
    exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace, rdma_socket: NetlinkSocket
) -> None:
    rdma_socket.request(rdma.move(device(rdma_socket, "rxe1").index, pod.fd))
    with Namespace.current() as home:
        pod.opened.run(lambda: return_to_host("rxe1", home.fd))
    assert names(rdma_socket) == ["rxe0", "rxe1"]


def test_a_device_is_not_returned_to_the_host_from_outside(
    exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace, rdma_socket: NetlinkSocket
) -> None:
    """The kernel looks at the thread that asks, not at the socket; a surprise worth a test of its own."""
    rdma_socket.request(rdma.move(device(rdma_socket, "rxe1").index, pod.fd))
    with Namespace.current() as home, inside(pod) as socket:
        with pytest.raises(NetlinkError) as refused:
            socket.request(rdma.move(device(socket, "rxe1").index, home.fd))
    assert refused.value.errno == errno.ENODEV


def test_a_device_whose_namespace_dies_returns_to_the_host(
    exclusive_mode: None, soft_roce: Pair, rdma_socket: NetlinkSocket
) -> None:
    tool("ip", "netns", "add", "short-lived")
    tool("rdma", "dev", "set", "rxe1", "netns", "short-lived")
    tool("ip", "netns", "del", "short-lived")
    wait_until(lambda: names(rdma_socket) == ["rxe0", "rxe1"], "the device to return to the host")


def test_a_port_whose_link_is_elsewhere_has_no_link(
    exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace, rdma_socket: NetlinkSocket
) -> None:
    tool("ip", "link", "set", soft_roce[1].netdev, "netns", pod.name)
    (port,) = rdma.list_ports(rdma_socket, device(rdma_socket, "rxe1"))
    assert (port.netdev_index, port.netdev) == (None, "")


def test_opening_the_verbs_of_another_namespace_is_refused(
    exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace, rdma_socket: NetlinkSocket
) -> None:
    verbs = char_device(rdma_socket, "uverbs", device(rdma_socket, "rxe1").index)
    assert verbs is not None
    tool("rdma", "dev", "set", "rxe1", "netns", pod.name)
    with pytest.raises(PermissionError):
        os.open(f"/dev/infiniband/{verbs.name}", os.O_RDWR)


def test_a_new_rdma_device_is_an_event(rdma_socket: NetlinkSocket) -> None:
    with events.Monitor(frozenset({events.Change.RDMA})) as monitor:
        rdma_socket.request(create_rdma("rxe7", "rxe", netdev_of(VIRTIO_NODE1)))
        wait_until(lambda: events.Change.RDMA in monitor.drain(), "the event")
    rdma_socket.request(delete_rdma(device(rdma_socket, "rxe7").index))
