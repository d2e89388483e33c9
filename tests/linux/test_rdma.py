"""RDMA netlink: the format on any kernel, and the sockets where the kernel has RDMA."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator

import pytest

from dranet.linux import codec, rdma
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket

# A device and a port as Linux 6 sends them for a RoCE NIC, attribute by attribute.
DEVICE = (
    codec.u32(1, 3)
    + codec.text(2, "mlx5_1")
    + codec.u32(3, 1)
    + codec.u64(4, 0x20E1_7B36_4000_0000)
    + codec.text(5, "28.39.1002")
    + codec.u64(6, 0xB8CE_F603_00AB_CDEF)
    + codec.u8(14, 1)
    + codec.text(67, "roce")
)
PORT = (
    codec.u32(1, 3)
    + codec.text(2, "mlx5_1")
    + codec.u32(3, 1)
    + codec.u8(12, 4)
    + codec.u8(13, 5)
    + codec.u32(50, 12)
    + codec.text(51, "gpu0rdma0")
)


def test_a_device_is_read() -> None:
    assert rdma.parse_device(DEVICE) == rdma.RdmaDevice(
        index=3,
        name="mlx5_1",
        protocol="roce",
        node_guid="b8ce:f603:00ab:cdef",
        firmware="28.39.1002",
        node_type=1,
        ports=1,
    )


def test_a_port_is_read() -> None:
    assert rdma.parse_port(PORT) == rdma.RdmaPort(
        device="mlx5_1",
        device_index=3,
        number=1,
        state="active",
        physical_state="link-up",
        netdev_index=12,
        netdev="gpu0rdma0",
    )


def test_a_port_without_netdev_has_none() -> None:
    port = rdma.parse_port(codec.u32(1, 0) + codec.text(2, "mlx5_0") + codec.u32(3, 2) + codec.u8(12, 9))
    assert (port.netdev_index, port.netdev, port.state) == (None, "", "unknown9")


def test_a_move_names_the_device_and_the_namespace() -> None:
    message = rdma.move(3, 9)
    assert message.type == 5 << 10 | 2
    assert codec.attributes(message.payload) == {1: struct.pack("=I", 3), 68: struct.pack("=I", 9)}


@pytest.fixture
def live() -> Iterator[NetlinkSocket]:
    socket = rdma.open_socket()
    if socket is None:
        pytest.skip("this kernel has no RDMA netlink")
    yield socket
    socket.close()


def tool(*words: str) -> list[dict[str, object]]:
    done = subprocess.run(["rdma", "-j", *words], capture_output=True, text=True, check=True)
    found: list[dict[str, object]] = json.loads(done.stdout or "[]")
    return found


def test_a_kernel_without_rdma_gives_no_socket_and_no_error(netns: Namespace) -> None:
    found = rdma.open_socket(netns.fd)
    assert found is None or found.family == 20
    if found is not None:
        found.close()


def test_devices_agree_with_the_rdma_tool(live: NetlinkSocket) -> None:
    ours = {device.name: (device.index, device.node_guid) for device in rdma.list_devices(live)}
    assert ours == {device["ifname"]: (device["ifindex"], device["node_guid"]) for device in tool("dev")}


def test_ports_agree_with_the_rdma_tool(live: NetlinkSocket) -> None:
    ports = [port for device in rdma.list_devices(live) for port in rdma.list_ports(live, device)]
    ours = {(p.device, p.number): (p.state, p.netdev) for p in ports}
    theirs = {
        (port["ifname"], port["port"]): (str(port["state"]).lower().replace("_", "-"), port.get("netdev", ""))
        for port in tool("link")
    }
    assert ours == theirs


def test_the_namespace_mode_agrees_with_the_rdma_tool(live: NetlinkSocket) -> None:
    # Text, because the tool prints no JSON for this.
    output = subprocess.run(["rdma", "system"], capture_output=True, text=True, check=True).stdout
    assert rdma.is_shared(live) == ("netns shared" in output)


def test_a_device_that_is_not_there_is_none(live: NetlinkSocket) -> None:
    assert rdma.get_device(live, "nothere0") is None
