"""Distances follow from PCI paths; pairs are as near as any pairing allows."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dranet.machines.alignment import align, possible_gpus
from dranet.machines.distance import Distance, Position, distance
from dranet.machines.machine import MachineDevice, natural_sort_key
from tests.machines.conftest import machine_of

SWITCH = "pci0000:8c/0000:8c:00.0/0000:8d:00.0"


def position(path: str, numa: int = 0) -> Position:
    return Position(path, path.split("/")[0], numa)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (f"{SWITCH}/0000:8e:00.0/0000:8f:00.0", f"{SWITCH}/0000:8e:02.0/0000:91:00.0", Distance.PIX),
        (f"{SWITCH}/0000:8e:00.0/0000:8f:00.0", f"{SWITCH}/0000:8e:00.0/0000:8f:00.1", Distance.PIX),
        (
            f"{SWITCH}/0000:8e:00.0/0000:8f:00.0",
            f"{SWITCH}/0000:8e:01.0/0000:90:00.0/0000:91:00.0/0000:92:00.0",
            Distance.PXB,
        ),
        ("pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:00/0000:00:02.0/0000:02:00.0", Distance.PHB),
        ("pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:10/0000:10:01.0/0000:11:00.0", Distance.NODE),
    ],
)
def test_distance_follows_the_pci_path(a: str, b: str, expected: Distance) -> None:
    assert distance(position(a), position(b)) is distance(position(b), position(a)) is expected


def test_two_numa_nodes_are_sys_apart() -> None:
    assert distance(position("pci0000:00/0000:01:00.0", 0), position("pci0000:80/0000:81:00.0", 1)) is Distance.SYS


def test_the_same_root_without_paths_is_at_most_phb() -> None:
    assert distance(Position(root="pci0000:00"), Position(root="pci0000:00")) is Distance.PHB


def test_an_unknown_numa_node_is_not_guessed() -> None:
    assert distance(Position(root="pci0000:00"), Position(numa=0)) is Distance.UNKNOWN


def test_two_hidden_roots_are_not_the_same_root() -> None:
    assert distance(Position(numa=0), Position(numa=0)) is Distance.NODE


def test_a_whole_machine_pairs_each_gpu_with_the_nic_of_its_number() -> None:
    machine = machine_of("a4-highgpu-8g")
    pairs = align(machine.gpus, machine.nics).pairs
    assert [(p.gpu.device, p.nic.title, p.distance) for p in pairs] == [
        (f"gpu-{i}", f"mlx5_{i}", Distance.PIX) for i in range(8)
    ]


def test_without_nics_there_is_no_pair() -> None:
    machine = machine_of("a4-highgpu-8g")
    assert align(machine.gpus, []).worst is Distance.UNKNOWN


def test_one_gpu_uses_all_its_nics() -> None:
    machine = machine_of("nd-gb300-v6")
    assert [p.nic.title for p in align(machine.gpus[:1], machine.nics[:2]).pairs] == ["mlx5_0", "mlx5_1"]


def parts(kind: str, numas: list[int]) -> list[MachineDevice]:
    return [
        MachineDevice(kind, f"{kind}{i}", Position(f"x/{numa}", f"pci{numa}", numa // 2))
        for i, numa in enumerate(numas)
    ]


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_no_other_pairing_has_a_nearer_worst_pair(gpu_places: list[int], nic_places: list[int]) -> None:
    gpus, nics = parts("gpu", gpu_places), parts("nic", nic_places)
    few, many = sorted((gpus, nics), key=len)
    seats = [few[i % len(few)] for i in range(len(many))]
    best = min(
        max(distance(one.position, seat.position) for one, seat in zip(many, order, strict=True))
        for order in itertools.permutations(seats)
    )
    assert align(gpus, nics).worst is best


def test_a_device_plugin_may_pick_any_gpus_but_alike_ones_count_once() -> None:
    machine = machine_of("a4-highgpu-8g")
    choices = list(possible_gpus(machine.gpus, 1, machine.nics[:1]))
    worst = {align(list(choice), machine.nics[:1]).worst for choice in choices}
    assert (len(choices), worst) == (3, {Distance.PIX, Distance.NODE, Distance.SYS})


def test_names_sort_as_people_count() -> None:
    assert sorted(["mlx5_10", "mlx5_2", "eth0", ""], key=natural_sort_key) == ["", "eth0", "mlx5_2", "mlx5_10"]
