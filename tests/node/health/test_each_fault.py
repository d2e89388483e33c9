"""Faults that no virtual machine can show, on a made sysfs of sixteen RoCE NICs: put in, named alone, and gone again.

The tree is what the driver's bench measures on. What real NICs in a virtual machine can show is in `tests/vm`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.health import NICS, made_devices, made_machine
from dranet.node.health.checks import Expected, FaultHistory
from dranet.node.health.node_reader import NodeReader
from dranet.node.inventory.snapshot import NetdevLocation, Snapshot

ODD = 5
FUNCTION = f"devices/pci0000:{ODD:02x}/0000:{ODD:02x}:00.0"
NET, PORT = f"{FUNCTION}/net/rdma{ODD}", f"{FUNCTION}/infiniband/mlx5_{ODD}/ports/1"


class Node:
    """A machine that is looked at by the driver's own code."""

    def __init__(self, root: Path) -> None:
        self.root, self.snapshot = root, made_machine(root, gids=4)
        self.reader, self.history = NodeReader(str(root)), FaultHistory(expected=Expected(nics=NICS))

    def write(self, path: str, value: object) -> None:
        (self.root / path).write_text(f"{value}\n")

    def look(self, times: int = 2) -> list[tuple[str, str]]:
        """What counts after so many looks."""
        for _ in range(times):
            found = self.history.add(self.reader(self.snapshot))
        return [(finding.device, str(finding.fault)) for finding in found]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    assert made.look(3) == []
    yield made
    made.reader.close()


STATES = {
    "the nic lost lanes": (f"{FUNCTION}/current_link_width", 16, 8, "pcie-degraded"),
    "the nic lost speed": (f"{FUNCTION}/current_link_speed", "32.0 GT/s PCIe", "8.0 GT/s PCIe", "pcie-degraded"),
    "another MTU": (f"{NET}/mtu", 4200, 1500, "mtu-mismatch"),
    "the GID is gone": (f"{PORT}/gids/3", f"::ffff:10.0.0.{ODD}", "0000:" * 7 + "0000", "gid-missing"),
}


@pytest.mark.parametrize("case", STATES)
def test_a_state_is_named_at_the_second_scan_and_goes_at_the_next(node: Node, case: str) -> None:
    path, good, bad, fault = STATES[case]
    if case == "the GID is gone":
        node.write(f"{PORT}/gids/0", "fe80::1")  # a table with nothing in it says nothing
    node.write(path, bad)
    assert node.look(1) == []
    assert node.look(1) == [(f"nic{ODD}", fault)]
    node.write(path, good)
    assert node.look(1) == []


def test_a_link_that_comes_back_slower_is_named(node: Node) -> None:
    node.write(f"{NET}/speed", 100000)
    node.write(f"{NET}/carrier_changes", 4)
    assert node.look() == [(f"nic{ODD}", "slow-link")]


def test_a_link_that_comes_and_goes_is_named_at_once(node: Node) -> None:
    node.write(f"{NET}/carrier_changes", 6)
    assert node.look(1) == [(f"nic{ODD}", "link-flapping")]


@pytest.mark.parametrize(
    ("counter", "growth"),
    [("counters/link_downed", 1), ("hw_counters/rnr_nak_retry_err", 1), ("counters/symbol_error", 120)],
)
def test_an_error_counter_that_grows_is_named_at_once(node: Node, counter: str, growth: int) -> None:
    node.write(f"{PORT}/{counter}", growth)
    assert node.look(1) == [(f"nic{ODD}", "port-errors")]


@pytest.mark.parametrize("counter", ["counters/symbol_error", "hw_counters/out_of_sequence", "counters/port_xmit_wait"])
def test_a_counter_that_grows_a_little_or_means_congestion_is_no_fault(node: Node, counter: str) -> None:
    node.write(f"{PORT}/{counter}", 100)
    assert node.look(3) == []


def test_a_nic_with_other_firmware_is_named_after_it_is_read_again(node: Node) -> None:
    node.write(f"{FUNCTION}/infiniband/mlx5_{ODD}/fw_ver", "28.38.1000")
    node.reader.close()
    assert node.look() == [(f"nic{ODD}", "firmware-mismatch")]


def test_a_nic_that_is_not_there_is_missed(node: Node) -> None:
    node.snapshot = Snapshot(devices=made_devices(NetdevLocation.HOST).devices[:-1])
    assert node.look() == [("", "card-missing")]
