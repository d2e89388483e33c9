"""Kinds of links and settings that need this kernel: dummy, VRF, VLAN, ipvlan, a bond as uplink, Big TCP, programs."""

import asyncio
import ctypes
import http.server
import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dranet.core import attributes
from dranet.linux.traffic import bpf
from dranet.node.inventory.cloud import CloudContext, oke
from dranet.node.inventory.cloud.node_context import LiveNetwork
from dranet.testing.waiting import wait_until
from tests.vm.machine import E1000E_NODE0, E1000E_SWITCH, NICS, VIRTIO_NODE0, VIRTIO_NODE1
from tests.vm.parts import Driver, found_at, name_at, scan
from tests.vm.world import NamedNamespace, named_namespace, netdev_of, tool

PIN = "/sys/fs/bpf/guest-test"
BIG = 185_000


@pytest.fixture
def dummy() -> Iterator[str]:
    tool("ip", "link", "add", "nic0", "type", "dummy")
    tool("ip", "link", "set", "nic0", "up")
    yield "nic0"
    if Path("/sys/class/net/nic0").exists():
        tool("ip", "link", "delete", "nic0")


@pytest.fixture
def program() -> Iterator[str]:
    """A pinned program that lets everything pass."""
    instructions = ctypes.create_string_buffer(
        struct.pack("=BBhi", 0xB7, 0, 0, -1) + struct.pack("=BBhi", 0x95, 0, 0, 0)
    )
    licence = ctypes.create_string_buffer(b"GPL")
    addresses = ctypes.addressof(instructions), ctypes.addressof(licence)
    fd, _ = bpf.call(bpf.PROG_LOAD, struct.pack("=IIQQIIQII16s", 3, 2, *addresses, 0, 0, 0, 0, 0, b"watcher"), "load")
    path = ctypes.create_string_buffer(PIN.encode())
    bpf.call(bpf.OBJ_PIN, struct.pack("=QI", ctypes.addressof(path), fd), "pin")
    yield PIN
    Path(PIN).unlink()


def details(pod: NamedNamespace, link: str) -> dict[str, Any]:
    (found,) = json.loads(pod.tool("ip", "-j", "-d", "link", "show", link))
    return dict(found)


def test_a_nic_joins_a_vrf_in_the_pod_with_its_routes(pod: NamedNamespace, driver: Driver) -> None:
    config = {
        "interface": {"name": "eth1", "addresses": ["10.7.0.1/24"], "vrf": {"name": "blue", "table": 77}},
        "routes": [{"destination": "10.70.0.0/16", "gateway": "10.7.0.254"}],
    }
    plan = driver.prepare(name_at(VIRTIO_NODE0.address), config=config)
    driver.attach(plan, pod)
    try:
        assert details(pod, "eth1")["master"] == "blue"
        assert details(pod, "blue")["linkinfo"]["info_data"]["table"] == 77
        routes = json.loads(pod.tool("ip", "-j", "route", "show", "table", "77", "proto", "static"))
        assert [(route["dst"], route["gateway"]) for route in routes] == [("10.70.0.0/16", "10.7.0.254")]
    finally:
        assert driver.detach(plan) == []
    assert scan().find(plan.devices[0].name) is not None


@pytest.fixture
def two_nics() -> Iterator[dict[str, str]]:
    """Two NICs, each with a far end in a namespace of its own that has an address: 10.7.1.2 and 10.7.2.2."""
    with named_namespace("far1") as far1, named_namespace("far2") as far2:
        for number, far in ((1, far1), (2, far2)):
            tool("ip", "link", "add", f"lower{number}", "type", "veth", "peer", "name", "end", "netns", far.name)
            tool("ip", "link", "set", f"lower{number}", "up")
            far.tool("ip", "addr", "add", f"10.7.{number}.2/24", "dev", "end")
            far.tool("ip", "link", "set", "end", "up")
            far.tool("ip", "route", "add", "default", "via", f"10.7.{number}.1")
            tool("ip", "link", "add", f"rail{number}", "link", f"lower{number}", "type", "macvlan", "mode", "bridge")
        yield {"rail1": "10.7.1.2", "rail2": "10.7.2.2"}
        for number in (1, 2):
            tool("ip", "link", "delete", f"lower{number}")


def answers_ping(pod: NamedNamespace, address: str, device: str = "") -> bool:
    """Whether an echo request from the pod, bound to a device if one is given, is answered."""
    with pod.opened.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)) as echo:
        if device:
            echo.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        echo.settimeout(10)  # the machine is emulated, and the first packet waits for a neighbour
        words = (0x0800, 0, 7, 1)
        checksum = ~sum(words) & 0xFFFF
        try:
            echo.sendto(struct.pack("!4H", 0x0800, checksum, 7, 1), (address, 0))
            while True:
                answer, (sender, _) = echo.recvfrom(100)
                if sender == address and answer[20] == 0:
                    return True
        except (TimeoutError, OSError):
            return False


