"""Plans come from the machine as it is at that moment, not as it was when the driver started."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from dranet.driver.claims.allotment import Allotted
from dranet.driver.claims.planner import Wish
from dranet.inventory.snapshot import Netdev, NodeDevice, Place
from dranet.model.device import Device
from dranet.model.netconfig import NetworkConfig
from dranet.sandbox.sysfs_tree import write_sysfs
from dranet.topology.shape import load_shape
from tests.driver.conftest import TestNode


def test_an_rdma_device_that_came_after_the_driver_brings_its_character_devices(
    new_node: Callable[[], TestNode],
) -> None:
    node = new_node()
    found = NodeDevice(device=Device(name="ib0"), netdev=Netdev(place=Place.NONE), rdma_device="mlx5_0")
    wish = Wish(Allotted("nic", "n", "ib0", None, False), found, NetworkConfig())
    (before,) = node.planner.plan([wish])
    assert before.rdma is not None
    assert before.rdma.char_devices == ()
    write_sysfs(load_shape("nd-gb300-v6"), node.folder)
    folder = node.folder / "dev/infiniband"
    folder.mkdir(parents=True)
    os.mknod(folder / "uverbs0", stat.S_IFCHR | 0o666, os.makedev(0, 0))
    (after,) = node.planner.plan([wish])
    assert after.rdma is not None
    assert [entry.path for entry in after.rdma.char_devices] == ["/dev/infiniband/uverbs0"]
