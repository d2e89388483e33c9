"""Children of an emulated NIC and of bonds: one with a backup, and one by LACP with a partner."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dranet.core.errors import InvalidInput
from dranet.core.names import link_device_name
from dranet.linux.namespaces import Namespace
from dranet.testing.waiting import wait_until
from tests import pictures
from tests.node.driver.test_child_interfaces import datagram
from tests.vm.machine import E1000E_NODE0
from tests.vm.parts import Driver, name_at
from tests.vm.world import NamedNamespace, named_namespace, netdev_of, tool

KINDS = ("IPVLAN", "Macvlan")
MODES = ("active-backup", "802.3ad")
PARTNER = "10.77.0.1"


def asked(kind: str, number: int) -> dict[str, object]:
    return {"interface": {"type": kind, "name": "net1", "addresses": [f"10.77.0.{10 + number}/24"]}}


def picture(name: str) -> pictures.Picture:
    with Namespace.current() as here:
        return pictures.take(here.fd, name)


@contextmanager
def bond(mode: str) -> Iterator[NamedNamespace]:
    """`bond9` of two links; at their other ends a bond of the same mode, as a switch would have it."""
    options = ("type", "bond", "mode", mode, "miimon", "100", *(("lacp_rate", "fast") if mode == "802.3ad" else ()))
    with named_namespace("partner") as partner:
        tool("ip", "link", "add", "bond9", *options)
        partner.tool("ip", "link", "add", "bond9", *options)
        try:
            for number in range(2):
                tool("ip", "link", "add", f"leg{number}", "type", "veth", "peer", f"leg{number}", "netns", "partner")
                tool("ip", "link", "set", f"leg{number}", "master", "bond9")
                partner.tool("ip", "link", "set", f"leg{number}", "master", "bond9")
            partner.tool("ip", "address", "add", f"{PARTNER}/24", "dev", "bond9")
            partner.tool("ip", "link", "set", "bond9", "up")
            tool("ip", "link", "set", "bond9", "up")
            wait_until(is_whole, "both links of the bond")
            if mode == "802.3ad":
                wait_until(has_partner, "LACP to find the partner")
            yield partner
        finally:
            tool("ip", "link", "delete", "bond9")
            for number in range(2):
                tool("ip", "link", "delete", f"leg{number}")


def is_whole() -> bool:
    """Whether the bond has its carrier, and both of its links."""
    said = [Path(f"/sys/class/net/leg{number}/bonding_slave/mii_status").read_text().strip() for number in range(2)]
    return said == ["up", "up"] and Path("/sys/class/net/bond9/operstate").read_text().strip() == "up"


def has_partner() -> bool:
    """Whether both links carry packets together, by what the bond itself says."""
    return Path("/sys/class/net/bond9/bonding/ad_num_ports").read_text().strip() == "2"


def has_carrier(where: NamedNamespace) -> bool:
    """A NIC that was raised for its children finds its carrier a moment later, and they have it from there."""
    return "LOWER_UP" in where.tool("ip", "link", "show", "net1")


@pytest.mark.parametrize("kind", KINDS)
def test_two_pods_have_children_of_an_emulated_nic_and_it_stays_as_it_was(
    kind: str, driver: Driver, pod: NamedNamespace, other_pod: NamedNamespace
) -> None:
    nic = netdev_of(E1000E_NODE0)
    before = picture(nic)
    pods = [pod, other_pod]
    plans = [driver.prepare(name_at(E1000E_NODE0.address), f"c{number}", asked(kind, number)) for number in range(2)]
    for plan, where in zip(plans, pods, strict=True):
        driver.attach(plan, where)
        assert netdev_of(E1000E_NODE0) == nic
    wait_until(lambda: all(map(has_carrier, pods)), "the carrier of both children")
    assert datagram(pod.opened, other_pod.opened, "10.77.0.11") == "10.77.0.10"
    for plan, where in zip(plans, pods, strict=True):
        assert driver.detach(plan) == []
        driver.lifecycle.release(plan)
        assert "net1" not in where.tool("ip", "-br", "link")
    assert picture(nic) == before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_speaks_through_a_bond_by_a_child_of_it(
    kind: str, mode: str, driver: Driver, pod: NamedNamespace
) -> None:
    with bond(mode) as partner:
        before = picture("bond9")
        plan = driver.prepare_all({link_device_name("bond9"): asked(kind, 0)}, offer=("bond9",))
        driver.attach(plan, pod)
        wait_until(lambda: has_carrier(pod), "the child's carrier")
        assert datagram(pod.opened, partner.opened, PARTNER) == "10.77.0.10"
        assert driver.detach(plan) == []
        driver.lifecycle.release(plan)
        assert picture("bond9") == before


def test_a_bond_itself_cannot_be_had_and_that_is_said(driver: Driver) -> None:
    with bond("active-backup"), pytest.raises(InvalidInput, match="request a child of it"):
        driver.prepare_all({link_device_name("bond9"): {}}, offer=("bond9",))
