"""The driver's own parts on real cards: plan, attach, home again, with RDMA in both of the kernel's modes."""

import subprocess
from pathlib import Path

import pytest

from dranet.driver.moving.cards import Attached, Cards
from dranet.driver.parts.rdma import RdmaPart
from dranet.driver.parts.registry import PARTS
from dranet.driver.records.plan import Use
from dranet.kernel import rdma
from dranet.kernel.netlink import NetlinkSocket
from dranet.model.errors import InvalidInput
from tests.vm import container
from tests.vm.machine import LINKLESS_FUNCTION, SRIOV_NODE1
from tests.vm.parts import Driver, name_at
from tests.vm.world import NamedNamespace, SoftRoce, named_namespace, netdev_of, tool, wait_for

Pair = tuple[SoftRoce, SoftRoce]


def here(made: SoftRoce) -> tuple[bool, bool]:
    """Whether the link and the RDMA device are in this namespace."""
    return (
        (Path("/sys/class/net") / made.netdev).exists(),
        (Path("/sys/class/infiniband") / made.device).exists(),
    )


def rdma_moved(attached: Attached) -> bool:
    return "RDMALinkReady" in [condition.type for condition in attached.conditions]


def test_in_exclusive_mode_link_and_rdma_device_go_into_the_pod(
    exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace, driver: Driver
) -> None:
    made = soft_roce[1]
    plan = driver.prepare(name_at(made.card.address), "claim")
    (attached,) = driver.attach(plan, pod)
    try:
        assert rdma_moved(attached)
        assert here(made) == (False, False)
        assert made.netdev in pod.tool("ip", "-br", "link")
        assert made.device in pod.tool("rdma", "dev")
    finally:
        driver.bring_home(plan)


def test_in_exclusive_mode_link_and_rdma_device_come_home_as_they_were(
    exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace, driver: Driver
) -> None:
    made = soft_roce[1]
    before = tool("ip", "-4", "-br", "address", "show", made.netdev)
    plan = driver.prepare(name_at(made.card.address), "claim", {"interface": {"name": "rdma0", "mtu": 1400}})
    driver.attach(plan, pod)
    assert driver.bring_home(plan) == []
    assert here(made) == (True, True)
    assert made.device not in pod.tool("rdma", "dev")
    assert tool("ip", "-4", "-br", "address", "show", made.netdev).split()[2:] == before.split()[2:]


def test_the_rdma_device_comes_home_before_its_link(
    exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace, driver: Driver
) -> None:
    made, seen = soft_roce[1], []

    def looking(namespace_fd: int) -> NetlinkSocket | None:
        seen.append(here(made))
        return rdma.open_socket(namespace_fd)

    plan = driver.prepare(name_at(made.card.address), "claim")
    driver.attach(plan, pod)
    cards = Cards(driver.host, driver.store, driver.receipts, parts=PARTS.with_part(RdmaPart(looking)))
    assert cards.bring_home(plan.uid) == []
    assert (seen, here(made)) == ([(False, False)], (True, True))


def test_cards_of_a_pod_that_died_are_fetched_home(exclusive_mode: None, soft_roce: Pair, driver: Driver) -> None:
    made = soft_roce[1]
    with named_namespace("short-lived") as pod:
        plan = driver.prepare(name_at(made.card.address), "claim")
        driver.attach(plan, pod)
    assert driver.bring_home(plan) == []
    assert here(made) == (True, True)
    assert made.address in tool("ip", "-br", "address", "show", made.netdev)


def test_cards_that_came_home_while_the_driver_was_away_are_made_as_they_were(
    exclusive_mode: None, soft_roce: Pair, driver: Driver
) -> None:
    made = soft_roce[1]
    with named_namespace("short-lived") as pod:
        plan = driver.prepare(name_at(made.card.address), "claim")
        driver.attach(plan, pod)
        driver.cards.close()
    wait_for(lambda: here(made) == (True, True), "the card to come home by itself")
    assert driver.bring_home(plan) == []
    assert made.address in tool("ip", "-br", "address", "show", made.netdev)


