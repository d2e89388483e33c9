"""Which link is a NIC: hardware by its PCI function and burnt-in address, whatever else a pod has changed on it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dranet.core import attributes
from dranet.core.attributes import IS_SRIOV_VF
from dranet.core.device import Device
from dranet.linux.sysfs import Sysfs
from dranet.node.features.netdev import _without_vf_mac
from dranet.node.features.netdev_search import find_on_host, identify_published, is_same_link
from dranet.node.records.plan import HostState

from .conftest import TestNode

FUNCTION = {"parent_device": "0000:01:00.0", "permanent_mac": "02:00:00:00:00:01"}


@pytest.fixture
def nic(node: TestNode) -> HostState:
    found = node.plan("nic0").devices[0].host_state
    assert found is not None
    return found


def test_link_without_pci_function_does_not_match(node: TestNode, nic: HostState) -> None:
    """nic0 has the name, the index, the kind and the MAC of the record."""
    claimed = msgspec.structs.replace(nic, link=msgspec.structs.replace(nic.link, **FUNCTION))
    assert find_on_host(node.host.route, [(claimed, None)]) == [None]


def test_link_without_permanent_mac_does_not_match(node: TestNode, nic: HostState) -> None:
    row = msgspec.structs.replace(nic.link, permanent_mac=FUNCTION["permanent_mac"])
    assert find_on_host(node.host.route, [(msgspec.structs.replace(nic, link=row), None)]) == [None]


@pytest.mark.parametrize(("is_vf", "known"), [(False, False), (True, True)], ids=["nic", "virtual function"])
def test_rebound_vf_may_have_another_permanent_mac(node: TestNode, nic: HostState, is_vf: bool, known: bool) -> None:
    """No kernel has functions everywhere, so a link stands in for both sides; the virtual machine has real ones."""
    link = node.link("nic0")
    found = msgspec.structs.replace(nic, link=msgspec.structs.replace(nic.link, **FUNCTION))
    record = _without_vf_mac(found, Device(name="nic0", attributes={IS_SRIOV_VF: True} if is_vf else {}))
    bound_anew = msgspec.structs.replace(link, **{**FUNCTION, "permanent_mac": "02:00:00:00:00:02"}, index=4000)
    elsewhere = msgspec.structs.replace(bound_anew, parent_device="0000:01:00.1")
    assert is_same_link(bound_anew, (record, None), [], None) is known
    assert not is_same_link(elsewhere, (record, None), [], None)


def test_veth_is_found_by_any_name_mac_and_index(node: TestNode, nic: HostState) -> None:
    node.run("ip", "link", "set", "nic0", "down")
    node.run("ip", "link", "set", "nic0", "name", "other", "address", "02:00:00:00:00:55")
    moved = msgspec.structs.replace(nic, link=msgspec.structs.replace(nic.link, index=4000))
    (found,) = find_on_host(node.host.route, [(moved, None)])
    assert found is not None and found.name == "other"


def test_veth_with_another_peer_does_not_match(node: TestNode, nic: HostState) -> None:
    row = msgspec.structs.replace(nic.link, parent_index=4000)
    assert find_on_host(node.host.route, [(msgspec.structs.replace(nic, link=row), None)]) == [None]


@pytest.mark.parametrize("parent", ["0000:01:00.0", "virtio3"])
def test_recovery_finds_hardware_by_pci_function(node: TestNode, tmp_path: Path, parent: str) -> None:
    """A NIC of virtio stands on a device of its own bus, below the function."""
    (tmp_path / "bus/pci/devices/0000:01:00.0/virtio3").mkdir(parents=True)
    (tmp_path / "bus/pci/devices/0000:02:00.0/virtio4").mkdir(parents=True)
    link = node.link("nic0")
    nics = [msgspec.structs.replace(link, index=n, parent_device=d) for n, d in ((7, "virtio4"), (8, parent))]
    published = Device(name="eth0", attributes={attributes.PCI_ADDRESS: "0000:01:00.0"})
    found = identify_published(nics, published, "eth0", set(), Sysfs(str(tmp_path)))
    assert found is not None and found.index == 8


def test_ambiguous_mac_needs_the_name(node: TestNode) -> None:
    link = node.link("nic0")
    similar = [msgspec.structs.replace(link, index=number, name=f"other{number}") for number in (7, 8)]
    published = Device(name="nic0", attributes={attributes.TYPE: link.kind})
    assert identify_published(similar, published, "nic0", {link.mac}, Sysfs("/sys")) is None
    named = identify_published(similar, published, "other8", {link.mac}, Sysfs("/sys"))
    assert named is not None and named.index == 8
