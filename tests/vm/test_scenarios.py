"""Kinds of links and settings that need this kernel: dummy, VRF, VLAN, ipvlan, a bond as uplink, Big TCP, programs."""

import ctypes
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dranet.kernel.traffic import bpf
from dranet.model import attributes
from tests.vm.machine import CARDS, E1000E_NODE0, E1000E_SWITCH, VIRTIO_NODE0, VIRTIO_NODE1
from tests.vm.parts import Driver, found_at, look, name_at
from tests.vm.world import NamedNamespace, netdev_of, tool, wait_for

PIN = "/sys/fs/bpf/guest-test"
BIG = 185_000


@pytest.fixture
def dummy() -> Iterator[str]:
    tool("ip", "link", "add", "card0", "type", "dummy")
    tool("ip", "link", "set", "card0", "up")
    yield "card0"
    if Path("/sys/class/net/card0").exists():
        tool("ip", "link", "delete", "card0")


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


def test_a_card_joins_a_vrf_in_the_pod_with_its_routes(pod: NamedNamespace, driver: Driver) -> None:
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
        assert driver.bring_home(plan) == []
    assert look().find(plan.devices[0].name) is not None


def test_a_dummy_is_offered_as_a_virtual_link(dummy: str) -> None:
    device = look().find(dummy)
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


def test_big_tcp_sizes_are_set_in_the_pod_and_gone_at_home(big_link: str, pod: NamedNamespace, driver: Driver) -> None:
    sizes = {"gsoMaxSize": BIG, "groMaxSize": BIG, "gsoIPv4MaxSize": BIG, "groIPv4MaxSize": BIG}
    names = ("gso_max_size", "gro_max_size", "gso_ipv4_max_size", "gro_ipv4_max_size")
    plan = driver.prepare(big_link, config={"interface": sizes})
    driver.attach(plan, pod)
    assert [details(pod, big_link)[name] for name in names] == [BIG] * 4
    assert driver.bring_home(plan) == []
    (found,) = json.loads(tool("ip", "-j", "-d", "link", "show", big_link))
    assert [found[name] for name in names] == [65536] * 4


@pytest.mark.parametrize(
    "kind", [("vlan", "id", "5"), ("ipvlan", "mode", "l2"), ("macvlan", "mode", "bridge")], ids=" ".join
)
def test_a_link_above_a_card_goes_into_the_pod_and_the_card_stays(
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
        assert driver.bring_home(plan) == []
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
        snapshot = look()
        offered = {str(device.pci) for device in snapshot.devices}
        skipped = {entry.name for entry in snapshot.skipped}
    finally:
        tool("ip", "link", "delete", "uplink")
    assert offered == {card.address for card in CARDS} - {VIRTIO_NODE0.address, VIRTIO_NODE1.address}
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
        assert driver.bring_home(plan) == []
        assert "watcher" not in left
        assert "guest-test" not in left
    finally:
        if "clsact" in tool("tc", "qdisc", "show", "dev", link):  # a move loses it, a failure before it does not
            tool("tc", "qdisc", "delete", "dev", link, "clsact")


def test_a_hardware_card_comes_home_with_routes_rules_and_neighbours(pod: NamedNamespace, driver: Driver) -> None:
    link = netdev_of(E1000E_SWITCH)
    tool("ip", "address", "add", "10.4.0.1/24", "dev", link)
    tool("ip", "link", "set", link, "up", "mtu", "1450", "alias", "rack 7")
    tool("ip", "route", "add", "10.40.0.0/16", "via", "10.4.0.254", "dev", link)
    tool("ip", "neighbour", "add", "10.4.0.9", "lladdr", "02:00:00:00:00:09", "nud", "permanent", "dev", link)
    tool("ip", "rule", "add", "from", "10.4.0.1", "iif", link, "lookup", "44", "priority", "4400")
    try:
        wait_for(lambda: has_carrier(link), "the carrier")
        before = picture(link)
        plan = driver.prepare(name_at(E1000E_SWITCH.address), config={"interface": {"name": "net1", "mtu": 1400}})
        driver.attach(plan, pod)
        assert driver.bring_home(plan) == []
        wait_for(lambda: has_carrier(link), "the carrier to come back")
        assert picture(link) == before
    finally:
        tool("ip", "rule", "delete", "priority", "4400")
        tool("ip", "address", "flush", "dev", link)
        tool("ip", "link", "set", link, "down", "mtu", "1500", "alias", "")


def has_carrier(link: str) -> bool:
    return Path(f"/sys/class/net/{link}/operstate").read_text() == "up\n"


def picture(link: str) -> list[str]:
    """All that must be the same when a card comes home."""
    (found,) = json.loads(tool("ip", "-j", "link", "show", link))
    return [
        *(str(found.get(key)) for key in ("ifname", "mtu", "address", "ifalias", "txqlen")),
        str("UP" in found["flags"]),
        tool("ip", "-4", "-br", "address", "show", link).split(maxsplit=2)[2],
        tool("ip", "route", "show", "dev", link, "proto", "boot"),
        tool("ip", "neighbour", "show", "dev", link, "nud", "permanent"),
        tool("ip", "rule", "show", "priority", "4400"),
    ]