def test_in_shared_mode_the_rdma_device_stays_and_the_receipt_carries_its_nodes(
    soft_roce: Pair, pod: NamedNamespace, driver: Driver
) -> None:
    made = soft_roce[1]
    plan = driver.prepare(name_at(made.card.address), "claim")
    (attached,) = driver.attach(plan, pod)
    try:
        assert not rdma_moved(attached)
        assert here(made) == (False, True)
        assert [Path(node["path"]).name for node in driver.nodes(plan)] == expected_nodes(made)
    finally:
        driver.bring_home(plan)


def expected_nodes(made: SoftRoce) -> list[str]:
    """What sysfs says belongs to the device, and the machine's connection manager."""
    folders = ("infiniband_mad", "infiniband_verbs")
    files = [file for folder in folders for file in Path(f"/sys/class/{folder}").glob("*/ibdev")]
    return sorted(["rdma_cm", *(file.parent.name for file in files if file.read_text().strip() == made.device)])


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_an_admins_look_moves_nothing_and_gives_the_nodes(
    mode: str, request: pytest.FixtureRequest, driver: Driver
) -> None:
    if mode == "exclusive":
        request.getfixturevalue("exclusive_mode")
    made, pod = request.getfixturevalue("soft_roce")[1], request.getfixturevalue("pod")
    plan = driver.prepare(name_at(made.card.address), "claim", admin=True)
    (attached,) = driver.attach(plan, pod)
    try:
        assert [condition.reason for condition in attached.conditions] == ["AdminAccessReady"]
        assert here(made) == (True, True)
        assert made.netdev not in pod.tool("ip", "-br", "link")
        assert [Path(node["path"]).name for node in driver.nodes(plan)] == expected_nodes(made)
    finally:
        assert driver.bring_home(plan) == []
    assert here(made) == (True, True)


def test_in_exclusive_mode_an_admin_may_look_at_what_a_pod_has(
    exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace, other_pod: NamedNamespace, driver: Driver
) -> None:
    made = soft_roce[1]
    owner = driver.prepare(name_at(made.card.address), "owner")
    look = driver.prepare(name_at(made.card.address), "look", admin=True)
    driver.attach(owner, pod)
    try:
        driver.attach(look, other_pod)
        assert driver.bring_home(look) == []
        assert made.device in pod.tool("rdma", "dev")
        assert made.netdev in pod.tool("ip", "-br", "link")
    finally:
        driver.bring_home(owner)
    assert here(made) == (True, True)


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_a_container_sees_its_own_rdma_nodes_and_cannot_open_anothers(
    mode: str, request: pytest.FixtureRequest, driver: Driver
) -> None:
    if mode == "exclusive":
        request.getfixturevalue("exclusive_mode")
    other, made = request.getfixturevalue("soft_roce")
    pod = request.getfixturevalue("pod")
    foreign = next(name for name in expected_nodes(other) if name.startswith("uverbs"))
    own = next(name for name in expected_nodes(made) if name.startswith("uverbs"))
    plan = driver.prepare(name_at(made.card.address), "claim")
    driver.attach(plan, pod)
    try:
        script = f"ls /dev/infiniband; {attempt(own)}; {attempt(foreign, make=True)}"
        *seen, on_own, on_foreign = container.run(Path("/run/netns/pod"), driver.nodes(plan), script)
    finally:
        driver.bring_home(plan)
    assert seen == expected_nodes(made)
    assert (on_own, on_foreign) == (f"{own} opened", f"{foreign} refused")


def attempt(name: str, *, make: bool = False) -> str:
    """Shell that opens a node, made on the spot with its true numbers if need be, and says how that went."""
    numbers = Path(f"/sys/class/infiniband_verbs/{name}/dev").read_text().strip().replace(":", " ")
    path = f"/tmp/{name}" if make else f"/dev/infiniband/{name}"
    node = f"mknod {path} c {numbers} 2>/dev/null; " if make else ""
    return f"{node}if (exec 3<>{path}) 2>/dev/null; then echo {name} opened; else echo {name} refused; fi"


