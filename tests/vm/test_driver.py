"""The driver's own parts on real NICs: plan, attach, detach, with RDMA in both of the kernel's modes."""

import subprocess
from pathlib import Path

import pytest

from dranet.core.errors import InvalidInput
from dranet.linux import rdma
from dranet.linux.netlink import NetlinkSocket
from dranet.node.features.rdma import RdmaFeature
from dranet.node.features.registry import FEATURES
from dranet.node.lifecycle.device_lifecycle import AttachedDevice, DeviceLifecycle
from dranet.node.records.plan import AttachMode
from dranet.testing.waiting import wait_until
from tests.vm import container
from tests.vm.machine import LINKLESS_FUNCTION, SRIOV_NODE1
from tests.vm.parts import Driver, name_at
from tests.vm.world import NamedNamespace, SoftRoce, named_namespace, netdev_of, tool

Pair = tuple[SoftRoce, SoftRoce]


def here(made: SoftRoce) -> tuple[bool, bool]:
    """Whether the link and the RDMA device are in this namespace."""
    return (
        (Path("/sys/class/net") / made.netdev).exists(),
        (Path("/sys/class/infiniband") / made.device).exists(),
    )


def rdma_moved(attached: AttachedDevice) -> bool:
    return "RDMALinkReady" in [condition.type for condition in attached.conditions]


def test_in_exclusive_mode_link_and_rdma_device_go_into_the_pod(
    exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace, driver: Driver
) -> None:
    made = soft_roce[1]
    plan = driver.prepare(name_at(made.nic.address), "claim")
    (attached,) = driver.attach(plan, pod)
    try:
        assert rdma_moved(attached)
        assert here(made) == (False, False)
        assert made.netdev in pod.tool("ip", "-br", "link")
        assert made.device in pod.tool("rdma", "dev")
    finally:
        driver.detach(plan)


def test_in_exclusive_mode_link_and_rdma_device_return_to_the_host_as_they_were(
    exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace, driver: Driver
) -> None:
    made = soft_roce[1]
    before = tool("ip", "-4", "-br", "address", "show", made.netdev)
    plan = driver.prepare(name_at(made.nic.address), "claim", {"interface": {"name": "rdma0", "mtu": 1400}})
    driver.attach(plan, pod)
    assert driver.detach(plan) == []
    assert here(made) == (True, True)
    assert made.device not in pod.tool("rdma", "dev")
    assert tool("ip", "-4", "-br", "address", "show", made.netdev).split()[2:] == before.split()[2:]


def test_the_rdma_device_returns_to_the_host_before_its_link(
    exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace, driver: Driver
) -> None:
    made, seen = soft_roce[1], []

    def looking(namespace_fd: int) -> NetlinkSocket | None:
        seen.append(here(made))
        return rdma.open_socket(namespace_fd)

    plan = driver.prepare(name_at(made.nic.address), "claim")
    driver.attach(plan, pod)
    lifecycle = DeviceLifecycle(
        driver.host, driver.store, driver.gates, features=FEATURES.with_feature(RdmaFeature(looking))
    )
    assert lifecycle.detach(plan.uid) == []
    assert (seen, here(made)) == ([(False, False)], (True, True))


def test_nics_of_a_pod_that_died_are_returned_to_the_host(
    exclusive_mode: None, soft_roce: Pair, driver: Driver
) -> None:
    made = soft_roce[1]
    with named_namespace("short-lived") as pod:
        plan = driver.prepare(name_at(made.nic.address), "claim")
        driver.attach(plan, pod)
    assert driver.detach(plan) == []
    assert here(made) == (True, True)
    assert made.address in tool("ip", "-br", "address", "show", made.netdev)


def test_nics_that_returned_while_the_driver_was_away_are_made_as_they_were(
    exclusive_mode: None, soft_roce: Pair, driver: Driver
) -> None:
    made = soft_roce[1]
    with named_namespace("short-lived") as pod:
        plan = driver.prepare(name_at(made.nic.address), "claim")
        driver.attach(plan, pod)
        driver.lifecycle.close()
    wait_until(lambda: here(made) == (True, True), "the NIC to return to the host by itself")
    assert driver.detach(plan) == []
    assert made.address in tool("ip", "-br", "address", "show", made.netdev)


