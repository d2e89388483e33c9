"""The synthetic sysfs tree holds what discovery reads, with links that resolve."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dranet.machines.shape import load_shape, shape_names
from dranet.machines.shape_sysfs import sysfs_tree
from dranet.testing.sysfs_tree import write_sysfs


@pytest.fixture(params=shape_names())
def shape_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_symlink_resolves_inside_the_tree(shape_name: str, tmp_path: Path) -> None:
    write_sysfs(load_shape(shape_name), tmp_path)
    for relative in sysfs_tree(load_shape(shape_name)).symlinks:
        target = (tmp_path / relative).resolve()
        assert target.exists() and target.is_relative_to(tmp_path)


def test_the_bus_lists_every_nic_and_gpu(shape_name: str, tmp_path: Path) -> None:
    shape = load_shape(shape_name)
    write_sysfs(shape, tmp_path)
    listed = set(os.listdir(tmp_path / "bus/pci/devices"))
    assert {str(part.pci) for part in shape.parts} <= listed


def test_a_nic_resolves_to_its_place_below_devices(tmp_path: Path) -> None:
    write_sysfs(load_shape("a4-highgpu-8g"), tmp_path)
    place = (tmp_path / "class/net/gpu0rdma0").resolve()
    assert place.relative_to(tmp_path).as_posix() == (
        "devices/pci0000:8c/0000:8c:00.0/0000:8d:00.0/0000:8e:02.0/0000:91:00.0/net/gpu0rdma0"
    )


def test_writing_twice_gives_the_same_tree(tmp_path: Path) -> None:
    shape = load_shape("nd-gb300-v6")
    write_sysfs(shape, tmp_path)
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    write_sysfs(shape, tmp_path)
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before


def test_modalias_is_written_as_the_kernel_does(tmp_path: Path) -> None:
    write_sysfs(load_shape("a4-highgpu-8g"), tmp_path)
    modalias = (tmp_path / "bus/pci/devices/0000:91:00.0/modalias").read_text()
    assert modalias == "pci:v000015B3d0000101Esv000015B3sd00000028bc02sc00i00\n"
