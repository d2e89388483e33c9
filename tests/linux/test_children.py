"""Child links: created in the pod's namespace, while the parent stays as it is. macvlan here, ipvlan in the VM."""

from __future__ import annotations

import json

import pytest

from dranet.linux import links, virtual_links
from dranet.linux.links import Link
from dranet.linux.netlink import NetlinkSocket
from tests.linux.conftest import MakeNamespace, MakeRoute, create_or_skip, run_in


@pytest.mark.parametrize("mode", virtual_links.MACVLAN_MODES)
def test_a_macvlan_is_created_in_another_namespace_with_mode_mac_and_mtu(
    make_namespace: MakeNamespace, route: NetlinkSocket, veth: Link, mode: str
) -> None:
    pod = make_namespace()
    mac = None if mode == "passthru" else "02:00:00:00:00:05"
    message = virtual_links.create_macvlan("pod0", veth.index, mode, mac=mac, mtu=1400, namespace_fd=pod.fd)
    create_or_skip(route, message)
    (child,) = json.loads(run_in(pod, "ip", "-j", "-d", "link", "show", "pod0"))
    assert (child["linkinfo"]["info_kind"], child["mtu"], child["link_index"]) == ("macvlan", 1400, veth.index)
    assert (child["address"], child["linkinfo"]["info_data"]["mode"]) == (mac or veth.mac, mode)
    assert links.get_link(route, "pod0") is None


@pytest.mark.parametrize("mode", virtual_links.IPVLAN_MODES)
@pytest.mark.parametrize("flag", virtual_links.IPVLAN_FLAGS)
def test_an_ipvlan_is_created_in_another_namespace_with_mode_and_flag(
    make_namespace: MakeNamespace, route: NetlinkSocket, veth: Link, mode: str, flag: str
) -> None:
    pod = make_namespace()
    create_or_skip(route, virtual_links.create_ipvlan("pod0", veth.index, mode, flag, namespace_fd=pod.fd))
    (child,) = json.loads(run_in(pod, "ip", "-j", "-d", "link", "show", "pod0"))
    assert (child["linkinfo"]["info_kind"], child["address"], child["link_index"]) == ("ipvlan", veth.mac, veth.index)
    assert child["linkinfo"]["info_data"] == {"mode": mode, flag: True}


def test_a_child_is_removed_with_its_namespace_and_the_parent_is_unchanged(
    make_namespace: MakeNamespace, make_route: MakeRoute, route: NetlinkSocket, veth: Link
) -> None:
    before = links.get_link(route, "v0")
    pod = make_namespace()
    create_or_skip(route, virtual_links.create_macvlan("pod0", veth.index, "bridge", namespace_fd=pod.fd))
    pod.close()
    other = make_namespace()
    create_or_skip(route, virtual_links.create_macvlan("pod0", veth.index, "bridge", namespace_fd=other.fd))
    child = links.get_link(make_route(other), "pod0")
    assert child is not None
    make_route(other).request(links.delete(child.index))
    assert links.get_link(route, "v0") == before
