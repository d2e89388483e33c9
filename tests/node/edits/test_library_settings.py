"""Settings for NCCL, UCX, MPI, gloo and EFA."""

from __future__ import annotations

import ipaddress

import pytest

from dranet.core import netconfig
from dranet.linux.gids import Gid, own_gid
from dranet.node.edits import library_settings
from dranet.node.edits.library_settings import LIBRARIES, Settings, mpi_conf, nccl_conf
from dranet.node.edits.pod_device import EFA, INFINIBAND, ROCE, PodDevice


def roce(number: int, index: int | None = 3, address: str = "") -> PodDevice:
    own = address or f"10.0.{number}.7"
    mapped = own if ":" in own else f"::ffff:{own}"
    prefix = 64 if ":" in own else 24
    gid = None if index is None else Gid(index, ipaddress.IPv6Address(mapped), "RoCE v2", f"net{number}")
    return PodDevice(
        request="nic",
        pool="n",
        device=f"d{number}",
        interface=f"net{number}",
        addresses=[f"{own}/{prefix}"],
        rdma_device=f"mlx5_{number}",
        fabric=ROCE,
        gid=gid,
    )


def settings(libraries: list[str], devices: list[PodDevice], **more: str) -> Settings:
    """Every library gets every device."""
    return library_settings.settings(dict.fromkeys(libraries, devices), **more)


PLAIN = PodDevice(request="nic", pool="n", device="d", interface="net1", addresses=["10.0.0.1/24"])


def test_nccl_gets_exact_names_bootstrap_interface_and_common_gid_index() -> None:
    found = settings(["nccl"], [roce(1), roce(10)], primary="eth0")
    assert found.variables == {
        "NCCL_IB_HCA": "=mlx5_1:1,mlx5_10:1",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "NCCL_IB_GID_INDEX": "3",
    }


def test_skips_gid_index_with_a_reason_if_devices_differ() -> None:
    found = settings(["nccl"], [roce(1, 3), roce(2, 5)])
    assert "NCCL_IB_GID_INDEX" not in found.variables
    assert "mlx5_1 3, mlx5_2 5" in found.skipped["NCCL_IB_GID_INDEX"]


def test_skips_gid_index_if_a_device_has_no_gid() -> None:
    found = settings(["nccl"], [roce(1, 3), roce(2, None)])
    assert "NCCL_IB_GID_INDEX" not in found.variables
    assert "mlx5_2" in found.skipped["NCCL_IB_GID_INDEX"]


def test_infiniband_needs_no_gid_index() -> None:
    device = PodDevice(request="r", pool="n", device="d", rdma_device="mlx5_ib0", fabric=INFINIBAND)
    assert settings(["nccl"], [device], primary="eth0").variables == {
        "NCCL_IB_HCA": "=mlx5_ib0:1",
        "NCCL_SOCKET_IFNAME": "=eth0",
    }


def test_sets_nccl_address_family_for_ipv6() -> None:
    found = settings(["nccl"], [roce(1, 3, "fd00::7")])
    assert found.variables["NCCL_IB_ADDR_FAMILY"] == "AF_INET6"


def test_nccl_uses_sockets_on_devices_without_rdma() -> None:
    assert settings(["nccl"], [PLAIN], primary="eth0").variables == {"NCCL_SOCKET_IFNAME": "=net1"}


def test_ucx_list_has_tcp_interfaces_and_rdma_devices() -> None:
    assert settings(["ucx"], [roce(1)]).variables["UCX_NET_DEVICES"] == "mlx5_1:1,net1"


def test_mpi_and_gloo_get_the_interfaces() -> None:
    found = settings(["mpi", "gloo"], [roce(1), roce(2)], primary="eth0")
    assert found.variables == {
        "OMPI_MCA_btl_tcp_if_include": "net1,net2",
        "GLOO_SOCKET_IFNAME": "net1,net2",
        "TP_SOCKET_IFNAME": "net1",
    }
    assert "OMPI_MCA_oob_tcp_if_include" in found.skipped


