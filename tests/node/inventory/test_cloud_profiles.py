"""Clouds that make children of NICs (OKE's RDMA NICs, Alibaba's eFLO bonds), and what CoreWeave writes on Nodes.

Metadata comes from a server that answers as the real one; addresses and routes from a network namespace.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dranet.core.errors import InvalidInput
from dranet.core.netconfig_parse import parse
from dranet.linux.namespaces import Namespace
from dranet.node.inventory import Inventory
from dranet.node.inventory.cloud import CloudContext, CloudError, Identity, ProfileProvider, alibaba, coreweave, oke
from dranet.node.inventory.cloud.detection import check_options
from dranet.node.inventory.cloud.node_context import LiveNetwork
from dranet.node.inventory.cloud.provider import ParentProvider
from tests.node.inventory.conftest import Machine, Server, World

CLAIM = {"metadata": {"namespace": "ml", "name": "nics", "uid": "claim-1"}}
OTHER = {"metadata": {"namespace": "ml", "name": "more", "uid": "claim-2"}}


def js(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def ip(netns: Namespace, *commands: str) -> None:
    for command in commands:
        where = ["nsenter", f"--net=/proc/self/fd/{netns.fd}"]
        subprocess.run([*where, *command.split()], check=True, pass_fds=[netns.fd], capture_output=True)


# OKE ------------------------------------------------------------------------------------------------------------

OKE = {
    "/opc/v2/instance/": js({"shape": "BM.GPU.H100.8"}),
    "/opc/v2/host/": js({"rackId": "r", "rdmaFabricData": {"ipv6": False, "planes": 1}}),
    "/opc/v2/vnics/": js(
        [{"privateIp": "10.0.13.19", "subnetCidrBlock": "10.0.0.0/19", "macAddr": "02:00:17:00:00:01"}]
    ),
}
RDMA15 = Identity(device="pci-0000-0c-00-0", interface="rdma15", link_layer="ether", rdma="mlx5_15")
ASKED = {"profile": "oke-rdma", "interface": {"type": "IPVLAN"}}


@pytest.fixture
def oke_node(netns: Namespace) -> Namespace:
    """NIC 15 as Oracle's agent leaves it: block 15 of 8192 addresses, place 13.19 in it."""
    ip(
        netns,
        "ip link add rdma15 type veth peer name prdma15",
        "ip link add eth9 type veth peer name peth9",
        "ip link set rdma15 up",
        "ip link set prdma15 up",
        "ip addr add 10.225.237.19/12 dev rdma15",
        "sysctl -qw net.ipv4.conf.rdma15.arp_ignore=2 net.ipv4.conf.rdma15.arp_announce=1",
    )
    return netns


async def on_oke(server: Server, netns: Namespace, answers: Mapping[str, Any] = OKE, **options: str) -> Any:
    server.answer(answers)
    said = {"oke": {name.replace("_", "-"): value for name, value in options.items()}}
    found = await oke.detect(
        CloudContext(metadata_url=server.url, network=LiveNetwork(namespace_fd=netns.fd), options=said)
    )
    assert isinstance(found, ProfileProvider)
    return found


async def test_oke_tells_shape_fabric_and_range(server: Server, netns: Namespace) -> None:
    provider = await on_oke(server, netns, rdma_child_ipv4_cidr="10.192.0.5/14")
    assert provider.attributes(RDMA15) == {
        "oke.dra.net/rackId": "r",
        "oke.dra.net/shape": "BM.GPU.H100.8",
        "oke.dra.net/rdmaFabricIpv6": False,
        "oke.dra.net/rdmaFabricPlanes": 1,
        "oke.dra.net/rdmaChildIpv4Cidr": "10.192.0.0/14",
    }


@pytest.mark.parametrize("half", [{"ipv6": True}, {"planes": 4}, {"ipv6": "yes", "planes": 4}, []])
async def test_oke_half_said_fabric_data_count_as_none(server: Server, netns: Namespace, half: Any) -> None:
    provider = await on_oke(server, netns, {**OKE, "/opc/v2/host/": js({"rackId": "r", "rdmaFabricData": half})})
    assert not [name for name in provider.attributes(RDMA15) if "abric" in name]


async def test_oke_requests_a_child_of_an_rdma_nic_by_its_name_or_its_address(
    server: Server, oke_node: Namespace
) -> None:
    provider = await on_oke(server, oke_node)
    assert await provider.config(RDMA15) == ASKED
    ip(oke_node, "ip addr add 10.224.13.19/12 dev eth9")
    assert await provider.config(Identity("x", interface="eth9", link_layer="ether", rdma="mlx5_0")) == ASKED


