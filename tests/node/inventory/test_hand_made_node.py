"""The command on a sysfs written file by file, as several people would write it, over real links in a namespace.

The tree is made here with nothing of the project's own, in the shapes a copied, a simplified and a real sysfs have:
relative links, absolute links, a class without links, no class, no bus, links to drivers that are not there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dranet.linux.namespaces import Namespace, NamespaceError

LINKS = """
link add roce0 type veth peer name far0
link set roce0 address 02:00:00:00:8a:00 mtu 9000 alias rail-0 up
link set far0 up
addr add 10.1.0.5/24 dev roce0
addr add 10.1.0.4/24 dev roce0
addr add fd00:1::5/64 dev roce0 nodad
addr add 169.254.7.7/16 dev roce0
link add vf0 type veth peer name far1
link add up0 type veth peer name far2
link set far2 up
link set up0 up
link add br0 type bridge
link set up0 master br0
link set br0 up
addr add 192.0.2.2/24 dev br0
route add default via 192.0.2.1
link add docker0 type bridge
link add plain0 type ifb
link set lo up
"""
PF, VF, UPLINK, HIDDEN = "0000:8a:00.0", "0000:8a:00.1", "0000:01:00.0", "0000:8b:00.0"
IB, ERDMA, GPU = "0000:8c:00.0", "0000:00:0b.0", "0000:8f:00.0"
ROOTS = {UPLINK: "pci0000:00", ERDMA: "pci0000:00", GPU: "pci0000:80/0000:80:01.0"}
NETDEVS = {PF: "roce0", VF: "vf0", UPLINK: "up0"}
RDMA = {PF: "mlx5_0", IB: "mlx5_3", ERDMA: "erdma_0"}
DRIVERS = {PF: "mlx5_core", VF: "mlx5_core", UPLINK: "ena", HIDDEN: "vfio-pci", IB: "mlx5_core", GPU: "nvidia"}
CLASSES = {IB: "020700", ERDMA: "00ff00", GPU: "030200"}
LAYOUTS = (
    "relative",
    "absolute",
    "as on the machine",
    "no links in the class",
    "no class at all",
    "no bus",
    "dangling drivers",
)


class Tree:
    """A sysfs root and how its links are written."""

    def __init__(self, root: Path, layout: str) -> None:
        self.root, self.layout = root, layout
        for address in (PF, VF, UPLINK, HIDDEN, IB, ERDMA, GPU):
            self.function(address)
        for address, name in NETDEVS.items():
            self.netdev(address, name)
        for address, name in RDMA.items():
            self.rdma(address, name)
        for name in ("lo", "br0", "docker0", "plain0", "far0", "far1", "far2"):
            (root / "devices/virtual/net" / name).mkdir(parents=True)
            self.link(f"class/net/{name}", f"devices/virtual/net/{name}")

    def path(self, address: str) -> str:
        return f"devices/{ROOTS.get(address, 'pci0000:80/0000:80:02.0')}/{address}"

    def write(self, path: str, content: object) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{content}\n")

    def link(self, path: str, target: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if self.layout == "absolute":
            place.symlink_to(self.root / target)
        elif self.layout == "as on the machine":
            place.symlink_to(f"/sys/{target}")
        else:
            place.symlink_to(os.path.relpath(self.root / target, place.parent.resolve()))

    def function(self, address: str) -> None:
        path = self.path(address)
        code = CLASSES.get(address, "020000")
        facts: dict[str, object] = {"class": f"0x{code}", "vendor": "0x15b3", "device": "0x1021"}
        facts |= {"subsystem_vendor": "0x15b3", "subsystem_device": "0x0023", "numa_node": 1}
        if address == UPLINK:
            facts["numa_node"] = -1
        if address == PF:
            facts |= {"sriov_totalvfs": 8, "sriov_numvfs": 1}
        for name, content in facts.items():
            self.write(f"{path}/{name}", content)
        if address == VF:
            self.link(f"{path}/physfn", self.path(PF))
        if address in DRIVERS:
            if self.layout != "dangling drivers":
                (self.root / "bus/pci/drivers" / DRIVERS[address]).mkdir(parents=True, exist_ok=True)
            self.link(f"{path}/driver", f"bus/pci/drivers/{DRIVERS[address]}")
        if self.layout != "no bus":
            self.link(f"bus/pci/devices/{address}", path)

    def netdev(self, address: str, name: str) -> None:
        folder = self.root / self.path(address) / "net" / name
        if self.layout == "no links in the class":
            folder = self.root / "class/net" / name
        folder.mkdir(parents=True)
        folder.joinpath("speed").write_text("200000\n")
        where = str(folder.relative_to(self.root))
        self.link(f"{where}/device", self.path(address))
        if self.layout not in ("no links in the class", "no class at all"):
            self.link(f"class/net/{name}", where)

    def rdma(self, address: str, name: str) -> None:
        path = f"{self.path(address)}/infiniband/{name}"
        if self.layout == "no links in the class":
            path = f"class/infiniband/{name}"
        layer = "InfiniBand" if address == IB else "Ethernet"
        for file, content in {"state": "4: ACTIVE", "link_layer": layer, "rate": "400 Gb/sec (4X NDR)"}.items():
            self.write(f"{path}/ports/1/{file}", content)
        self.write(f"{path}/node_guid", "b83f:d203:0000:0001")
        if address in NETDEVS:
            self.write(f"{path}/ports/1/gid_attrs/ndevs/0", NETDEVS[address])
        self.link(f"{path}/device", self.path(address))
        # Its PCI class is not a network class, so only the RDMA class shows it.
        if self.layout == "no class at all" and address != ERDMA:
            return
        if not path.startswith("class/"):
            self.link(f"class/infiniband/{name}", path)


@pytest.fixture(scope="module")
def netns() -> Iterator[Namespace]:
    """One namespace with the links: they are the same whatever sysfs looks like."""
    try:
        made = Namespace.create()
    except NamespaceError as error:
        pytest.skip(f"needs the right to make network namespaces: {error}")
    with made:
        done = subprocess.run([*entering(made), "ip", "-batch", "-"], input=LINKS, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        yield made


def entering(netns: Namespace) -> list[str]:
    return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{netns.fd}"]


@pytest.fixture(scope="module", params=LAYOUTS)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, netns: Namespace) -> Any:
    root = tmp_path_factory.mktemp("machine") / "sys"
    Tree(root, request.param)
    return run(entering(netns), root)


def run(enter: list[str], sysfs: Path) -> Any:
    pci_ids = sysfs.parent / "pci.ids"
    pci_ids.write_text("15b3  Mellanox Technologies\n\t1021  MT2910 Family [ConnectX-7]\n")
    command = [*enter, sys.executable, "-m", "dranet", "inventory", "-o", "json", "--sysfs", str(sysfs)]
    command += ["--cloud-provider-hint", "NONE", "--filter", "", "--offer-interfaces", "roce0,plain0"]
    done = subprocess.run(command, text=True, capture_output=True, env={**os.environ, "PCIDB_PATH": str(pci_ids)})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def device(found: Any, name: str) -> Any:
    (one,) = [device for device in found["devices"] if device["name"] == name]
    return one


OF_A_NIC = {
    "dra.net/pciVendor": {"string": "Mellanox Technologies"},
    "dra.net/pciDevice": {"string": "MT2910 Family [ConnectX-7]"},
    "dra.net/pciSubsystem": {"string": "0023"},
    "dra.net/numaNode": {"int": 1},
    "resource.kubernetes.io/numaNode": {"int": 1},
}


def address(text: str, root: str = "pci0000:80") -> dict[str, Any]:
    return {
        "dra.net/pciAddress": {"string": text},
        "resource.kubernetes.io/pciBusID": {"string": text},
        "resource.kubernetes.io/pcieRoot": {"string": root},
    }


def only_rdma(name: str) -> dict[str, Any]:
    return {"dra.net/rdma": {"bool": True}, "dra.net/rdmaDevice": {"string": name}, "dra.net/ibOnly": {"bool": True}}


def test_a_physical_function_with_roce_has_every_attribute(found: Any) -> None:
    assert device(found, "pci-0000-8a-00-0") == {
        "name": "pci-0000-8a-00-0",
        "attributes": {
            **OF_A_NIC,
            **address(PF),
            "dra.net/ifName": {"string": "roce0"},
            "dra.net/mac": {"string": "02:00:00:00:8a:00"},
            "dra.net/mtu": {"int": 9000},
            "dra.net/encapsulation": {"string": "ether"},
            "dra.net/alias": {"string": "rail-0"},
            "dra.net/state": {"string": "up"},
            "dra.net/type": {"string": "veth"},
            "dra.net/ipv4": {"string": "10.1.0.4/24,10.1.0.5/24"},
            "dra.net/ipv6": {"string": "fd00:1::5/64"},
            "dra.net/ebpf": {"bool": False},
            "dra.net/sriov": {"bool": True},
            "dra.net/sriovVfs": {"int": 1},
            "dra.net/virtual": {"bool": False},
            "dra.net/rdma": {"bool": True},
            "dra.net/rdmaDevice": {"string": "mlx5_0"},
            "dra.net/ibOnly": {"bool": False},
        },
        "capacity": {"dra.net/linkSpeed": {"value": "200G"}},
    }


def test_a_virtual_function_says_so_and_has_no_rdma(found: Any) -> None:
    attributes = device(found, "pci-0000-8a-00-1")["attributes"]
    assert attributes["dra.net/isSriovVf"] == {"bool": True}
    assert attributes["dra.net/sriov"] == {"bool": False}
    assert attributes["dra.net/rdma"] == {"bool": False}
    assert {"dra.net/sriovVfs", "dra.net/rdmaDevice", "dra.net/ibOnly"}.isdisjoint(attributes)
    assert attributes["dra.net/ifName"] == {"string": "vf0"}
    assert attributes["dra.net/state"] == {"string": "down"}


def test_infiniband_without_a_netdev_is_rdma_only(found: Any) -> None:
    only = {
        "dra.net/rdma": {"bool": True},
        "dra.net/rdmaDevice": {"string": "mlx5_3"},
        "dra.net/ibOnly": {"bool": True},
    }
    assert device(found, "pci-0000-8c-00-0")["attributes"] == OF_A_NIC | address(IB) | only


def test_rdma_outside_the_network_class_is_found_even_without_a_driver_link(found: Any) -> None:
    only = {
        "dra.net/rdma": {"bool": True},
        "dra.net/rdmaDevice": {"string": "erdma_0"},
        "dra.net/ibOnly": {"bool": True},
    }
    assert device(found, "pci-0000-00-0b-0")["attributes"] == OF_A_NIC | address(ERDMA, "pci0000:00") | only


def test_a_virtual_link_has_the_attributes_of_a_link_only(found: Any) -> None:
    attributes = device(found, "plain0")["attributes"]
    assert attributes.pop("dra.net/mac")["string"].count(":") == 5
    assert attributes == {
        "dra.net/ifName": {"string": "plain0"},
        "dra.net/mtu": {"int": 1500},
        "dra.net/encapsulation": {"string": "ether"},
        "dra.net/alias": {"string": ""},
        "dra.net/state": {"string": "down"},
        "dra.net/type": {"string": "ifb"},
        "dra.net/ebpf": {"bool": False},
        "dra.net/sriov": {"bool": False},
        "dra.net/virtual": {"bool": True},
        "dra.net/rdma": {"bool": False},
    }


def test_what_is_not_offered_has_a_reason(found: Any) -> None:
    reasons = {skipped["name"]: skipped["reason"] for skipped in found["skipped"]}
    assert reasons == {
        HIDDEN: "it is bound to vfio-pci, which hides it from the kernel's network stack",
        "br0": "it is an uplink: a default route of the node uses it",
        "up0": "the uplink br0 is stacked on it",
        "far2": "the uplink br0 is stacked on it",
        "docker0": "it is a bridge and cannot leave the host network namespace",
        "lo": "it is the loopback interface",
    }


def test_neither_the_uplinks_nic_nor_a_gpu_is_offered(found: Any) -> None:
    names = [device["name"] for device in found["devices"]]
    assert "pci-0000-01-00-0" not in names
    assert "pci-0000-8f-00-0" not in names


def test_nothing_is_reported_as_a_problem(found: Any) -> None:
    assert found["problems"] == []


def test_devices_come_by_numa_node_root_address_and_name(found: Any) -> None:
    assert [device["name"] for device in found["devices"]] == [
        "pci-0000-00-0b-0",
        "pci-0000-8a-00-0",
        "pci-0000-8a-00-1",
        "pci-0000-8c-00-0",
        "far0",
        "far1",
        "plain0",
    ]


@pytest.fixture
def named() -> Iterator[str]:
    name = f"dranet-inventory-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], text=True, capture_output=True)
    if made.returncode:
        pytest.skip(f"needs the right to name network namespaces: {made.stderr.strip()}")
    yield name
    subprocess.run(["ip", "netns", "del", name], check=True)


def test_the_command_runs_under_ip_netns_exec(tmp_path: Path, named: str) -> None:
    Tree(tmp_path / "sys", "relative")
    subprocess.run(["ip", "-n", named, "-batch", "-"], input=LINKS, text=True, check=True)
    found = run(["ip", "netns", "exec", named], tmp_path / "sys")
    assert device(found, "pci-0000-8a-00-0")["attributes"]["dra.net/ifName"] == {"string": "roce0"}


def test_a_tree_of_plain_folders_is_read_as_far_as_it_goes(tmp_path: Path, netns: Namespace) -> None:
    function = tmp_path / "sys/bus/pci/devices" / PF
    for folder in ("net/roce0", "infiniband/mlx5_0"):
        (function / folder).mkdir(parents=True)
    for name, content in {"class": "0x020000", "vendor": "0x15b3", "device": "0x1021", "numa_node": "1"}.items():
        (function / name).write_text(content)
    (function / "driver").symlink_to("/sys/bus/pci/drivers/mlx5_core")
    for folder in ("net/roce0", "infiniband/mlx5_0"):
        (tmp_path / "sys/class" / folder).mkdir(parents=True)
    (tmp_path / "sys/class/net/roce0/speed").write_text("100000")
    found = run(entering(netns), tmp_path / "sys")
    nic = device(found, "pci-0000-8a-00-0")
    assert nic["attributes"]["dra.net/ifName"] == {"string": "roce0"}
    assert nic["attributes"]["dra.net/rdmaDevice"] == {"string": "mlx5_0"}
    assert nic["capacity"] == {"dra.net/linkSpeed": {"value": "100G"}}
    assert "no PCIe root" in found["problems"][0]
