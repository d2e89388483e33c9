"""The guest is the machine that was asked for."""

import os
from pathlib import Path


def test_two_numa_nodes_are_online() -> None:
    assert Path("/sys/devices/system/node/online").read_text().strip() == "0-1"


def test_rdma_character_device_exists() -> None:
    assert os.path.exists("/dev/infiniband/rdma_cm")