@pytest.mark.parametrize(
    "nic",
    [
        Identity("x", interface="eth9", link_layer="ether", rdma="mlx5_0"),
        Identity("x", interface="lo", link_layer="loopback"),
        Identity("x"),
    ],
)
async def test_oke_has_no_opinion_about_other_nics(server: Server, oke_node: Namespace, nic: Identity) -> None:
    assert await (await on_oke(server, oke_node)).config(nic) is None


async def test_oke_leaves_nics_of_an_ipv6_fabric_alone(server: Server, oke_node: Namespace) -> None:
    answers = {**OKE, "/opc/v2/host/": js({"rdmaFabricData": {"ipv6": True, "planes": 4}})}
    provider = await on_oke(server, oke_node, answers)
    assert await provider.config(RDMA15) is None
    assert "oke.dra.net/rdmaChildIpv4Cidr" not in provider.attributes(RDMA15)


async def test_oke_gives_a_child_the_same_place_in_the_range_with_a_table_of_its_own(
    server: Server, oke_node: Namespace
) -> None:
    provider = await on_oke(server, oke_node)
    answer = await provider.get_profile(RDMA15, CLAIM, ASKED)
    assert answer == {
        "interface": {"addresses": ["10.209.237.19/12"], "arpIgnore": 2, "arpAnnounce": 1},
        "routes": [{"destination": "10.208.0.0/12", "scope": 253, "source": "10.209.237.19", "table": 115}],
        "rules": [{"source": "10.209.237.19/32", "table": 115, "priority": 32000}],
    }
    assert parse(answer).routes
    assert await provider.get_profile(RDMA15, CLAIM, ASKED) == answer


@pytest.mark.parametrize(
    "own",
    [{"routes": [{"destination": "10.0.0.0/8", "scope": 253}]}, {"rules": [{"table": 7}]}, {"vrf": {"name": "v"}}],
)
async def test_oke_a_claim_with_its_own_routing_keeps_it(server: Server, oke_node: Namespace, own: Any) -> None:
    link = {"type": "IPVLAN", **({"vrf": own["vrf"]} if "vrf" in own else {})}
    asked = {**ASKED, "interface": link, **{k: v for k, v in own.items() if k != "vrf"}}
    answer = await (await on_oke(server, oke_node)).get_profile(RDMA15, CLAIM, asked)
    assert set(answer) == {"interface"}


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ({"type": "Passthrough"}, "supports interface.type IPVLAN, not Passthrough"),
        ({"type": "IPVLAN", "dhcp": True}, "remove interface.addressing"),
        ({"type": "IPVLAN", "addressing": "Unnumbered"}, "remove interface.addressing"),
        ({"type": "IPVLAN", "addresses": ["10.208.0.1/12"]}, "remove interface.addresses"),
    ],
)
async def test_oke_refuses_another_way_to_an_address(server: Server, oke_node: Namespace, link: Any, why: str) -> None:
    with pytest.raises(CloudError, match=why):
        await (await on_oke(server, oke_node)).get_profile(RDMA15, CLAIM, {**ASKED, "interface": link})


async def test_oke_says_what_is_missing_while_the_agent_has_not_given_the_address(
    server: Server, netns: Namespace
) -> None:
    ip(
        netns,
        "ip link add rdma15 type veth peer name prdma15",
    )
    with pytest.raises(CloudError, match=r"rdma15 has no address in 10\.224\.0\.0/12 yet"):
        await (await on_oke(server, netns)).get_profile(RDMA15, CLAIM, ASKED)


async def test_oke_says_what_is_missing_while_the_metadata_lack_the_subnet(server: Server, oke_node: Namespace) -> None:
    provider = await on_oke(server, oke_node, {**OKE, "/opc/v2/vnics/": (404, "")})
    with pytest.raises(CloudError, match="opc/v2/vnics has not returned it"):
        await provider.get_profile(RDMA15, CLAIM, ASKED)
    server.answer(OKE)
    await provider.refresh(())
    assert await provider.get_profile(RDMA15, CLAIM, ASKED)


async def test_oke_refuses_an_address_that_is_not_where_the_agent_puts_it(server: Server, netns: Namespace) -> None:
    ip(netns, "ip link add rdma15 type veth peer name prdma15", "ip addr add 10.225.237.20/12 dev rdma15")
    with pytest.raises(CloudError, match="Oracle's agent assigns offset"):
        await (await on_oke(server, netns)).get_profile(RDMA15, CLAIM, ASKED)


