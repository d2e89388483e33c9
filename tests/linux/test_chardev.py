"""Character devices below a root."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dranet.core.errors import KernelError
from dranet.linux import chardev
from dranet.linux.chardev import CharDeviceFile


def device(name: str, minor: int = 192) -> CharDeviceFile:
    return CharDeviceFile(path=f"/dev/infiniband/{name}", major=231, minor=minor, mode=0o666, uid=0, gid=0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    try:
        os.mknod(tmp_path / "probe", stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("needs the right to make device files")
    return tmp_path


def test_a_device_is_created_and_described(root: Path) -> None:
    chardev.create(device("uverbs0"), root=str(root))
    assert chardev.describe("/dev/infiniband/uverbs0", root=str(root)) == device("uverbs0")


def test_creating_it_again_changes_nothing(root: Path) -> None:
    chardev.create(device("uverbs0"), root=str(root))
    chardev.create(device("uverbs0"), root=str(root))


def test_another_device_at_the_same_place_is_an_error(root: Path) -> None:
    chardev.create(device("uverbs0"), root=str(root))
    with pytest.raises(KernelError, match="cannot create the character device /dev/infiniband/uverbs0: File exists"):
        chardev.create(device("uverbs0", minor=193), root=str(root))


def test_what_is_missing_or_something_else_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/dev/null")
    assert chardev.describe("/file", root=str(tmp_path)) is None
    assert chardev.describe("/file/below", root=str(tmp_path)) is None
    assert chardev.describe("/link", root=str(tmp_path)) is None
    assert chardev.describe("/nothere", root=str(tmp_path)) is None


def test_the_devices_of_a_nic_come_after_the_connection_manager(root: Path) -> None:
    for name, minor in (("rdma_cm", 61), ("uverbs0", 192), ("umad0", 0)):
        chardev.create(device(name, minor), root=str(root))
    found = chardev.rdma_devices(("umad0", "uverbs0", "issm0", "../../etc/passwd"), root=str(root))
    assert [Path(entry.path).name for entry in found] == ["rdma_cm", "umad0", "uverbs0"]


def test_a_path_that_could_lead_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="not an absolute path"):
        chardev.describe("/dev/../etc/passwd", root=str(tmp_path))
    with pytest.raises(KernelError, match="not an absolute path"):
        chardev.describe("dev/x", root=str(tmp_path))
