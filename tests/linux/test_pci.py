"""Rebinding refuses what it must not or cannot do; the virtual machine tests it on PCI devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from dranet.linux.pci import RebindError, rebind

ADDRESS = "0000:01:00.0"


def function(root: Path, *, driver: bool = True, vfs: int = 0) -> None:
    folder = root / "devices/pci0000:00" / ADDRESS
    folder.mkdir(parents=True)
    (folder / "class").write_text("0x020000\n")
    (folder / "sriov_numvfs").write_text(f"{vfs}\n")
    (root / "bus/pci/devices").mkdir(parents=True)
    (root / "bus/pci/devices" / ADDRESS).symlink_to(f"../../../devices/pci0000:00/{ADDRESS}")
    if driver:
        (root / "bus/pci/drivers/e1000e").mkdir(parents=True)
        (folder / "driver").symlink_to("../../../bus/pci/drivers/e1000e")


def test_a_function_that_is_not_there_is_not_rebound(tmp_path: Path) -> None:
    with pytest.raises(RebindError, match="no such PCI function"):
        rebind(str(tmp_path), ADDRESS)


def test_a_function_without_driver_is_not_rebound(tmp_path: Path) -> None:
    function(tmp_path, driver=False)
    with pytest.raises(RebindError, match="no driver"):
        rebind(str(tmp_path), ADDRESS)


def test_a_function_with_virtual_functions_is_not_rebound(tmp_path: Path) -> None:
    function(tmp_path, vfs=2)
    with pytest.raises(RebindError, match="2 virtual functions"):
        rebind(str(tmp_path), ADDRESS)


def test_a_sysfs_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    function(tmp_path)
    with pytest.raises(RebindError, match="mounted writable"):
        rebind(str(tmp_path), ADDRESS)


def test_a_driver_that_creates_no_netdev_is_an_error(tmp_path: Path) -> None:
    function(tmp_path)
    for name in ("bind", "unbind"):
        (tmp_path / "bus/pci/drivers/e1000e" / name).touch()
    with pytest.raises(RebindError, match="has no netdev after"):
        rebind(str(tmp_path), ADDRESS, wait=0.05)
    assert (tmp_path / "bus/pci/drivers/e1000e/unbind").read_text() == ADDRESS
