"""The GID table as sysfs shows it, on a generated tree: empty slots read as zeros or return EINVAL."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from dranet.linux.gids import EMPTY_IN_A_ROW, read_gids
from dranet.linux.sysfs import Sysfs

ZEROS = "0000:0000:0000:0000:0000:0000:0000:0000"


def tree(root: Path, *slots: tuple[str, str | None, str | None]) -> Sysfs:
    port = root / "class/infiniband/mlx5_0/ports/1"
    for folder in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
        (port / folder).mkdir(parents=True)
    for index, (value, kind, interface) in enumerate(slots):
        (port / "gids" / str(index)).write_text(value + "\n")
        if kind is not None:
            (port / "gid_attrs/types" / str(index)).write_text(kind + "\n")
        if interface is not None:
            (port / "gid_attrs/ndevs" / str(index)).write_text(interface + "\n")
    return Sysfs(str(root))


def test_used_slots_are_read_with_type_and_interface(tmp_path: Path) -> None:
    sysfs = tree(
        tmp_path,
        ("fe80:0000:0000:0000:0202:c9ff:fe00:0001", "IB/RoCE v1", "net1"),
        (ZEROS, None, None),
        ("0000:0000:0000:0000:0000:ffff:0a00:0407", "RoCE v2", "net1"),
    )
    first, second = read_gids(sysfs, "mlx5_0")
    assert (first.index, first.kind, first.interface) == (0, "IB/RoCE v1", "net1")
    assert (second.index, second.address) == (2, ipaddress.IPv4Address("10.0.4.7"))


def test_a_slot_with_the_subnet_prefix_alone_is_empty(tmp_path: Path) -> None:
    assert list(read_gids(tree(tmp_path, ("fe80:0000:0000:0000:0000:0000:0000:0000", None, None)), "mlx5_0")) == []


def test_slots_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    slots = [(f"fe80::{n + 1:x}", "RoCE v2", "net1") for n in range(12)]
    assert [gid.index for gid in read_gids(tree(tmp_path, *slots), "mlx5_0")] == list(range(12))


def test_a_device_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert list(read_gids(Sysfs(str(tmp_path)), "mlx5_9")) == []


def test_many_free_slots_in_a_row_are_the_end_of_the_table(tmp_path: Path) -> None:
    free, used = (ZEROS, None, None), ("fe80::1", "RoCE v2", "net1")
    few = tree(tmp_path / "few", used, *[free] * (EMPTY_IN_A_ROW - 1), used)
    assert [gid.index for gid in read_gids(few, "mlx5_0")] == [0, EMPTY_IN_A_ROW]
    many = tree(tmp_path / "many", used, *[free] * EMPTY_IN_A_ROW, used)
    assert [gid.index for gid in read_gids(many, "mlx5_0")] == [0]