def test_in_shared_mode_the_rdma_device_stays_and_the_gate_has_its_nodes(
    soft_roce: Pair, pod: NamedNamespace, driver: Driver
) -> None:
    made = soft_roce[1]
    plan = driver.prepare(name_at(made.nic.address), "claim")
    (attached,) = driver.attach(plan, pod)
    try:
        assert not rdma_moved(attached)
        assert here(made) == (False, True)
        assert [Path(node["path"]).name for node in driver.nodes(plan)] == expected_nodes(made)
    finally:
        driver.detach(plan)


def expected_nodes(made: SoftRoce) -> list[str]:
    """What sysfs says belongs to the device, and the machine's connection manager."""
    folders = ("infiniband_mad", "infiniband_verbs")
    files = [file for folder in folders for file in Path(f"/sys/class/{folder}").glob("*/ibdev")]
    return sorted(["rdma_cm", *(file.parent.name for file in files if file.read_text().strip() == made.device)])


def test_an_admins_look_moves_nothing_and_gives_the_nodes(
    rdma_mode: str, soft_roce: Pair, pod: NamedNamespace, driver: Driver
) -> None:
    made = soft_roce[1]
    plan = driver.prepare(name_at(made.nic.address), "claim", admin=True)
    (attached,) = driver.attach(plan, pod)
    try:
        assert [condition.reason for condition in attached.conditions] == ["AdminAccessReady"]
        assert here(made) == (True, True)
        assert made.netdev not in pod.tool("ip", "-br", "link")
        assert [Path(node["path"]).name for node in driver.nodes(plan)] == expected_nodes(made)
    finally:
        assert driver.detach(plan) == []
    assert here(made) == (True, True)


def test_in_exclusive_mode_an_admin_may_look_at_what_a_pod_has(
    exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace, other_pod: NamedNamespace, driver: Driver
) -> None:
    made = soft_roce[1]
    owner = driver.prepare(name_at(made.nic.address), "owner")
    look = driver.prepare(name_at(made.nic.address), "look", admin=True)
    driver.attach(owner, pod)
    try:
        driver.attach(look, other_pod)
        assert driver.detach(look) == []
        assert made.device in pod.tool("rdma", "dev")
        assert made.netdev in pod.tool("ip", "-br", "link")
    finally:
        driver.detach(owner)
    assert here(made) == (True, True)


def test_a_container_sees_its_own_rdma_nodes_and_cannot_open_anothers(
    rdma_mode: str, soft_roce: Pair, pod: NamedNamespace, driver: Driver
) -> None:
    other, made = soft_roce
    foreign = next(name for name in expected_nodes(other) if name.startswith("uverbs"))
    own = next(name for name in expected_nodes(made) if name.startswith("uverbs"))
    plan = driver.prepare(name_at(made.nic.address), "claim")
    driver.attach(plan, pod)
    try:
        script = f"ls /dev/infiniband; {attempt(own)}; {attempt(foreign, make=True)}"
        *seen, on_own, on_foreign = container.run(Path("/run/netns/pod"), driver.nodes(plan), script)
    finally:
        driver.detach(plan)
    assert seen == expected_nodes(made)
    assert (on_own, on_foreign) == (f"{own} opened", f"{foreign} refused")


def attempt(name: str, *, make: bool = False) -> str:
    """Shell that opens a node, made on the spot with its true numbers if need be, and says how that went."""
    numbers = Path(f"/sys/class/infiniband_verbs/{name}/dev").read_text().strip().replace(":", " ")
    path = f"/tmp/{name}" if make else f"/dev/infiniband/{name}"
    node = f"mknod {path} c {numbers} 2>/dev/null; " if make else ""
    return f"{node}if (exec 3<>{path}) 2>/dev/null; then echo {name} opened; else echo {name} refused; fi"


