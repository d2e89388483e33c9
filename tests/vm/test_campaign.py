"""Malicious pods in the machine: acts that the host's kernel cannot do (bond, VRF, VLAN, ipvlan), and real NICs.

A sample; `make campaign-vm N=100 SEED=1` plays as many seeds as you like, each three times: with virtual NICs, with
real ones, and with virtual functions.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from dranet.linux.namespaces import Namespace
from tests import pictures
from tests.campaign.campaign import Totals, describe, run_sequences
from tests.campaign.node import folder_for
from tests.campaign.sequence import Sequence
from tests.vm.attacked_node import HardwareNode
from tests.vm.machine import E1000E_NODE0, E1000E_SWITCH, SRIOV_NODE1, VIRTIO_NODE0
from tests.vm.world import has_link, made_functions, netdev_of, tool

FUNCTIONS = 4
ONLY_HERE = {"bond", "vrf", "vlan", "ipvlan"}
pytestmark = pytest.mark.timeout(0)  # as long as it takes to play what was asked for; the run itself has an end


@pytest.fixture
def count(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--sequences"))


@pytest.fixture
def first(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--first-seed"))


def report(totals: Totals) -> None:
    print(totals.table())
    assert not totals.wrong, "\n".join(map(describe, totals.wrong))


def test_nothing_a_pod_does_on_this_kernel_costs_the_node_a_nic(count: int, first: int) -> None:
    totals = Totals()
    for one in run_sequences(range(first, first + count)):
        totals.add(one)
    report(totals)
    never, done = ({name for name, how in totals.acts if how == outcome} for outcome in ("impossible", "done"))
    # Once among forty sequences a VLAN was "impossible" on some link. Done on another, it says that the kernel has it.
    assert not (never - done) & ONLY_HERE


def test_nothing_a_pod_does_costs_the_node_a_real_nic(count: int, first: int) -> None:
    nics = (E1000E_NODE0, E1000E_SWITCH, SRIOV_NODE1, VIRTIO_NODE0)
    _play_on_hardware([nic.address for nic in nics], range(first, first + count))


def test_nothing_a_pod_does_costs_the_node_a_virtual_function(count: int, first: int) -> None:
    """As NICs that exist before: those that the driver makes are killed at every point in their own test."""
    physical = netdev_of(SRIOV_NODE1)
    with Namespace.current() as here:
        before = pictures.take(here.fd, physical)
        with made_functions(FUNCTIONS) as addresses:
            tool("ip", "link", "set", physical, "up")  # a virtual function has no carrier while its NIC is down
            _play_on_hardware(addresses, range(first, first + count))
            assert [has_link(address) for address in addresses] == [True] * FUNCTIONS
        tool("ip", "link", "set", physical, "down")
        assert pictures.differences(before, pictures.take(here.fd, physical)) == []


def _play_on_hardware(addresses: list[str], seeds: range) -> None:
    node = HardwareNode(addresses)
    totals = Totals()
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="adversary-") as name:
            totals.add(Sequence(seed, node, folder_for(Path(name))).run())
        node.known.clear()
    report(totals)
    node.close()
    assert totals.destroyed == 0