def test_an_rdma_only_card_brings_its_nodes_and_no_link(rdma_only_card: str, driver: Driver) -> None:
    plan = driver.prepare(name_at(LINKLESS_FUNCTION), "claim")
    (device,) = plan.devices
    assert (device.use, device.found, device.wanted) == (Use.RDMA_ONLY, None, None)
    assert device.rdma is not None
    assert device.rdma.device == rdma_only_card
    assert "/dev/infiniband/rdma_cm" in [node.path for node in device.rdma.char_devices]
    assert len([node for node in device.rdma.char_devices if "uverbs" in node.path]) == 1


def test_an_rdma_only_card_takes_no_settings_of_a_link(rdma_only_card: str, driver: Driver) -> None:
    with pytest.raises(InvalidInput, match="RDMA only"):
        driver.prepare(name_at(LINKLESS_FUNCTION), "claim", {"interface": {"mtu": 1400}})


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_an_rdma_only_card_is_attached_by_its_nodes_and_comes_home(
    mode: str, request: pytest.FixtureRequest, driver: Driver
) -> None:
    if mode == "exclusive":
        request.getfixturevalue("exclusive_mode")
    name, pod = request.getfixturevalue("rdma_only_card"), request.getfixturevalue("other_pod")
    plan = driver.prepare(name_at(LINKLESS_FUNCTION), "claim")
    (attached,) = driver.attach(plan, pod)
    try:
        assert (attached.link, rdma_moved(attached)) == (None, mode == "exclusive")
        assert name in pod.tool("rdma", "dev")
        assert (Path("/sys/class/infiniband") / name).exists() is (mode == "shared")
        assert len([node for node in driver.nodes(plan) if "uverbs" in node["path"]]) == 1
    finally:
        assert driver.bring_home(plan) == []
    assert name in tool("rdma", "dev")


def test_two_pods_talk_rdma_over_claimed_cards_until_a_claim_is_gone(
    exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace, other_pod: NamedNamespace, driver: Driver
) -> None:
    server, client = soft_roce
    first = driver.prepare(name_at(server.card.address), "server")
    second = driver.prepare(name_at(client.card.address), "client")
    driver.attach(first, pod)
    driver.attach(second, other_pod)
    try:
        for inside in (pod, other_pod):
            wait_for(lambda inside=inside: "state ACTIVE" in inside.tool("rdma", "link"), "an active port")  # type: ignore[misc]
        assert ping_pong(pod, other_pod, server.address) == 0
        driver.bring_home(second)
        assert other_pod.tool("rdma", "dev") == ""
        assert ping_pong(pod, other_pod, server.address) != 0
    finally:
        driver.bring_home(second)
        driver.bring_home(first)


def ping_pong(server: NamedNamespace, client: NamedNamespace, address: str) -> int:
    """The client's exit code of three RDMA round trips with `rping`."""
    command = ["timeout", "30", "rping", "-a", address, "-C", "3"]
    inside = ["ip", "netns", "exec"]
    listening = subprocess.Popen([*inside, server.name, *command, "-s"], stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: "LISTEN" in server.tool("rdma", "resource", "show", "cm_id"), "the server to listen")
        return subprocess.run([*inside, client.name, *command, "-c"], capture_output=True, check=False).returncode
    finally:
        listening.terminate()
        listening.wait()


def test_a_virtual_function_cannot_have_a_larger_mtu_than_its_physical_one(
    virtual_functions: list[str], driver: Driver
) -> None:
    with pytest.raises(InvalidInput, match=f"more than the 1500 of its physical function {netdev_of(SRIOV_NODE1)}"):
        driver.prepare(name_at(virtual_functions[0]), "claim", {"interface": {"mtu": 9000}})


def test_a_virtual_function_goes_into_a_pod_and_comes_home(
    virtual_functions: list[str], pod: NamedNamespace, driver: Driver
) -> None:
    plan = driver.prepare(
        name_at(virtual_functions[0]), "claim", {"interface": {"name": "vf0", "addresses": ["10.9.0.1/24"]}}
    )
    driver.attach(plan, pod)
    try:
        assert "10.9.0.1/24" in pod.tool("ip", "-br", "address", "show", "vf0")
    finally:
        assert driver.bring_home(plan) == []
    (link,) = (folder.name for folder in Path(f"/sys/bus/pci/devices/{virtual_functions[0]}/net").iterdir())
    assert link == plan.devices[0].found.link.name  # type: ignore[union-attr]
