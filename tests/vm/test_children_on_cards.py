"""Children of an emulated card and of bonds: one with a backup, and one by LACP with a partner."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dranet.driver.claims.allotment import Allotted
from dranet.driver.claims.planner import Planner, Wish
from dranet.driver.records.plan import ClaimPlan, PodRef
from dranet.kernel.namespaces import Namespace
from dranet.kernel.sysfs import Sysfs
from dranet.model.errors import InvalidInput
from dranet.model.names import link_device_name
from dranet.model.netconfig_parse import parse
from tests import pictures
from tests.driver.test_children import datagram
from tests.vm.machine import E1000E_NODE0
from tests.vm.parts import Driver, look, name_at
from tests.vm.world import NamedNamespace, named_namespace, netdev_of, tool, wait_for

KINDS = ("IPVLAN", "Macvlan")
MODES = ("active-backup", "802.3ad")
PARTNER = "10.77.0.1"


def asked(kind: str, number: int) -> dict[str, object]:
    return {"interface": {"type": kind, "name": "net1", "addresses": [f"10.77.0.{10 + number}/24"]}}


def picture(name: str) -> pictures.Picture:
    with Namespace.current() as here:
        return pictures.take(here.fd, name)


def plan_of(driver: Driver, device: str, name: str, config: dict[str, object], offer: tuple[str, ...]) -> ClaimPlan:
    snapshot = look(offer=offer)
    found = snapshot.find(device)
    assert found is not None, f"{device} is not offered: {snapshot.skipped}"
    wish = Wish(Allotted("nic", "node", device, None, False), found, parse(config))
    devices = tuple(Planner(driver.host, Sysfs()).plan([wish], others=driver.store.devices_beside(name)))
    user = PodRef(uid=f"pod-{name}", name=name, namespace="default")
    plan = ClaimPlan(uid=name, namespace="default", name=name, pod=user, devices=devices, boot=driver.host.boot)
    driver.store.put(plan)
    driver.cards.ready(plan)
    return plan


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
            wait_for(is_whole, "both links of the bond")
            if mode == "802.3ad":
                wait_for(has_partner, "LACP to find the partner")
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
    """A card that was raised for its children finds its carrier a moment later, and they have it from there."""
    return "LOWER_UP" in where.tool("ip", "link", "show", "net1")


@pytest.mark.parametrize("kind", KINDS)
def test_two_pods_have_children_of_an_emulated_card_and_it_stays_as_it_was(
    kind: str, driver: Driver, pod: NamedNamespace, other_pod: NamedNamespace
) -> None:
    card = netdev_of(E1000E_NODE0)
    before = picture(card)
    pods = [pod, other_pod]
    plans = [
        plan_of(driver, name_at(E1000E_NODE0.address), f"c{number}", asked(kind, number), ()) for number in range(2)
    ]
    for plan, where in zip(plans, pods, strict=True):
        driver.attach(plan, where)
        assert netdev_of(E1000E_NODE0) == card
    wait_for(lambda: all(map(has_carrier, pods)), "the carrier of both children")
    assert datagram(pod.opened, other_pod.opened, "10.77.0.11") == "10.77.0.10"
    for plan, where in zip(plans, pods, strict=True):
        assert driver.bring_home(plan) == []
        driver.cards.forget(plan)
        assert "net1" not in where.tool("ip", "-br", "link")
    assert picture(card) == before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_speaks_through_a_bond_by_a_child_of_it(
    kind: str, mode: str, driver: Driver, pod: NamedNamespace
) -> None:
    with bond(mode) as partner:
        before = picture("bond9")
        plan = plan_of(driver, link_device_name("bond9"), "c", asked(kind, 0), ("bond9",))
        driver.attach(plan, pod)
        wait_for(lambda: has_carrier(pod), "the child's carrier")
        assert datagram(pod.opened, partner.opened, PARTNER) == "10.77.0.10"
        assert driver.bring_home(plan) == []
        driver.cards.forget(plan)
        assert picture("bond9") == before


def test_a_bond_itself_cannot_be_had_and_that_is_said(driver: Driver) -> None:
    with bond("active-backup"), pytest.raises(InvalidInput, match="ask for a child of it"):
        plan_of(driver, link_device_name("bond9"), "c", {}, ("bond9",))
