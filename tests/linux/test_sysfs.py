"""Reading a tree with forbidden files and misleading links, without leaving it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dranet.core.errors import NotFound
from dranet.linux.sysfs import Sysfs, is_sysfs, natural_key


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "sys"
    device = root / "devices/pci0000:00/0000:00:01.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    (device / "odd").write_text("not a number\n")
    (root / "bus/pci/devices").mkdir(parents=True)
    (root / "bus/pci/devices/0000:00:01.0").symlink_to("../../../devices/pci0000:00/0000:00:01.0")
    (tmp_path / "secret").write_text("secret")
    return root


@contextmanager
def unprivileged() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_is_read_through_links(tree: Path) -> None:
    sysfs = Sysfs(str(tree))
    assert sysfs.read("bus/pci/devices/0000:00:01.0/numa_node") == "1"
    assert sysfs.read_number("bus/pci/devices", "0000:00:01.0", "numa_node") == 1
    assert sysfs.problems == []


def test_a_path_is_resolved_to_where_it_really_is(tree: Path) -> None:
    wanted = "devices/pci0000:00/0000:00:01.0"
    assert Sysfs(str(tree)).resolve("bus/pci/devices/0000:00:01.0") == wanted
    assert Sysfs(str(tree)).link_target("bus/pci/devices/0000:00:01.0") == wanted
    assert Sysfs(str(tree)).link_target(wanted) == wanted


def test_what_is_not_there_is_none_and_no_problem(tree: Path) -> None:
    sysfs = Sysfs(str(tree))
    assert sysfs.read("bus/pci/devices/0000:00:09.9/vendor") is None
    assert sysfs.names("class/net") == []
    assert sysfs.resolve("class/net/eth0") is None
    assert sysfs.link_target("class/net/eth0") is None
    assert not sysfs.exists("devices/none")
    assert sysfs.problems == []


def test_a_link_to_nothing_is_none(tree: Path) -> None:
    (tree / "bus/pci/devices/gone").symlink_to("../../../devices/gone")
    sysfs = Sysfs(str(tree))
    assert sysfs.resolve("bus/pci/devices/gone") is None
    assert sysfs.read("bus/pci/devices/gone/vendor") is None


@pytest.mark.parametrize("target", ["../../../../secret", "/etc/hostname", "../../../../../../../../etc/hostname"])
def test_a_link_that_leads_outside_is_not_followed_and_is_a_problem(tree: Path, target: str) -> None:
    (tree / "bus/pci/devices/evil").symlink_to(target)
    sysfs = Sysfs(str(tree))
    assert sysfs.read("bus/pci/devices/evil") is None
    assert sysfs.link_target("bus/pci/devices/evil") is None
    assert "bus/pci/devices/evil: points outside" in sysfs.problems[0]


def test_a_folder_that_leads_outside_hides_everything_below_it(tree: Path) -> None:
    (tree / "class").symlink_to("..")
    sysfs = Sysfs(str(tree))
    assert sysfs.read("class/secret") is None
    assert sysfs.names("class") == []


def test_a_path_with_dots_is_refused(tree: Path) -> None:
    sysfs = Sysfs(str(tree))
    assert sysfs.read("../secret") is None
    assert sysfs.read("bus/../../secret") is None
    assert sysfs.names("..") == []


def test_links_in_a_circle_end(tree: Path) -> None:
    (tree / "a").symlink_to("b")
    (tree / "b").symlink_to("a")
    sysfs = Sysfs(str(tree))
    assert sysfs.resolve("a") is None
    assert sysfs.read("a/x") is None


def test_an_absolute_link_inside_the_root_is_followed(tree: Path) -> None:
    (tree / "absolute").symlink_to(tree / "devices/pci0000:00")
    assert Sysfs(str(tree)).read("absolute/0000:00:01.0/numa_node") == "1"


def test_a_root_that_is_a_link_itself_works(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(tree)
    assert Sysfs(str(tmp_path / "elsewhere")).read("bus/pci/devices/0000:00:01.0/numa_node") == "1"


def test_a_value_that_is_not_a_number_is_a_problem(tree: Path) -> None:
    sysfs = Sysfs(str(tree))
    assert sysfs.read_number("devices/pci0000:00/0000:00:01.0/odd") is None
    assert sysfs.problems == ["devices/pci0000:00/0000:00:01.0/odd: expected a number, found 'not a number'"]


def test_a_forbidden_file_and_folder_are_problems_not_failures() -> None:
    with tempfile.TemporaryDirectory() as root:  # pytest's own folders are closed to others
        os.chmod(root, 0o755)
        (Path(root) / "numa_node").touch(mode=0)
        (Path(root) / "closed").mkdir(mode=0)
        sysfs = Sysfs(root)
        with unprivileged():
            assert sysfs.read("numa_node") is None
            assert sysfs.names("closed") == []
            assert sysfs.read("closed/file") is None
        (Path(root) / "closed").chmod(0o755)
    assert sysfs.problems == [
        "numa_node: Permission denied",
        "closed: Permission denied",
        "closed/file: Permission denied",
    ]


def test_a_folder_read_as_a_file_is_a_problem(tree: Path) -> None:
    sysfs = Sysfs(str(tree))
    assert sysfs.read("devices/pci0000:00") is None
    assert sysfs.problems == ["devices/pci0000:00: Is a directory"]


def test_a_pipe_in_the_tree_does_not_hang_the_reader(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    assert Sysfs(str(tree)).read("pipe") == ""


def test_names_come_with_numbers_in_order(tree: Path) -> None:
    for name in ("umad10", "umad2", "issm0"):
        (tree / name).touch()
    assert Sysfs(str(tree)).names("") == ["bus", "devices", "issm0", "umad2", "umad10"]
    assert sorted(["eth10", "eth2", "eth"], key=natural_key) == ["eth", "eth2", "eth10"]


def test_a_root_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no directory .*/nowhere: sysfs is expected there"):
        Sysfs(str(tmp_path / "nowhere"))


def test_names_that_are_not_utf8_can_be_read(tree: Path) -> None:
    (tree / os.fsdecode(b"odd\xff")).write_text("here")
    sysfs = Sysfs(str(tree))
    assert sysfs.read(next(name for name in sysfs.names("") if name.startswith("odd"))) == "here"


def test_a_copied_tree_is_distinguished_from_the_kernels(tree: Path, tmp_path: Path) -> None:
    assert [is_sysfs(root) for root in ("/sys", str(tree), str(tmp_path / "nowhere"))] == [True, False, False]
