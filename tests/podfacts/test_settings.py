"""Settings for NCCL, UCX, MPI, gloo and EFA: exact names, one GID index only where it is right, reasons otherwise."""

from __future__ import annotations

import ipaddress

import pytest

from dranet.model import netconfig
from dranet.model.gids import Gid, own_gid
from dranet.podfacts import settings as rules
from dranet.podfacts.card import EFA, INFINIBAND, ROCE, PodCard
from dranet.podfacts.settings import LIBRARIES, Settings, mpi_conf, nccl_conf


def roce(number: int, index: int | None = 3, address: str = "") -> PodCard:
    own = address or f"10.0.{number}.7"
    mapped = own if ":" in own else f"::ffff:{own}"
    prefix = 64 if ":" in own else 24
    gid = None if index is None else Gid(index, ipaddress.IPv6Address(mapped), "RoCE v2", f"net{number}")
    return PodCard(
        request="nic",
        pool="n",
        device=f"d{number}",
        interface=f"net{number}",
        addresses=[f"{own}/{prefix}"],
        rdma_device=f"mlx5_{number}",
        fabric=ROCE,
        gid=gid,
    )


def settings(libraries: list[str], cards: list[PodCard], **more: str) -> Settings:
    """Every library is told of every card."""
    return rules.settings(dict.fromkeys(libraries, cards), **more)


PLAIN = PodCard(request="nic", pool="n", device="d", interface="net1", addresses=["10.0.0.1/24"])


def test_nccl_gets_exact_names_its_bootstrap_interface_and_the_common_index():
    found = settings(["nccl"], [roce(1), roce(10)], primary="eth0")
    assert found.variables == {
        "NCCL_IB_HCA": "=mlx5_1:1,mlx5_10:1",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "NCCL_IB_GID_INDEX": "3",
    }


def test_no_index_is_given_where_the_cards_differ_and_the_reason_is():
    found = settings(["nccl"], [roce(1, 3), roce(2, 5)])
    assert "NCCL_IB_GID_INDEX" not in found.variables
    assert "mlx5_1 3, mlx5_2 5" in found.left_alone["NCCL_IB_GID_INDEX"]


def test_no_index_is_given_where_one_was_not_seen():
    found = settings(["nccl"], [roce(1, 3), roce(2, None)])
    assert "NCCL_IB_GID_INDEX" not in found.variables
    assert "mlx5_2" in found.left_alone["NCCL_IB_GID_INDEX"]


def test_infiniband_needs_no_index():
    card = PodCard(request="r", pool="n", device="d", rdma_device="mlx5_ib0", fabric=INFINIBAND)
    assert settings(["nccl"], [card], primary="eth0").variables == {
        "NCCL_IB_HCA": "=mlx5_ib0:1",
        "NCCL_SOCKET_IFNAME": "=eth0",
    }


def test_an_ipv6_fabric_is_said_to_nccl_which_looks_for_ipv4_otherwise():
    found = settings(["nccl"], [roce(1, 3, "fd00::7")])
    assert found.variables["NCCL_IB_ADDR_FAMILY"] == "AF_INET6"


def test_cards_without_rdma_carry_nccl_s_sockets():
    assert settings(["nccl"], [PLAIN], primary="eth0").variables == {"NCCL_SOCKET_IFNAME": "=net1"}


def test_ucx_keeps_tcp_beside_the_rdma_devices():
    assert settings(["ucx"], [roce(1)]).variables["UCX_NET_DEVICES"] == "mlx5_1:1,net1"


def test_mpi_and_gloo_get_the_interfaces():
    found = settings(["mpi", "gloo"], [roce(1), roce(2)], primary="eth0")
    assert found.variables == {
        "OMPI_MCA_btl_tcp_if_include": "net1,net2",
        "GLOO_SOCKET_IFNAME": "net1,net2",
        "TP_SOCKET_IFNAME": "net1",
    }
    assert "OMPI_MCA_oob_tcp_if_include" in found.left_alone


