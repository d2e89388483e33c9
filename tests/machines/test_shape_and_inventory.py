"""What a shape promises is what discovery finds in its sysfs tree, byte for byte."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dranet.core.pciids import SHORT_LIST, PciIds
from dranet.linux.addresses import Address
from dranet.linux.links import Link
from dranet.linux.sysfs import Sysfs
from dranet.machines.shape import Shape, load_shape
from dranet.machines.shape_devices import nic_devices, shape_links
from dranet.node.inventory.inventory import Inventory
from dranet.node.inventory.options import InventoryOptions
from dranet.node.inventory.rails import RailSource
from dranet.testing.sysfs_tree import write_sysfs
from tests.machines.conftest import every_shape

ZEROS: dict[str, Any] = {"int": 0, "str": "", "bytes": b""}
BLANK = {n: ZEROS.get(kind, () if kind.startswith("tuple") else None) for n, kind in Link.__annotations__.items()}


@dataclass
class ShapeKernel:
    """A kernel that has the links and addresses of a shape's node."""

    shape: Shape
    root: Path
    index: int

    def sysfs(self) -> Sysfs:
        return Sysfs(str(self.root))

    def links(self) -> list[Link]:
        facts: dict[str, Any] = {"kind": "device", "flags": 0x1043, "operstate": "up", "encapsulation": "ether"}
        return [
            Link(**{**BLANK, **facts, "index": i, "name": link.name, "mtu": link.mtu, "mac": link.mac})
            for i, link in enumerate(shape_links(self.shape, self.index), 4)
        ]

    def addresses(self) -> list[Address]:
        found = []
        for i, link in enumerate(shape_links(self.shape, self.index), 4):
            for text in link.addresses:
                address = ipaddress.ip_interface(text)
                prefix = address.network.prefixlen
                found.append(Address(family=2, index=i, local=str(address.ip), prefix=prefix))
        return found

    def default_routes(self) -> list[Any]:
        return []

    def routes(self) -> list[Any]:
        return []

    def rules(self) -> list[Any]:
        return []

    def egress_link(self, address: str) -> None:
        return None

    def classifiers(self) -> list[Any]:
        return []

    def programs(self, indexes: object) -> list[Any]:
        return []

    def rdma_ports(self) -> list[Any]:
        return []


RAILS = {"bm.gpu.h100.8": r"interface:rdma(\d+)", "bm.gpu.gb200.4": r"interface:rdma(\d+)"}
"""What the cloud reports: OKE names its ports so; on A3 Mega the VPC network is the rail."""


@every_shape
@pytest.mark.parametrize("index", [0, 3])
def test_discovery_finds_exactly_the_devices_of_the_shape(name: str, index: int, tmp_path: Path) -> None:
    shape = load_shape(name)
    write_sysfs(shape, tmp_path, index)
    options = InventoryOptions(rails=RailSource.parse(RAILS.get(name, "auto")))
    snapshot = Inventory(options, ShapeKernel(shape, tmp_path, index), pci_ids=PciIds(SHORT_LIST)).scan()
    promised = nic_devices(shape, index)
    cloud = {*shape.cloud_attributes, *(["dra.net/rail"] if name == "a3-megagpu-8g" else [])}
    expected = [
        {**d.to_api(), "attributes": {k: v for k, v in d.to_api()["attributes"].items() if k not in cloud}}
        for d in promised
    ]
    assert [device.to_api() for device in snapshot.published] == expected


@every_shape
def test_discovery_sees_the_gpus_as_neighbours(name: str, tmp_path: Path) -> None:
    shape = load_shape(name)
    write_sysfs(shape, tmp_path)
    snapshot = Inventory(kernel=ShapeKernel(shape, tmp_path, 0), pci_ids=PciIds(SHORT_LIST)).scan()
    assert [(gpu.pci, gpu.numa_node) for gpu in snapshot.gpus] == [(gpu.pci, gpu.numa) for gpu in shape.gpus]
