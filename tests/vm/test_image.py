"""The driver as its image holds it, with that image's Python and libraries: a pod's life on a real NIC."""

from pathlib import Path

from dranet.testing.waiting import until
from tests.vm.machine import E1000E_NODE0
from tests.vm.node import GuestNode, guest_node
from tests.vm.parts import name_at
from tests.vm.product import ROOT
from tests.vm.world import netdev_of

MOUNTS = ("/dev", "/proc", "/run", "/sys", "/tmp")
"""What a node lends to the driver's container."""


class ImageNode(GuestNode):
    """A guest whose driver runs with the image as its root."""

    def command(self) -> list[str]:
        words = super().command()
        lent = " && ".join(f"mount --rbind {path} {ROOT}{path}" for path in MOUNTS)
        enter = ["unshare", "--mount", "sh", "-c", f'{lent} && exec chroot {ROOT} "$0" "$@"', "/dranet"]
        return [*enter, *words[words.index("run") :]]


async def test_a_pod_has_its_nic_by_the_driver_of_the_image() -> None:
    name, before = name_at(E1000E_NODE0.address), netdev_of(E1000E_NODE0)
    async with guest_node(kind=ImageNode) as node:
        await until(lambda: name in node.published(), "the NIC to be published")
        assert node.driver is not None
        assert Path(f"/proc/{node.driver.pid}/root").readlink() == ROOT
        pod = node.claim(name, "job", {"interface": {"name": "net0", "addresses": ["10.9.0.1/24"]}})
        await node.start_pod(pod)
        assert pod.netns is not None
        await until(lambda: ("NetworkReady", "True") in node.conditions("job"), "the claim's status")
        await node.stop_pod(pod)
        assert netdev_of(E1000E_NODE0) == before