def test_efa_is_named_only_where_there_is_one():
    efa = PodCard(request="r", pool="n", device="d", rdma_device="rdmap16s27", fabric=EFA)
    assert settings(["efa"], [efa]).variables == {"FI_PROVIDER": "efa"}
    assert settings(["efa", "nccl"], [PLAIN]).variables == {"NCCL_SOCKET_IFNAME": "=net1"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_pod_without_cards_gets_no_variable(library):
    assert settings([library], [], primary="eth0").variables == {}


def test_the_file_for_nccl_holds_its_own_settings_literally_and_the_reasons():
    found = settings(["nccl", "gloo"], [roce(1, 3), roce(2, 5)], primary="eth0")
    lines = nccl_conf(found).decode().splitlines()
    assert "NCCL_IB_HCA==mlx5_1:1,mlx5_2:1" in lines
    assert not any(line.startswith("GLOO") for line in lines)
    assert lines[0] == "# NCCL_IB_GID_INDEX: one number is for all cards and theirs differ: mlx5_1 3, mlx5_2 5"


def test_a_card_s_own_gid_is_the_v2_slot_of_its_interface_and_address():
    address = ipaddress.IPv4Address("10.0.0.7")
    mapped = ipaddress.IPv6Address("::ffff:10.0.0.7")
    table = [
        Gid(0, ipaddress.IPv6Address("fe80::1"), "IB/RoCE v1", "net1"),
        Gid(1, ipaddress.IPv6Address("fe80::1"), "RoCE v2", "net1"),
        Gid(2, mapped, "RoCE v2", "somebody-elses"),
        Gid(3, mapped, "IB/RoCE v1", "net1"),
        Gid(4, mapped, "RoCE v2", "net1"),
    ]
    assert own_gid(table, "net1", [address]) == table[4]
    assert own_gid(table[:4], "net1", [address]) is None


def test_of_two_addresses_ipv4_is_preferred_and_the_table_is_read_no_further():
    four, six = ipaddress.IPv4Address("10.0.0.7"), ipaddress.IPv6Address("fd00::7")
    table = [Gid(3, six, "RoCE v2", "net1"), Gid(5, ipaddress.IPv6Address("::ffff:10.0.0.7"), "RoCE v2", "net1")]
    slots = iter([*table, Gid(7, six, "RoCE v2", "net1")])
    assert own_gid(slots, "net1", [six, four]) == table[1]
    assert [gid.index for gid in slots] == [7]
    assert own_gid(table[:1], "net1", [six, four]) == table[0]


def test_every_library_that_a_claim_may_name_has_its_rules():
    assert tuple(LIBRARIES) == netconfig.LIBRARIES


def test_a_library_is_told_only_of_the_cards_that_name_it():
    found = rules.settings({"nccl": [roce(1)], "gloo": [PLAIN]}, primary="eth0")
    assert (found.variables["NCCL_IB_HCA"], found.variables["GLOO_SOCKET_IFNAME"]) == ("=mlx5_1:1", "net1")


def test_nccl_s_settings_are_in_its_file_and_never_variables():
    found = settings(["nccl", "mpi"], [roce(1)], primary="eth0", topology="/t.xml")
    assert set(found.environment) == {"OMPI_MCA_btl_tcp_if_include"}
    assert "NCCL_TOPO_FILE=/t.xml" in nccl_conf(found).decode().splitlines()


def test_what_a_container_sets_itself_is_left_alone():
    found = settings(["ucx", "gloo"], [PLAIN])
    found.leave_alone({"GLOO_SOCKET_IFNAME", "PATH"})
    assert set(found.environment) == {"UCX_NET_DEVICES", "TP_SOCKET_IFNAME"}
    assert "sets it itself" in found.left_alone["GLOO_SOCKET_IFNAME"]


def test_open_mpi_s_file_says_what_its_variables_say():
    assert mpi_conf(settings(["mpi"], [PLAIN])) == b"btl_tcp_if_include = net1\n"
    assert mpi_conf(settings(["gloo"], [PLAIN])) == b""


@pytest.mark.parametrize("library", ["nccl", "ucx", "mpi", "gloo"])
def test_a_card_without_an_address_is_said_to_be_left_out(library):
    bare = PodCard(request="nic", pool="n", device="d", interface="net1")
    found = settings([library], [bare])
    assert found.variables == {}
    assert any("none of the cards has an interface with an address" in why for why in found.left_alone.values())