async def test_oke_names_the_size_that_a_range_without_room_needs(server: Server, oke_node: Namespace) -> None:
    provider = await on_oke(server, oke_node, rdma_child_ipv4_cidr="10.208.0.0/17")
    with pytest.raises(CloudError, match="16 NICs need a /15"):
        await provider.get_profile(RDMA15, CLAIM, ASKED)


@pytest.mark.parametrize(
    ("route", "ranges", "why"),
    [
        ("10.210.0.0/16", "10.208.0.0/12", r"overlaps a route of this node to 10\.210\.0\.0/16"),
        ("", "10.0.0.0/12", r"overlaps the subnet 10\.0\.0\.0/19"),
    ],
)
async def test_oke_refuses_a_range_that_is_used_on_the_node(
    server: Server, oke_node: Namespace, route: str, ranges: str, why: str
) -> None:
    ip(
        oke_node,
        "ip link set eth9 up",
        "ip link set peth9 up",
        *([f"ip route add {route} dev eth9 table 77"] if route else []),
    )
    provider = await on_oke(server, oke_node, rdma_child_ipv4_cidr=ranges)
    with pytest.raises(CloudError, match=why):
        await provider.get_profile(RDMA15, CLAIM, ASKED)


async def test_oke_a_default_route_is_no_overlap_and_a_service_address_is(
    server: Server, oke_node: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ip(oke_node, "ip link set eth9 up", "ip link set peth9 up", "ip route add default dev eth9")
    provider = await on_oke(server, oke_node)
    assert await provider.get_profile(RDMA15, CLAIM, ASKED)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.215.0.1")
    with pytest.raises(CloudError, match=r"service address 10\.215\.0\.1"):
        await provider.get_profile(RDMA15, CLAIM, ASKED)


async def test_oke_infiniband_nics_are_not_to_be_moved(server: Server, netns: Namespace) -> None:
    provider = await on_oke(server, netns)
    nic = Identity("x", interface="ibp1", link_layer="infiniband", rdma="mlx5_0")
    config = await provider.config(nic)
    with pytest.raises(CloudError, match="--move-ib-interfaces=false"):
        await provider.get_profile(nic, CLAIM, config)


@pytest.mark.parametrize(
    ("options", "hint", "why"),
    [
        ({"oke": {"rdma-child-ipv4-cidr": "10.0.0.0/31"}}, "", "must be 8 to 30"),
        ({"oke": {"rdma-child-ipv4-cidr": "169.254.0.0/16"}}, "OKE", "is reserved"),
        ({"oke": {"rdma-child-ipv4-cidr": "10.224.0.0/16"}}, "OKE", "is reserved"),
        ({"oke": {"rdma-child-ipv4-cidr": "fd00::/16"}}, "", "oke.rdma-child-ipv4-cidr"),
        (
            {"oke": {"rdma-child": "10.0.0.0/12"}},
            "",
            "OKE has no option 'rdma-child'; known options: rdma-child-ipv4-cidr",
        ),
        ({"oke": {"rdma-child-ipv4-cidr": "10.208.0.0/12"}}, "GCE", "but the cloud provider is GCE"),
        ({"aws": {"x": "y"}}, "", "AWS has no option 'x'; known options: none"),
        ({"nope": {"x": "y"}}, "", "unknown cloud provider 'nope'"),
    ],
)
def test_options_that_nobody_takes_are_refused(options: Any, hint: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        check_options(options, hint)


def test_options_that_a_provider_takes_are_taken() -> None:
    check_options({"oke": {"rdma-child-ipv4-cidr": "10.192.0.0/14"}}, "OKE")
    check_options({}, "GCE")


# Alibaba --------------------------------------------------------------------------------------------------------

ALIBABA = {
    "/latest/api/token": "token",
    "/latest/meta-data/instance-id": "i-1",
    "/latest/meta-data/instance/instance-type": "ecs.efgpu8e",
}
BOND = Identity(device="bond1", interface="bond1", link_layer="ether")
EFLO = {"profile": "alibaba-eflo-subinterface", "interface": {"type": "IPVLAN"}}


@pytest.fixture
def eflo_node(machine: Machine, netns: Namespace) -> LiveNetwork:
    """A bond as sysfs tells it; what stands for it in the namespace is a veth, for not every kernel makes bonds."""
    machine.write("class/net/bond1/bonding/mode", "802.3ad 4")
    ip(
        netns,
        "ip link add bond1 type veth peer name pbond1",
        "ip link set bond1 up",
        "ip link set pbond1 up",
        "ip addr add 2408:4001:f:a::5/64 dev bond1 nodad",
        "ip -6 route add 2408:4001::/32 via 2408:4001:f:a::1 dev bond1",
        "ip -6 route add 2408:4009::/32 via 2408:4001:f:a::1 dev bond1",
    )
    return LiveNetwork(str(machine.root), netns.fd)


async def on_alibaba(server: Server, network: LiveNetwork, lent: Any = tuple) -> Any:
    server.answer(ALIBABA)
    found = await alibaba.detect(CloudContext(metadata_url=server.url, network=network, lent=lent))
    assert isinstance(found, ProfileProvider) and isinstance(found, ParentProvider)
    return found


async def test_alibaba_requests_a_child_of_an_eflo_bond(server: Server, eflo_node: LiveNetwork) -> None:
    provider = await on_alibaba(server, eflo_node)
    assert provider.offers("bond1")
    assert await provider.config(BOND) == EFLO


@pytest.mark.parametrize("change", ["another mode", "no IPv6", "too small"])
async def test_alibaba_other_bonds_are_none_of_its_business(
    server: Server, eflo_node: LiveNetwork, machine: Machine, netns: Namespace, change: str
) -> None:
    if change == "another mode":
        machine.write("class/net/bond1/bonding/mode", "active-backup 1")
    else:
        ip(netns, "ip -6 addr flush dev bond1 scope global")
    if change == "too small":
        ip(netns, "ip addr add 2408:4001:f:a::5/125 dev bond1 nodad")
    provider = await on_alibaba(server, eflo_node)
    assert not provider.offers("bond1")
    assert await provider.config(BOND) is None


async def test_alibaba_gives_an_address_that_is_set_aside_and_the_bonds_way_out(
    server: Server, eflo_node: LiveNetwork
) -> None:
    answer = await (await on_alibaba(server, eflo_node)).get_profile(BOND, CLAIM, EFLO)
    assert answer["interface"] == {"addresses": ["2408:4001:f:a:0:f:0:c00/128"]}
    (table,) = {route["table"] for route in answer["routes"]}
    assert 1000 <= table < 2000
    assert answer["rules"] == [{"source": "2408:4001:f:a:0:f:0:c00/128", "table": table, "priority": 32000}]
    ways = [(route["destination"], route.get("gateway", "")) for route in answer["routes"]]
    assert set(ways) == {
        ("2408:4001:f:a::/64", ""),
        ("2408:4001:f:a::1/128", ""),
        ("2408:4001::/32", "2408:4001:f:a::1"),
        ("2408:4009::/32", "2408:4001:f:a::1"),
    }
    first_use = min(index for index, (_, gateway) in enumerate(ways) if gateway)
    assert ways.index(("2408:4001:f:a::1/128", "")) < first_use
    assert parse(answer).rules


async def test_alibaba_never_gives_an_address_twice(server: Server, eflo_node: LiveNetwork) -> None:
    lent = {"2408:4001:f:a:0:f:0:c00/128", "2408:4001:f:a:0:f:0:c02/128"}
    provider = await on_alibaba(server, eflo_node, lambda: lent)
    one = await provider.get_profile(BOND, CLAIM, EFLO)
    other = await provider.get_profile(BOND, OTHER, EFLO)
    assert one["interface"]["addresses"] == ["2408:4001:f:a:0:f:0:c01/128"]
    assert other["interface"]["addresses"] == ["2408:4001:f:a:0:f:0:c03/128"]
    assert await provider.get_profile(BOND, CLAIM, EFLO) == one
    await provider.release_profile(BOND, CLAIM, EFLO)
    assert (await provider.get_profile(BOND, {"metadata": {"uid": "third"}}, EFLO)) == one


async def test_alibaba_says_when_all_sixteen_are_taken(server: Server, eflo_node: LiveNetwork) -> None:
    provider = await on_alibaba(server, eflo_node)
    for number in range(16):
        await provider.get_profile(BOND, {"metadata": {"uid": str(number)}}, EFLO)
    with pytest.raises(CloudError, match=r"all addresses of 2408:4001:f:a:0:f:0:c00/124 are in use"):
        await provider.get_profile(BOND, CLAIM, EFLO)


async def test_alibaba_an_address_of_the_claim_is_kept_and_routed(server: Server, eflo_node: LiveNetwork) -> None:
    asked = {**EFLO, "interface": {"type": "IPVLAN", "addresses": ["2408:4001:f:a::77/128"]}}
    answer = await (await on_alibaba(server, eflo_node)).get_profile(BOND, CLAIM, asked)
    assert "interface" not in answer
    assert [rule["source"] for rule in answer["rules"]] == ["2408:4001:f:a::77/128"]


async def test_alibaba_a_claim_with_its_own_routing_gets_only_the_address(
    server: Server, eflo_node: LiveNetwork
) -> None:
    asked = {**EFLO, "rules": [{"table": 7}]}
    answer = await (await on_alibaba(server, eflo_node)).get_profile(BOND, CLAIM, asked)
    assert set(answer) == {"interface"}


async def test_a_bond_is_offered_only_where_the_cloud_makes_children_of_it(
    server: Server, eflo_node: LiveNetwork, world: World, ids: Any
) -> None:
    world.link("bond1", kind="bond")
    assert [skipped.name for skipped in Inventory(kernel=world, pci_ids=ids).scan().skipped] == ["bond1"]
    offered = Inventory(kernel=world, pci_ids=ids, cloud=await on_alibaba(server, eflo_node)).scan()
    assert [device.name for device in offered.devices] == ["bond1"]


# CoreWeave ------------------------------------------------------------------------------------------------------

LABELS = {
    "cks.coreweave.com/cluster": "prod",
    "backend.coreweave.cloud/flavor": "infiniband",
    "backend.coreweave.cloud/fabric": "IB-3",
    "backend.coreweave.cloud/superpod": "7",
    "backend.coreweave.cloud/leafgroup": "12",
    "backend.coreweave.cloud/leafgroup-name": "LG12",
    "backend.coreweave.cloud/speed.current": "400G",
    "backend.coreweave.cloud/speed.expected": "400G",
    "backend.coreweave.cloud/neighbors.expected.ibp0.device": "leaf-a",
    "backend.coreweave.cloud/neighbors.expected.mlx5_4.device": "leaf-b",
    "node.coreweave.cloud/rack": "42",
    "node.kubernetes.io/instance-type": "gd-8xh100ib-i128",
}
NODE = {
    "fabricFlavor": "infiniband",
    "fabric": "IB-3",
    "superpod": "7",
    "leafgroup": "12",
    "leafgroupName": "LG12",
    "speedCurrent": "400G",
    "speedExpected": "400G",
    "rack": "42",
    "instanceType": "gd-8xh100ib-i128",
}


async def on_coreweave(labels: Mapping[str, str]) -> Any:
    async def reported() -> Mapping[str, str]:
        return labels

    return await coreweave.detect(CloudContext(node_labels=reported, rdma_devices={"mlx5_4": "0000:8a:00.0"}))


@pytest.mark.parametrize(
    ("nic", "leaf"),
    [
        (Identity("x", interface="eth4", pci="0000:8a:00.0"), "leaf-b"),
        (Identity("x", interface="ibp0", pci="0000:01:00.0"), "leaf-a"),
        (Identity("x", interface="eth0", pci="0000:02:00.0"), None),
    ],
)
async def test_coreweave_tells_place_and_leaf_switch_from_the_nodes_labels(nic: Identity, leaf: str | None) -> None:
    provider = await on_coreweave(LABELS)
    attributes = {name.removeprefix("coreweave.dra.net/"): value for name, value in provider.attributes(nic).items()}
    assert attributes == {**NODE, **({"leafSwitch": leaf} if leaf else {})}
    assert await provider.config(nic) is None


async def test_coreweave_declares_ten_attributes() -> None:
    assert len(coreweave.CLOUD.attributes) == 10


async def test_coreweave_leaves_out_what_is_longer_than_an_attribute_may_be() -> None:
    provider = await on_coreweave({**LABELS, "node.coreweave.cloud/rack": "r" * 65})
    assert "coreweave.dra.net/rack" not in provider.attributes(Identity("x"))


@pytest.mark.parametrize("labels", [{}, {"cks.coreweave.com/cluster": ""}, {"node.coreweave.cloud/rack": "42"}])
async def test_coreweave_is_only_where_the_node_names_its_cluster(labels: dict[str, str]) -> None:
    assert await on_coreweave(labels) is None