def test_sets_efa_provider_only_for_efa_devices() -> None:
    efa = PodDevice(request="r", pool="n", device="d", rdma_device="rdmap16s27", fabric=EFA)
    assert settings(["efa"], [efa]).variables == {"FI_PROVIDER": "efa"}
    assert settings(["efa", "nccl"], [PLAIN]).variables == {"NCCL_SOCKET_IFNAME": "=net1"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_pod_without_devices_gets_no_variable(library: str) -> None:
    assert settings([library], [], primary="eth0").variables == {}


def test_nccl_file_has_its_settings_and_the_reasons_for_skipped_ones() -> None:
    found = settings(["nccl", "gloo"], [roce(1, 3), roce(2, 5)], primary="eth0")
    lines = nccl_conf(found).decode().splitlines()
    assert "NCCL_IB_HCA==mlx5_1:1,mlx5_2:1" in lines
    assert not any(line.startswith("GLOO") for line in lines)
    assert lines[0] == "# NCCL_IB_GID_INDEX: the GID indexes of the devices differ: mlx5_1 3, mlx5_2 5"


def test_own_gid_is_the_roce_v2_entry_of_interface_and_address() -> None:
    address = ipaddress.IPv4Address("10.0.0.7")
    mapped = ipaddress.IPv6Address("::ffff:10.0.0.7")
    table = [
        Gid(0, ipaddress.IPv6Address("fe80::1"), "IB/RoCE v1", "net1"),
        Gid(1, ipaddress.IPv6Address("fe80::1"), "RoCE v2", "net1"),
        Gid(2, mapped, "RoCE v2", "another"),
        Gid(3, mapped, "IB/RoCE v1", "net1"),
        Gid(4, mapped, "RoCE v2", "net1"),
    ]
    assert own_gid(table, "net1", [address]) == table[4]
    assert own_gid(table[:4], "net1", [address]) is None


def test_prefers_ipv4_gid_and_stops_reading_the_table() -> None:
    four, six = ipaddress.IPv4Address("10.0.0.7"), ipaddress.IPv6Address("fd00::7")
    table = [Gid(3, six, "RoCE v2", "net1"), Gid(5, ipaddress.IPv6Address("::ffff:10.0.0.7"), "RoCE v2", "net1")]
    slots = iter([*table, Gid(7, six, "RoCE v2", "net1")])
    assert own_gid(slots, "net1", [six, four]) == table[1]
    assert [gid.index for gid in slots] == [7]
    assert own_gid(table[:1], "net1", [six, four]) == table[0]


def test_every_library_of_netconfig_has_settings() -> None:
    assert tuple(LIBRARIES) == netconfig.LIBRARIES


def test_a_library_gets_only_the_devices_that_name_it() -> None:
    found = library_settings.settings({"nccl": [roce(1)], "gloo": [PLAIN]}, primary="eth0")
    assert (found.variables["NCCL_IB_HCA"], found.variables["GLOO_SOCKET_IFNAME"]) == ("=mlx5_1:1", "net1")


def test_nccl_settings_are_in_its_file_and_not_variables() -> None:
    found = settings(["nccl", "mpi"], [roce(1)], primary="eth0", topology="/t.xml")
    assert set(found.environment) == {"OMPI_MCA_btl_tcp_if_include"}
    assert "NCCL_TOPO_FILE=/t.xml" in nccl_conf(found).decode().splitlines()


def test_skips_variables_that_a_container_sets() -> None:
    found = settings(["ucx", "gloo"], [PLAIN])
    found.skip({"GLOO_SOCKET_IFNAME", "PATH"})
    assert set(found.environment) == {"UCX_NET_DEVICES", "TP_SOCKET_IFNAME"}
    assert "of the pod sets it" in found.skipped["GLOO_SOCKET_IFNAME"]


def test_open_mpi_file_has_the_same_settings_as_the_variables() -> None:
    assert mpi_conf(settings(["mpi"], [PLAIN])) == b"btl_tcp_if_include = net1\n"
    assert mpi_conf(settings(["gloo"], [PLAIN])) == b""


@pytest.mark.parametrize("library", ["nccl", "ucx", "mpi", "gloo"])
def test_skips_devices_without_an_address_with_a_reason(library: str) -> None:
    bare = PodDevice(request="nic", pool="n", device="d", interface="net1")
    found = settings([library], [bare])
    assert found.variables == {}
    assert any("no device has an interface with a known address" in why for why in found.skipped.values())
