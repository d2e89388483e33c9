"""Which link is a card: hardware by its PCI function and burnt-in address, whatever else a pod has changed on it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dranet.driver.parts.netdev import _recognisable
from dranet.driver.parts.netdev_adopted import recognised
from dranet.driver.parts.netdev_identity import _same, find_at_home
from dranet.driver.records.plan import Found
from dranet.kernel import links
from dranet.kernel.sysfs import Sysfs
from dranet.model import attributes
from dranet.model.attributes import IS_SRIOV_VF
from dranet.model.device import Device

from .conftest import TestNode

FUNCTION = {"parent_device": "0000:01:00.0", "permanent_mac": "02:00:00:00:00:01"}


@pytest.fixture
def card(node: TestNode) -> Found:
    found = node.plan("card0").devices[0].found
    assert found is not None
    return found


def test_a_link_of_no_function_is_not_the_card_of_one(node: TestNode, card: Found) -> None:
    """card0 has the name, the index, the kind and the MAC of the record."""
    claimed = msgspec.structs.replace(card, link=msgspec.structs.replace(card.link, **FUNCTION))
    assert find_at_home(node.host.route, [(claimed, None)]) == [None]


def test_a_link_without_burnt_in_address_is_not_a_card_with_one(node: TestNode, card: Found) -> None:
    row = msgspec.structs.replace(card.link, permanent_mac=FUNCTION["permanent_mac"])
    assert find_at_home(node.host.route, [(msgspec.structs.replace(card, link=row), None)]) == [None]


@pytest.mark.parametrize(("is_vf", "known"), [(False, False), (True, True)], ids=["card", "virtual function"])
def test_only_a_virtual_function_may_have_another_burnt_in_address_when_it_is_bound_anew(
    node: TestNode, card: Found, is_vf: bool, known: bool
) -> None:
    """No kernel has functions everywhere, so a link stands in for both sides; the virtual machine has real ones."""
    link = links.get_link(node.host.route, "card0")
    assert link is not None
    found = msgspec.structs.replace(card, link=msgspec.structs.replace(card.link, **FUNCTION))
    record = _recognisable(found, Device(name="card0", attributes={IS_SRIOV_VF: True} if is_vf else {}))
    bound_anew = msgspec.structs.replace(link, **{**FUNCTION, "permanent_mac": "02:00:00:00:00:02"}, index=4000)
    elsewhere = msgspec.structs.replace(bound_anew, parent_device="0000:01:00.1")
    assert _same(bound_anew, (record, None), [], None) is known
    assert not _same(elsewhere, (record, None), [], None)


def test_a_veth_is_found_under_any_name_mac_and_index(node: TestNode, card: Found) -> None:
    node.run("ip", "link", "set", "card0", "down")
    node.run("ip", "link", "set", "card0", "name", "other", "address", "02:00:00:00:00:55")
    moved = msgspec.structs.replace(card, link=msgspec.structs.replace(card.link, index=4000))
    (found,) = find_at_home(node.host.route, [(moved, None)])
    assert found is not None and found.name == "other"


def test_a_veth_whose_peer_is_another_is_not_the_card(node: TestNode, card: Found) -> None:
    other = links.get_link(node.host.route, "card1")
    assert other is not None
    row = msgspec.structs.replace(card.link, parent_index=4000)
    assert find_at_home(node.host.route, [(msgspec.structs.replace(card, link=row), None)]) == [None]


@pytest.mark.parametrize("parent", ["0000:01:00.0", "virtio3"])
def test_hardware_in_a_pod_is_known_by_its_function_when_the_store_is_lost(
    node: TestNode, tmp_path: Path, parent: str
) -> None:
    """A card of virtio stands on a device of its own bus, below the function."""
    (tmp_path / "bus/pci/devices/0000:01:00.0/virtio3").mkdir(parents=True)
    (tmp_path / "bus/pci/devices/0000:02:00.0/virtio4").mkdir(parents=True)
    link = links.get_link(node.host.route, "card0")
    assert link is not None
    cards = [msgspec.structs.replace(link, index=n, parent_device=d) for n, d in ((7, "virtio4"), (8, parent))]
    published = Device(name="eth0", attributes={attributes.PCI_ADDRESS: "0000:01:00.0"})
    found = recognised(cards, published, "eth0", set(), Sysfs(str(tmp_path)))
    assert found is not None and found.index == 8


def test_of_two_links_with_its_mac_none_is_the_card_unless_one_has_its_name(node: TestNode) -> None:
    link = links.get_link(node.host.route, "card0")
    assert link is not None
    alike = [msgspec.structs.replace(link, index=number, name=f"other{number}") for number in (7, 8)]
    published = Device(name="card0", attributes={attributes.TYPE: link.kind})
    assert recognised(alike, published, "card0", {link.mac}, Sysfs("/sys")) is None
    named = recognised(alike, published, "other8", {link.mac}, Sysfs("/sys"))
    assert named is not None and named.index == 8
