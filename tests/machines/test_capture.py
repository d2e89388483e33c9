"""A captured machine is the machine, and a shape written down reads back the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from dranet.core.errors import NotFound
from dranet.machines.capture import capture
from dranet.machines.shape import load_shape, parse_shape, to_toml
from dranet.testing.sysfs_tree import write_sysfs
from tests.machines.conftest import cells, every_shape


@every_shape
def test_a_shape_reads_back_as_it_was_written(name: str) -> None:
    assert parse_shape(to_toml(load_shape(name))) == load_shape(name)


@every_shape
def test_a_captured_machine_has_the_same_matrix(name: str, tmp_path: Path) -> None:
    write_sysfs(load_shape(name), tmp_path)
    (kind,) = load_shape(name).gpu_kinds.values()
    captured = capture("mine", tmp_path, nvlinks=kind.nvlinks)
    rdma = [nic.rdma for nic in load_shape(name).nics if nic.rdma]
    assert [nic.rdma for nic in captured.nics if nic.rdma] == rdma
    assert cells(captured) == cells(name)


def test_a_captured_nic_keeps_its_facts(tmp_path: Path) -> None:
    shape = load_shape("a4-highgpu-8g")
    write_sysfs(shape, tmp_path)
    captured = capture("mine", tmp_path)
    nic, original = captured.nics[0], shape.nics[0]
    kind, original_kind = captured.nic_kind(nic), shape.nic_kind(original)
    assert (nic.interface, nic.rdma, nic.mac, nic.numa, nic.path) == (
        original.interface, original.rdma, original.mac, original.numa, original.path,
    )  # fmt: skip
    assert (kind.speed_gbit, kind.mtu, kind.kernel_driver, kind.subsystem_id) == (
        original_kind.speed_gbit, original_kind.mtu, original_kind.kernel_driver, original_kind.subsystem_id,
    )  # fmt: skip


def test_a_captured_machine_can_be_written_down_and_read(tmp_path: Path) -> None:
    write_sysfs(load_shape("nd-gb300-v6"), tmp_path)
    captured = capture("mine", tmp_path)
    assert parse_shape(to_toml(captured)) == captured


def test_a_folder_without_a_pci_bus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="PCI bus"):
        capture("mine", tmp_path)


def test_the_interface_of_a_virtio_nic_is_found(tmp_path: Path) -> None:
    write_sysfs(load_shape("a4-highgpu-8g"), tmp_path)
    function = (tmp_path / "bus/pci/devices/0000:91:00.0").resolve()
    (function / "virtio1").mkdir()
    (function / "net").rename(function / "virtio1" / "net")
    assert capture("mine", tmp_path).nics[0].interface == "gpu0rdma0"
