"""Children of a card: born in the pod's namespace; the card stays as it is. macvlan here, ipvlan in the VM."""

from __future__ import annotations

import pytest

from dranet.kernel import links, virtual_links
from tests.kernel.conftest import create_or_skip


@pytest.mark.parametrize("mode", virtual_links.MACVLAN_MODES)
def test_a_macvlan_is_born_in_another_namespace_with_mode_mac_and_mtu(make_namespace, make_route, route, veth, mode):
    pod = make_namespace()
    mac = None if mode == "passthru" else "02:00:00:00:00:05"
    message = virtual_links.create_macvlan("pod0", veth.index, mode, mac=mac, mtu=1400, namespace_fd=pod.fd)
    create_or_skip(route, message)
    child = links.get_link(make_route(pod), "pod0")
    assert (child.kind, child.mtu, child.parent_index) == ("macvlan", 1400, veth.index)
    assert child.mac == (mac or veth.mac)
    assert virtual_links.macvlan_mode(child.info) == mode
    assert links.get_link(route, "pod0") is None


@pytest.mark.parametrize("mode", virtual_links.IPVLAN_MODES)
@pytest.mark.parametrize("flag", virtual_links.IPVLAN_FLAGS)
def test_an_ipvlan_is_born_in_another_namespace_with_mode_and_flag(make_namespace, make_route, route, veth, mode, flag):
    pod = make_namespace()
    create_or_skip(route, virtual_links.create_ipvlan("pod0", veth.index, mode, flag, namespace_fd=pod.fd))
    child = links.get_link(make_route(pod), "pod0")
    assert (child.kind, child.mac, child.parent_index) == ("ipvlan", veth.mac, veth.index)
    assert virtual_links.ipvlan_mode(child.info) == (mode, flag)


def test_a_child_is_gone_with_its_namespace_and_the_card_is_as_before(make_namespace, make_route, route, veth):
    before = links.get_link(route, "v0")
    pod = make_namespace()
    create_or_skip(route, virtual_links.create_macvlan("pod0", veth.index, "bridge", namespace_fd=pod.fd))
    pod.close()
    other = make_namespace()
    create_or_skip(route, virtual_links.create_macvlan("pod0", veth.index, "bridge", namespace_fd=other.fd))
    make_route(other).request(links.delete(links.get_link(make_route(other), "pod0").index))
    assert links.get_link(route, "v0") == before