def test_two_nics_in_one_vrf_are_reached_through_it_and_only_through_it(
    two_nics: dict[str, str], pod: NamedNamespace, driver: Driver
) -> None:
    vrf = {"name": "blue", "table": 77}
    configs = {
        nic: {"interface": {"name": f"eth{number}", "addresses": [f"10.7.{number}.1/24"], "vrf": vrf}}
        for number, nic in enumerate(two_nics, 1)
    }
    plan = driver.prepare_all(configs)
    driver.attach(plan, pod)
    try:
        assert [details(pod, name)["master"] for name in ("eth1", "eth2")] == ["blue", "blue"]
        assert {far: answers_ping(pod, far, "blue") for far in two_nics.values()} == {
            "10.7.1.2": True,
            "10.7.2.2": True,
        }
        assert not answers_ping(pod, "10.7.1.2"), "outside of the VRF there is no way"
    finally:
        assert driver.detach(plan) == []
    assert {nic for nic in two_nics if scan().find(nic) is not None} == set(two_nics)


@pytest.fixture
def oracle() -> Iterator[str]:
    """A metadata service that answers as Oracle's."""
    answers = {
        "/opc/v2/instance/": {"shape": "BM.GPU.H100.8"},
        "/opc/v2/host/": {"rdmaFabricData": {"ipv6": False, "planes": 1}},
        "/opc/v2/vnics/": [{"privateIp": "10.0.0.19", "subnetCidrBlock": "10.0.0.0/24"}],
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = json.dumps(answers[self.path]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_oke_a_pod_gets_a_child_of_an_rdma_nic_with_address_route_and_rule(
    oracle: str, pod: NamedNamespace, driver: Driver
) -> None:
    async def profile() -> dict[str, Any]:
        cloud = await oke.detect(CloudContext(metadata_url=oracle, timeout=20, network=LiveNetwork()))
        assert cloud is not None
        found = scan().find("rdma0")
        assert found is not None
        asked = await cloud.config(found.identity)
        assert asked is not None
        return dict(await cloud.get_profile(found.identity, {"metadata": {"uid": "u"}}, asked))

    tool("ip", "link", "add", "rdma0", "type", "dummy")
    try:
        tool("ip", "addr", "add", "10.224.0.19/12", "dev", "rdma0")
        tool("ip", "link", "set", "rdma0", "up")
        given = asyncio.run(profile())
        given["interface"]["type"] = "IPVLAN"
        plan = driver.prepare("rdma0", config=given)
        driver.attach(plan, pod)
        assert details(pod, "rdma0")["linkinfo"]["info_kind"] == "ipvlan"
        assert "10.208.0.19/12" in pod.tool("ip", "addr", "show", "rdma0")
        assert "from 10.208.0.19 lookup 100" in pod.tool("ip", "rule", "show", "priority", "32000")
        assert "10.208.0.0/12 dev rdma0" in pod.tool("ip", "route", "show", "table", "100")
        assert driver.detach(plan) == []
        assert "10.224.0.19/12" in tool("ip", "addr", "show", "rdma0")
    finally:
        tool("ip", "link", "delete", "rdma0")


def test_a_dummy_is_offered_as_a_virtual_link(dummy: str) -> None:
    device = scan().find(dummy)
    assert device is not None
    own = device.device.attributes
    assert (own[attributes.TYPE], own[attributes.VIRTUAL]) == ("dummy", True)


@pytest.fixture
def big_link() -> Iterator[str]:
    """A link that can do Big TCP: a macvlan inherits from the pair below it what hardware here cannot."""
    tool("ip", "link", "add", "lower0", "type", "veth", "peer", "name", "lower1")
    tool("ip", "link", "set", "lower0", "up")
    tool("ip", "link", "add", "big0", "link", "lower0", "type", "macvlan", "mode", "bridge")
    yield "big0"
    tool("ip", "link", "delete", "lower0")


def test_big_tcp_sizes_are_set_in_the_pod_and_gone_on_the_host(
    big_link: str, pod: NamedNamespace, driver: Driver
) -> None:
    sizes = {"gsoMaxSize": BIG, "groMaxSize": BIG, "gsoIPv4MaxSize": BIG, "groIPv4MaxSize": BIG}
    names = ("gso_max_size", "gro_max_size", "gso_ipv4_max_size", "gro_ipv4_max_size")
    plan = driver.prepare(big_link, config={"interface": sizes})
    driver.attach(plan, pod)
    assert [details(pod, big_link)[name] for name in names] == [BIG] * 4
    assert driver.detach(plan) == []
    (found,) = json.loads(tool("ip", "-j", "-d", "link", "show", big_link))
    assert [found[name] for name in names] == [65536] * 4


@pytest.mark.parametrize(
    "kind", [("vlan", "id", "5"), ("ipvlan", "mode", "l2"), ("macvlan", "mode", "bridge")], ids=" ".join
)
def test_a_link_above_a_nic_goes_into_the_pod_and_the_nic_stays(
    kind: tuple[str, str, str], pod: NamedNamespace, driver: Driver
) -> None:
    parent = netdev_of(VIRTIO_NODE1)
    tool("ip", "link", "set", parent, "up")
    tool("ip", "link", "add", "upper", "link", parent, "type", *kind)
    try:
        plan = driver.prepare("upper", config={"interface": {"name": "net1", "addresses": ["10.6.0.1/24"]}})
        driver.attach(plan, pod)
        assert details(pod, "net1")["linkinfo"]["info_kind"] == kind[0]
        assert netdev_of(VIRTIO_NODE1) == parent
        assert driver.detach(plan) == []
    finally:
        tool("ip", "link", "delete", "upper")
        tool("ip", "link", "set", parent, "down")


def test_a_bond_that_is_the_uplink_is_left_alone_with_its_members() -> None:
    members = [netdev_of(VIRTIO_NODE0), netdev_of(VIRTIO_NODE1)]
    tool("ip", "link", "add", "uplink", "type", "bond", "mode", "active-backup", "miimon", "100")
    try:
        for member in members:
            tool("ip", "link", "set", member, "master", "uplink")
        tool("ip", "address", "add", "10.5.0.1/24", "dev", "uplink")
        tool("ip", "link", "set", "uplink", "up")
        tool("ip", "route", "add", "default", "via", "10.5.0.254", "dev", "uplink")
        snapshot = scan()
        offered = {str(device.pci) for device in snapshot.devices}
        skipped = {entry.name for entry in snapshot.skipped}
    finally:
        tool("ip", "link", "delete", "uplink")
    assert offered == {nic.address for nic in NICS} - {VIRTIO_NODE0.address, VIRTIO_NODE1.address}
    assert {"uplink", *members} <= skipped


def test_tc_and_tcx_programs_are_published_and_taken_off_for_the_pod(
    program: str, pod: NamedNamespace, driver: Driver
) -> None:
    link = netdev_of(E1000E_NODE0)
    tool("tc", "qdisc", "add", "dev", link, "clsact")
    try:
        tool("tc", "filter", "add", "dev", link, "ingress", "bpf", "direct-action", "object-pinned", program)
        tool("bpftool", "net", "attach", "tcx_egress", "pinned", program, "dev", link)
        own = found_at(E1000E_NODE0.address).device.attributes
        assert own[attributes.EBPF] is True
        assert own[attributes.TCX_PROGRAM_NAMES] == "watcher"
        assert "guest-test" in str(own[attributes.TC_FILTER_NAMES])
        plan = driver.prepare(name_at(E1000E_NODE0.address), config={"interface": {"disableEbpfPrograms": True}})
        driver.attach(plan, pod)
        left = pod.tool("bpftool", "net") + pod.tool("tc", "filter", "show", "dev", link, "ingress")
        assert driver.detach(plan) == []
        assert "watcher" not in left
        assert "guest-test" not in left
    finally:
        if "clsact" in tool("tc", "qdisc", "show", "dev", link):  # a move loses it, a failure before it does not
            tool("tc", "qdisc", "delete", "dev", link, "clsact")


def test_a_hardware_nic_returns_to_the_host_with_routes_rules_and_neighbours(
    pod: NamedNamespace, driver: Driver
) -> None:
    link = netdev_of(E1000E_SWITCH)
    tool("ip", "address", "add", "10.4.0.1/24", "dev", link)
    tool("ip", "link", "set", link, "up", "mtu", "1450", "alias", "rack 7")
    tool("ip", "route", "add", "10.40.0.0/16", "via", "10.4.0.254", "dev", link)
    tool("ip", "neighbour", "add", "10.4.0.9", "lladdr", "02:00:00:00:00:09", "nud", "permanent", "dev", link)
    tool("ip", "rule", "add", "from", "10.4.0.1", "iif", link, "lookup", "44", "priority", "4400")
    try:
        wait_until(lambda: has_carrier(link), "the carrier")
        before = picture(link)
        plan = driver.prepare(name_at(E1000E_SWITCH.address), config={"interface": {"name": "net1", "mtu": 1400}})
        driver.attach(plan, pod)
        assert driver.detach(plan) == []
        wait_until(lambda: has_carrier(link), "the carrier to come back")
        assert picture(link) == before
    finally:
        tool("ip", "rule", "delete", "priority", "4400")
        tool("ip", "address", "flush", "dev", link)
        tool("ip", "link", "set", link, "down", "mtu", "1500", "alias", "")


def has_carrier(link: str) -> bool:
    return Path(f"/sys/class/net/{link}/operstate").read_text() == "up\n"


def picture(link: str) -> list[str]:
    """All that must be the same when a NIC returns to the host."""
    (found,) = json.loads(tool("ip", "-j", "link", "show", link))
    return [
        *(str(found.get(key)) for key in ("ifname", "mtu", "address", "ifalias", "txqlen")),
        str("UP" in found["flags"]),
        tool("ip", "-4", "-br", "address", "show", link).split(maxsplit=2)[2],
        tool("ip", "route", "show", "dev", link, "proto", "boot"),
        tool("ip", "neighbour", "show", "dev", link, "nud", "permanent"),
        tool("ip", "rule", "show", "priority", "4400"),
    ]
