"""What a node's network is built of is not offered, unless the operator names it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from dranet.core.pciids import PciIds
from dranet.linux.namespaces import Namespace
from dranet.node.inventory import Inventory, InventoryOptions, LiveKernel
from tests.node.inventory.conftest import Machine, World

NIC = "0000:8a:00.0"


def reasons(snapshot: Any) -> dict[str, str]:
    return {skipped.name: skipped.reason for skipped in snapshot.skipped}


def offered(snapshot: Any) -> list[str]:
    return [device.netdev.name for device in snapshot.devices]


def looking(world: World, ids: PciIds, *names: str) -> Any:
    return Inventory(InventoryOptions(filter="", offer_interfaces=names), world, pci_ids=ids).scan()


@pytest.mark.parametrize(
    ("name", "kind", "owner"),
    [
        ("flannel.1", "vxlan", "Flannel"),
        ("cilium_vxlan", "vxlan", "Cilium"),
        ("cilium_host", "veth", "Cilium"),
        ("lxc0a1b2c", "netkit", "Cilium"),
        ("kube-ipvs0", "dummy", "kube-proxy"),
        ("nodelocaldns", "dummy", "NodeLocal DNSCache"),
        ("vxlan.calico", "vxlan", "Calico"),
        ("wireguard.cali", "wireguard", "Calico"),
        ("cali0123456789a", "veth", "Calico"),
        ("tunl0", "ipip", "IP-in-IP"),
        ("antrea-gw0", "openvswitch", ""),
        ("ovn-k8s-mp0", "openvswitch", ""),
        ("cni0", "bridge", ""),
        ("docker0", "bridge", ""),
    ],
)
def test_links_of_pod_networks_are_not_offered(world: World, ids: PciIds, name: str, kind: str, owner: str) -> None:
    world.link(name, kind=kind)
    snapshot = looking(world, ids)
    assert offered(snapshot) == []
    assert owner in reasons(snapshot)[name]


@pytest.mark.parametrize("name", ["lxc0", "eni1", "gke0", "cali0", "azv0"])
def test_a_nic_that_is_only_named_like_the_end_of_a_pod_is_offered(world: World, ids: PciIds, name: str) -> None:
    world.link(name, kind="device")
    assert offered(looking(world, ids)) == [name]


@pytest.mark.parametrize("kind", ["bond", "team"])
def test_several_nics_as_one_are_offered_for_children_by_their_name_in_full(
    world: World, ids: PciIds, kind: str
) -> None:
    world.link("x0", kind=kind)
    snapshot = looking(world, ids, "x*")
    assert offered(snapshot) == []
    assert "use --offer-interfaces=x0 to offer it for child interfaces" in reasons(snapshot)["x0"]
    assert offered(looking(world, ids, "x0")) == ["x0"]


@pytest.mark.parametrize("kind", ["bridge", "vrf", "hsr", "openvswitch"])
def test_what_the_kernel_never_moves_is_not_offered_even_when_named(world: World, ids: PciIds, kind: str) -> None:
    world.link("x0", kind=kind)
    snapshot = looking(world, ids, "x0")
    assert offered(snapshot) == []
    assert "cannot leave the host network namespace" in reasons(snapshot)["x0"]


def test_a_nic_that_the_kernel_calls_immovable_is_not_offered_under_any_name(
    machine: Machine, world: World, ids: PciIds
) -> None:
    machine.nic(NIC, netdevs=["sw0p1"], rdma="mlx5_0")
    world.link("sw0p1", immovable=True)
    snapshot = looking(world, ids, "*")
    assert snapshot.devices == ()
    assert "cannot leave" in reasons(snapshot)["sw0p1"]


@pytest.mark.parametrize("kind", ["ifb", "nlmon"])
def test_a_pseudo_device_is_offered_only_when_named(world: World, ids: PciIds, kind: str) -> None:
    world.link("x0", kind=kind)
    snapshot = looking(world, ids)
    assert offered(snapshot) == []
    assert reasons(snapshot)["x0"].startswith(
        f"it is a pseudo device of the kernel ({kind}); use --offer-interfaces=x0"
    )
    assert offered(looking(world, ids, "x?")) == ["x0"]


@pytest.mark.parametrize("kind", ["vxlan", "geneve", "gre", "ipip", "sit", "ip6tnl", "wireguard", "tun", "xfrm"])
def test_a_tunnel_is_offered_only_when_named(world: World, ids: PciIds, kind: str) -> None:
    world.link("x0", kind=kind)
    snapshot = looking(world, ids)
    assert offered(snapshot) == []
    assert reasons(snapshot)["x0"] == f"it is a tunnel of the node ({kind}); use --offer-interfaces=x0 to offer it"
    assert offered(looking(world, ids, "x?")) == ["x0"]


@pytest.mark.parametrize("kind", ["bridge", "bond", "team", "device"])
def test_a_member_is_not_offered_and_neither_is_its_nic(machine: Machine, world: World, ids: PciIds, kind: str) -> None:
    """A master of kind `device` is Hyper-V's, with the VF below it."""
    machine.nic(NIC, netdevs=["eth1"], rdma="mlx5_0")
    world.link("eth1", 2, master=3)
    world.link("top0", 3, kind=kind)
    snapshot = looking(world, ids)
    assert "eth1" not in offered(snapshot) and not any(device.pci for device in snapshot.devices)
    assert "top0" in reasons(snapshot)["eth1"]


def test_a_member_of_a_vrf_is_offered(world: World, ids: PciIds) -> None:
    world.link("eth1", 2, master=3)
    world.link("blue", 3, kind="vrf")
    assert offered(looking(world, ids)) == ["eth1"]


