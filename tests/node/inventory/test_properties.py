"""Whatever sysfs, the kernel and the cloud say: what we would publish passes the API's limits."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dranet.core.pciids import PciIds
from dranet.core.slices import STRING_BYTES, chunks, slice_problems
from dranet.linux.addresses import Address
from dranet.linux.sysfs import Sysfs
from dranet.linux.traffic.bpf import Attachment
from dranet.linux.traffic.tc import BpfFilter
from dranet.node.inventory import Inventory, InventoryOptions, Snapshot
from dranet.node.inventory.attributes import join, text
from dranet.node.inventory.cloud import Identity
from tests.node.inventory.conftest import Machine, World

SETTINGS = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

RAW = st.binary(min_size=1, max_size=15).filter(lambda b: b"/" not in b and b"\0" not in b and not b.isspace())
NAMES = RAW.map(lambda raw: raw.decode("utf-8", "surrogateescape"))
TEXTS = st.one_of(st.text(st.characters(), max_size=80), NAMES)
SCALARS = st.one_of(st.booleans(), st.integers(-(2**70), 2**70), TEXTS, st.floats(), st.none())
CLOUD = st.dictionaries(
    st.one_of(st.text(max_size=40), st.sampled_from(["a.b/c", "dra.net/mtu"])), SCALARS, max_size=60
)


def assert_publishable(snapshot: Snapshot) -> None:
    for part in chunks(snapshot.published):
        assert slice_problems(part) == []
        msgspec.json.encode([device.to_api() for device in part])
    assert [skipped for skipped in snapshot.skipped if "refuse" in skipped.reason] == []


class Cloud:
    """A provider that says anything."""

    name = "ANY"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def attributes(self, device: Identity) -> Any:
        return self.answer

    async def config(self, device: Identity) -> None:
        return None

    async def refresh(self, devices: Any) -> bool:
        return False


def inventory(world: World, cloud: Any = None, **options: Any) -> Inventory:
    return Inventory(InventoryOptions(filter="", **options), world, cloud, pci_ids=PciIds(Path("/nonexistent")))


@SETTINGS
@given(
    names=st.lists(NAMES, max_size=6, unique=True),
    alias=TEXTS,
    kind=TEXTS,
    encapsulation=TEXTS,
    mtu=st.integers(0, 2**32 - 1),
    cloud=CLOUD,
    programs=st.lists(TEXTS, max_size=5),
)
def test_links_may_be_called_anything(
    world: World, names: list[str], alias: str, kind: str, encapsulation: str, mtu: int, cloud: Any, programs: list[str]
) -> None:
    world.links_, world.classifiers_, world.programs_ = [], [], []
    for name in names:
        world.link(name, alias=alias, kind=kind, encapsulation=encapsulation, mtu=mtu)
    bpf: dict[str, Any] = {
        "egress": False,
        "handle": 1,
        "info": 0,
        "chain": None,
        "program_id": 1,
        "direct_action": True,
    }
    for program in programs:
        world.classifiers_.append(BpfFilter(index=1, name=program, **bpf))
        world.programs_.append(Attachment(index=1, hook="tcx/egress", program_id=1, link_id=0, name=program))
    assert_publishable(inventory(world, Cloud(cloud)).scan())


@SETTINGS
@given(
    files=st.dictionaries(
        st.sampled_from(["modalias", "numa_node", "sriov_totalvfs", "sriov_numvfs", "vendor", "class"]),
        st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=100), st.integers(-(2**65), 2**65)),
    ),
    speed=st.one_of(st.integers(-(2**40), 2**70), st.text("0123456789x-. ", max_size=30)),
    rate=st.text("0123456789. Gb/sec", max_size=30),
    lists=st.booleans(),
)
def test_sysfs_may_say_anything(world_of: Any, files: dict[str, Any], speed: Any, rate: str, lists: bool) -> None:
    machine, world = world_of()
    path = machine.nic("0000:8a:00.0", netdevs=["eth1"])
    machine.rdma(machine.nic("0000:8b:00.0"), "mlx5_0", layer="InfiniBand", **{"ports/1/rate": rate})
    for name, content in files.items():
        machine.write(f"{path}/{name}", content)
    machine.write(f"{path}/net/eth1/speed", speed)
    world.link("eth1")
    assert_publishable(inventory(world, list_attributes=lists).scan())


@SETTINGS
@given(seed=st.integers(0, 10_000), chance=st.floats(0.0, 0.6))
def test_files_may_vanish_and_be_forbidden_during_a_scan(whole_machine: Any, seed: int, chance: float) -> None:
    world = whole_machine
    world.sysfs = lambda: Flaky(str(world.root), seed, chance)
    snapshot = inventory(world).scan()
    assert_publishable(snapshot)
    assert inventory(world).scan() == snapshot


class Flaky(Sysfs):
    """Some files are gone, some forbidden; always the same ones for the same seed."""

    def __init__(self, root: str, seed: int, chance: float) -> None:
        super().__init__(root)
        self._random, self._chance = random.Random(seed), chance

    def _gone(self, path: str) -> bool:
        draw = self._random.random()
        if draw < self._chance / 2:
            self.problems.append(f"{path}: Permission denied")
        return draw < self._chance

    def read_bytes(self, *path: str) -> bytes | None:
        return None if self._gone("/".join(path)) else super().read_bytes(*path)

    def names(self, *path: str) -> list[str]:
        return [] if self._gone("/".join(path)) else super().names(*path)

    def resolve(self, path: str) -> str | None:
        return None if self._gone(path) else super().resolve(path)


@pytest.fixture
def world_of(machine: Machine, world: World, tmp_path: Path) -> Any:
    """A fresh machine and world for every example."""

    def make() -> Any:
        root = Path(tempfile.mkdtemp(dir=tmp_path)) / "sys"
        return type(machine)(root), type(world)(root)

    return make


@pytest.fixture
def whole_machine(machine: Machine, world: World) -> Any:
    for number in range(8):
        path = machine.nic(f"0000:{number:02x}:00.0", netdevs=[f"eth{number}"], rdma=f"mlx5_{number}", numa=number % 2)
        machine.write(f"{path}/net/eth{number}/speed", 400000)
        world.link(f"eth{number}")
    machine.nic("0000:8f:00.0", pci_class="030200", driver="nvidia")
    world.link("dummy0", kind="dummy")
    return world


def test_three_hundred_addresses_on_one_link_are_cut_between_two_of_them(world: World) -> None:
    world.link("vips0", 1, kind="dummy")
    world.addresses_ = [
        Address(family=2, index=1, local=f"10.96.{n // 250}.{n % 250 + 1}", prefix=32) for n in range(300)
    ]
    snapshot = inventory(world).scan()
    assert_publishable(snapshot)
    shown = str(snapshot.devices[0].device.attributes["dra.net/ipv4"])
    assert shown.split(",") == sorted(address.cidr for address in world.addresses_)[: shown.count(",") + 1]
    assert shown.count(",") == 3


def test_a_thousand_links_fill_several_slices(world: World) -> None:
    for number in range(1000):
        world.link(f"veth_{number}", kind="veth")
    snapshot = inventory(world).scan()
    assert len(snapshot.devices) == 1000
    assert len(chunks(snapshot.published)) == 8
    assert_publishable(snapshot)


def test_a_cloud_that_says_too_much_loses_the_least_useful_words_first(machine: Machine, world: World) -> None:
    machine.nic("0000:8a:00.0", netdevs=["eth1"], rdma="mlx5_0", sriov_totalvfs=4)
    world.link("eth1", 1)
    world.addresses_ = [Address(family=2, index=1, local="10.0.0.1", prefix=24)]
    answer = {f"gce.dra.net/key{n}": n for n in range(10)}
    snapshot = inventory(world, Cloud(answer)).scan()
    assert_publishable(snapshot)
    shown = snapshot.devices[0].device.attributes
    assert answer.items() <= shown.items()
    assert "dra.net/alias" not in shown
    assert "pci-0000-8a-00-0: too many attributes, dropped: dra.net/alias" in snapshot.problems


@SETTINGS
@given(items=st.lists(TEXTS, max_size=20))
def test_joined_texts_fit(items: list[str]) -> None:
    assert len(join(items).encode()) <= STRING_BYTES


@SETTINGS
@given(raw=TEXTS)
def test_any_text_becomes_clean_and_short(raw: str) -> None:
    assert len(text(raw).encode("utf-8")) <= STRING_BYTES


def test_five_addresses_of_twelve_bytes_fit_and_a_sixth_does_not() -> None:
    items = [f"10.0.0.{n}/32" + "x" for n in range(1, 7)]
    assert len(items[0]) == 12
    assert join(items) == ",".join(items[:5])
    assert len(join(items)) == 64


def test_a_first_item_that_is_too_long_leaves_nothing() -> None:
    assert join(["x" * 65, "y"]) == ""
