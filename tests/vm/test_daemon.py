"""The whole daemon on the machine's real NICs: a pod's life with RDMA, taints, and a NIC that is pulled out."""

from pathlib import Path

from dranet.linux import rdma
from dranet.testing.waiting import until, wait_until
from tests.kernel_tools import char_device
from tests.vm.machine import E1000E_NODE0, VIRTIO_NODE0
from tests.vm.node import GuestNode, guest_node
from tests.vm.parts import name_at
from tests.vm.world import SoftRoce, cable_pulled, has_link, netdev_of, tool

Pair = tuple[SoftRoce, SoftRoce]


def rdma_devices(namespace_fd: int | None) -> list[str]:
    with rdma.open_socket(namespace_fd) as socket:  # type: ignore[union-attr]
        return [device.name for device in rdma.list_devices(socket)]


def taints(node: GuestNode, device: str) -> list[str]:
    return [str(taint["key"]) for taint in node.published().get(device, {}).get("taints", [])]


async def test_a_pod_gets_link_rdma_device_and_nodes_and_all_return_to_the_host(
    exclusive_mode: None, soft_roce: Pair
) -> None:
    made = soft_roce[1]
    async with guest_node() as node:
        await until(lambda: name_at(made.nic.address) in node.published(), "the NIC to be published")
        pod = node.claim(name_at(made.nic.address), "job", {"interface": {"name": "rdma0"}})
        await node.start_pod(pod)
        assert pod.netns is not None
        assert (rdma_devices(None), rdma_devices(pod.netns.fd)) == (["rxe0"], ["rxe1"])
        view = await node.create_container(pod)
        names = sorted(Path(path).name for path in view.devices)
        assert "rdma_cm" in names
        assert [name for name in names if name.startswith("uverbs")] == [verbs_of(made, pod.netns.fd)]
        await until(lambda: ("RDMALinkReady", "True") in node.conditions("job"), "the claim's status")
        await node.stop_pod(pod)
        assert rdma_devices(None) == ["rxe0", "rxe1"]
        assert netdev_of(made.nic) == made.netdev


async def test_a_lost_store_is_rebuilt_with_the_rdma_side_of_a_running_pod(
    exclusive_mode: None, soft_roce: Pair
) -> None:
    made = soft_roce[1]
    async with guest_node() as node:
        await until(lambda: name_at(made.nic.address) in node.published(), "the NIC to be published")
        pod = node.claim(name_at(made.nic.address), "job", {"interface": {"name": "rdma0"}})
        await node.start_pod(pod)
        before = await node.create_container(pod)
        assert node.driver is not None
        await node.driver.kill()
        for path in (*node.folder.glob("dranet.sqlite*"), *node.folder.glob("cdi/*")):
            path.unlink()
        await node.start_driver()
        await until(lambda: list(node.folder.glob("cdi/*.json")), "the readiness gate to be written again")
        assert await node.create_container(pod) == before
        await node.stop_pod(pod)
        assert rdma_devices(None) == ["rxe0", "rxe1"]
        assert netdev_of(made.nic) == made.netdev


def verbs_of(made: SoftRoce, namespace_fd: int) -> str:
    with rdma.open_socket(namespace_fd) as socket:  # type: ignore[union-attr]
        device = rdma.get_device(socket, made.device)
        assert device is not None
        found = char_device(socket, "uverbs", device.index)
    assert found is not None
    return found.name


async def test_a_nic_that_loses_its_carrier_is_tainted_until_it_is_back() -> None:
    name = name_at(E1000E_NODE0.address)
    tool("ip", "link", "set", netdev_of(E1000E_NODE0), "up")
    try:
        async with guest_node() as node:
            await until(lambda: name in node.published() and not taints(node, name), "a NIC without taint")
            with cable_pulled(E1000E_NODE0):
                await until(lambda: taints(node, name), "the taint")
            await until(lambda: not taints(node, name), "the taint to go")
    finally:
        tool("ip", "link", "set", netdev_of(E1000E_NODE0), "down")


async def test_a_nic_that_is_pulled_out_leaves_the_slices_unless_a_claim_holds_it() -> None:
    name, folder = name_at(VIRTIO_NODE0.address), Path("/sys/bus/pci/devices") / VIRTIO_NODE0.address
    async with guest_node() as node:
        await until(lambda: name in node.published(), "the NIC to be published")
        try:
            (folder / "remove").write_text("1")
            await until(lambda: name not in node.published(), "the NIC to leave the slices")
            Path("/sys/bus/pci/rescan").write_text("1")
            await until(lambda: name in node.published(), "the NIC to come back")
            await node.prepare(node.claim(name, "job"))
            (folder / "remove").write_text("1")
            await until(lambda: taints(node, name), "the claimed NIC to be tainted")
        finally:
            Path("/sys/bus/pci/rescan").write_text("1")
            wait_until(lambda: has_link(VIRTIO_NODE0.address), "the NIC to come back")


async def test_a_nic_pulled_out_of_a_running_pod_can_be_given_again_once_it_is_back() -> None:
    name, folder = name_at(VIRTIO_NODE0.address), Path("/sys/bus/pci/devices") / VIRTIO_NODE0.address
    async with guest_node() as node:
        await until(lambda: name in node.published(), "the NIC to be published")
        pod = node.claim(name, "job", {"interface": {"name": "net0"}})
        await node.start_pod(pod)
        try:
            (folder / "remove").write_text("1")
            await until(lambda: taints(node, name), "the NIC in the pod to be tainted")
            await node.stop_pod(pod)
            await until(lambda: name not in node.published(), "the NIC to leave the slices with its pod")
        finally:
            Path("/sys/bus/pci/rescan").write_text("1")
            wait_until(lambda: has_link(VIRTIO_NODE0.address), "the NIC to come back")
        await until(lambda: name in node.published() and not taints(node, name), "the NIC to be offered again")
        again = node.claim(name, "next", {"interface": {"name": "net0"}})
        await node.start_pod(again)
        await node.stop_pod(again)
        assert has_link(VIRTIO_NODE0.address)