@pytest.mark.parametrize("kind", ["vlan", "macvlan", "ipvlan", "macsec"])
def test_what_others_are_stacked_on_is_not_offered_but_they_are(
    machine: Machine, world: World, ids: PciIds, kind: str
) -> None:
    machine.nic(NIC, netdevs=["eth1"])
    world.link("eth1", 2)
    world.link("child", 3, kind=kind, parent_index=2)
    snapshot = looking(world, ids)
    assert offered(snapshot) == ["child"]
    assert reasons(snapshot)["eth1"] == "child is stacked on it; use --offer-interfaces=eth1 to offer it"
    assert offered(looking(world, ids, NIC)) == ["eth1", "child"]


def test_a_link_whose_parent_is_in_another_namespace_stands_on_nothing_here(world: World, ids: PciIds) -> None:
    world.link("eth1", 2)
    world.link("child", 3, kind="macvlan", parent_index=2, parent_netnsid=0)
    assert offered(looking(world, ids)) == ["child", "eth1"]


def test_a_physical_function_with_virtual_ones_is_offered_only_when_named(
    machine: Machine, world: World, ids: PciIds
) -> None:
    machine.nic(NIC, netdevs=["pf0"], sriov_totalvfs=8, sriov_numvfs=2)
    path = machine.nic("0000:8a:00.1", netdevs=["vf0"])
    machine.link(f"{path}/physfn", f"devices/pci0000:10/{NIC}")
    world.link("pf0", 2)
    world.link("vf0", 3)
    snapshot = looking(world, ids)
    assert offered(snapshot) == ["vf0"]
    assert reasons(snapshot)["pf0"].startswith("it has 2 virtual functions (sriov_numvfs)")
    assert offered(looking(world, ids, "pf0")) == ["pf0", "vf0"]


def test_an_rdma_only_nic_with_virtual_functions_is_offered_for_it_is_never_taken_down(
    machine: Machine, world: World, ids: PciIds
) -> None:
    machine.rdma(machine.nic(NIC, sriov_totalvfs=8, sriov_numvfs=2), "mlx5_0", layer="InfiniBand")
    assert [device.rdma_only for device in looking(world, ids).devices] == [True]


def test_an_uplink_is_not_offered_even_when_named(world: World, ids: PciIds) -> None:
    world.link("eth0", 2)
    world.default_route(2)
    snapshot = looking(world, ids, "eth0")
    assert offered(snapshot) == []
    assert "uplink" in reasons(snapshot)["eth0"]


# On the real kernel -------------------------------------------------------------------------------------------------


def scan(netns: Namespace, machine: Machine, lines: str, names: Sequence[str] = ()) -> Any:
    enter = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{netns.fd}"]
    done = subprocess.run([*enter, "ip", "-batch", "-"], input=lines, text=True, capture_output=True)
    if "Unknown device type" in done.stderr:
        pytest.skip(f"this kernel cannot make the links of this test: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    with LiveKernel(str(machine.root), netns.fd) as kernel:
        return Inventory(InventoryOptions(filter="", offer_interfaces=tuple(names)), kernel).scan()


NICS = "link add card0 type veth peer name far0\n"


def test_a_nic_below_a_vxlan_is_not_offered(netns: Namespace, machine: Machine) -> None:
    snapshot = scan(netns, machine, NICS + "link add flannel.1 type vxlan id 1 dev card0 dstport 8472\n")
    assert offered(snapshot) == ["far0"]
    assert "flannel.1 is stacked on it" in reasons(snapshot)["card0"]
    assert "Flannel" in reasons(snapshot)["flannel.1"]


def test_a_bridge_and_its_ports_are_not_offered(netns: Namespace, machine: Machine) -> None:
    snapshot = scan(netns, machine, NICS + "link add cni0 type bridge\nlink set card0 master cni0\n", ["cni0"])
    assert offered(snapshot) == ["far0"]
    assert "cannot leave" in reasons(snapshot)["cni0"]
    assert "part of the bridge cni0" in reasons(snapshot)["card0"]


def test_a_nic_below_a_macvlan_is_not_offered_and_the_macvlan_is(netns: Namespace, machine: Machine) -> None:
    snapshot = scan(netns, machine, NICS + "link add link card0 name mac0 type macvlan mode bridge\n")
    assert offered(snapshot) == ["far0", "mac0"]
    assert "mac0 is stacked on it" in reasons(snapshot)["card0"]


def test_a_tap_of_a_virtual_machine_is_not_offered(netns: Namespace, machine: Machine) -> None:
    snapshot = scan(netns, machine, "tuntap add tap0 mode tap\n")
    assert offered(snapshot) == []
    assert "tunnel" in reasons(snapshot)["tap0"]


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ("route add default via 10.1.0.9 metric 900", "card0"),
        ("route add 128.0.0.0/1 via 10.1.0.9", "card0"),
        ("route add default via 10.1.0.9 table 100\nrule add lookup 100", "card0"),
        ("route add default via 10.1.0.9 table 100\nrule add from 10.1.0.1 lookup 100", ""),
        ("route add ::/0 via fe80::1 dev card0 proto ra", "card0"),
    ],
    ids=["standby", "half", "policy table", "the nic's own table", "advertised, no RDMA"],
)
def test_uplinks_of_the_real_kernel(netns: Namespace, machine: Machine, lines: str, left: str) -> None:
    made = NICS + "link set card0 up\nlink set far0 up\naddr add 10.1.0.1/24 dev card0\n"
    snapshot = scan(netns, machine, made + lines + "\n")
    assert (offered(snapshot) == []) == bool(left)
    assert ("uplink" in reasons(snapshot).get("card0", "")) == bool(left)