def test_an_rdma_only_nic_brings_its_nodes_and_no_link(rdma_only_nic: str, driver: Driver) -> None:
    plan = driver.prepare(name_at(LINKLESS_FUNCTION), "claim")
    (device,) = plan.devices
    assert (device.mode, device.host_state, device.pod_config) == (AttachMode.RDMA_ONLY, None, None)
    assert device.rdma is not None
    assert device.rdma.device == rdma_only_nic
    assert "/dev/infiniband/rdma_cm" in [node.path for node in device.rdma.char_devices]
    assert len([node for node in device.rdma.char_devices if "uverbs" in node.path]) == 1


def test_an_rdma_only_nic_takes_no_settings_of_a_link(rdma_only_nic: str, driver: Driver) -> None:
    with pytest.raises(InvalidInput, match="RDMA only"):
        driver.prepare(name_at(LINKLESS_FUNCTION), "claim", {"interface": {"mtu": 1400}})


def test_an_rdma_only_nic_is_attached_by_its_nodes_and_returns_to_the_host(
    rdma_mode: str, rdma_only_nic: str, other_pod: NamedNamespace, driver: Driver
) -> None:
    name, pod = rdma_only_nic, other_pod
    plan = driver.prepare(name_at(LINKLESS_FUNCTION), "claim")
    (attached,) = driver.attach(plan, pod)
    try:
        assert (attached.link, rdma_moved(attached)) == (None, rdma_mode == "exclusive")
        assert name in pod.tool("rdma", "dev")
        assert (Path("/sys/class/infiniband") / name).exists() is (rdma_mode == "shared")
        assert len([node for node in driver.nodes(plan) if "uverbs" in node["path"]]) == 1
    finally:
        assert driver.detach(plan) == []
    assert name in tool("rdma", "dev")


def test_two_pods_talk_rdma_over_claimed_nics_until_a_claim_is_gone(
    exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace, other_pod: NamedNamespace, driver: Driver
) -> None:
    server, client = soft_roce
    first = driver.prepare(name_at(server.nic.address), "server")
    second = driver.prepare(name_at(client.nic.address), "client")
    driver.attach(first, pod)
    driver.attach(second, other_pod)
    try:
        for inside in (pod, other_pod):
            wait_until(lambda inside=inside: "state ACTIVE" in inside.tool("rdma", "link"), "an active port")  # type: ignore[misc]
        assert ping_pong(pod, other_pod, server.address) == 0
        driver.detach(second)
        assert other_pod.tool("rdma", "dev") == ""
        assert ping_pong(pod, other_pod, server.address) != 0
    finally:
        driver.detach(second)
        driver.detach(first)


def ping_pong(server: NamedNamespace, client: NamedNamespace, address: str) -> int:
    """The client's exit code of three RDMA round trips with `rping`."""
    command = ["timeout", "30", "rping", "-a", address, "-C", "3"]
    inside = ["ip", "netns", "exec"]
    listening = subprocess.Popen([*inside, server.name, *command, "-s"], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: "LISTEN" in server.tool("rdma", "resource", "show", "cm_id"), "the server to listen")
        return subprocess.run([*inside, client.name, *command, "-c"], capture_output=True, check=False).returncode
    finally:
        listening.terminate()
        listening.wait()


def test_a_virtual_function_cannot_have_a_larger_mtu_than_its_physical_one(
    virtual_functions: list[str], driver: Driver
) -> None:
    with pytest.raises(InvalidInput, match=f"more than the 1500 of its physical function {netdev_of(SRIOV_NODE1)}"):
        driver.prepare(name_at(virtual_functions[0]), "claim", {"interface": {"mtu": 9000}})


def test_a_virtual_function_goes_into_a_pod_and_returns_to_the_host(
    virtual_functions: list[str], pod: NamedNamespace, driver: Driver
) -> None:
    plan = driver.prepare(
        name_at(virtual_functions[0]), "claim", {"interface": {"name": "vf0", "addresses": ["10.9.0.1/24"]}}
    )
    driver.attach(plan, pod)
    try:
        assert "10.9.0.1/24" in pod.tool("ip", "-br", "address", "show", "vf0")
    finally:
        assert driver.detach(plan) == []
    (link,) = (folder.name for folder in Path(f"/sys/bus/pci/devices/{virtual_functions[0]}/net").iterdir())
    assert link == plan.devices[0].host_state.link.name  # type: ignore[union-attr]
