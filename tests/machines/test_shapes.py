"""Machine shapes: the built-in ones are true to the nodes they were taken from, and mistakes in a file are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from dranet.core.errors import InvalidInput, NotFound
from dranet.core.slices import slice_problems
from dranet.machines.shape import load_shape, parse_shape, pcie_root, shape_names
from dranet.machines.shape_devices import expand_shape_specs, gpu_devices, nic_devices, shape_links, shape_slices
from tests.machines.conftest import every_shape


def test_the_clouds_and_the_makers_machines_are_built_in() -> None:
    google = {"a3-megagpu-8g", "a3-ultragpu-8g", "a4-highgpu-8g", "a4x-highgpu-4g"}
    azure = {"nd-a100-v4", "nd-h100-v5", "nd-mi300x-v5", "nd-gb300-v6"}
    amazon = {"p4d.24xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"}
    oracle, nvidia = {"bm.gpu.h100.8", "bm.gpu.gb200.4"}, {"dgx-h100", "dgx-h200", "dgx-b200"}
    assert set(shape_names()) >= google | azure | amazon | oracle | nvidia


@every_shape
def test_every_shape_says_where_its_facts_are_from_and_what_is_not_known(name: str) -> None:
    shape = load_shape(name)
    assert shape.sources and shape.unknown and shape.name == name


def test_nics_behind_hyper_v_have_no_pcie_root() -> None:
    assert all("resource.kubernetes.io/pcieRoot" not in d.attributes for d in nic_devices(load_shape("nd-gb300-v6")))


def test_a4_puts_two_gpus_and_two_nics_under_each_pcie_root() -> None:
    shape = load_shape("a4-highgpu-8g")
    roots = [pcie_root(part.path) for part in shape.parts]
    assert {root: roots.count(root) for root in roots} == {
        "pci0000:8c": 4,
        "pci0000:93": 4,
        "pci0000:c1": 4,
        "pci0000:c8": 4,
    }


def test_a4_gpu_addresses_are_those_nccl_printed() -> None:
    buses = [gpu.pci.bus for gpu in load_shape("a4-highgpu-8g").gpus]
    assert buses == [0x8F, 0x90, 0x96, 0x97, 0xC4, 0xC5, 0xCB, 0xCC]


@every_shape
def test_every_node_of_a_shape_passes_the_api_limits(name: str) -> None:
    shape = load_shape(name)
    assert slice_problems(nic_devices(shape, 7)) == []
    assert slice_problems(gpu_devices(shape, 7)) == []


@every_shape
def test_no_two_nodes_share_a_mac_an_address_or_a_uuid(name: str) -> None:
    shape = load_shape(name)
    macs = [link.mac for i in range(5) for link in shape_links(shape, i)]
    addresses = [a for i in range(5) for link in shape_links(shape, i) for a in link.addresses]
    uuids = [d.attributes["uuid"] for i in range(5) for d in gpu_devices(shape, i) if "uuid" in d.attributes]
    assert all(len(values) == len(set(values)) for values in (macs, addresses, uuids))


def test_slices_of_a_node_name_both_drivers_and_the_node() -> None:
    slices = shape_slices(load_shape("a4-highgpu-8g"), "worker-1")
    assert [(s["spec"]["driver"], s["spec"]["nodeName"], len(s["spec"]["devices"])) for s in slices] == [
        ("dra.net", "worker-1", 8),
        ("gpu.nvidia.com", "worker-1", 8),
    ]


def test_node_counts_add_up_over_repeated_shapes() -> None:
    names = [name for name, _, _ in expand_shape_specs(["a4-highgpu-8g=2", "nd-gb300-v6", "a4-highgpu-8g"])]
    assert names == ["a4-highgpu-8g-0", "a4-highgpu-8g-1", "nd-gb300-v6-0", "a4-highgpu-8g-2"]


@pytest.mark.parametrize("spec", ["a4-highgpu-8g=²", "a4-highgpu-8g=x", "a4-highgpu-8g=0", "a4-highgpu-8g=-1"])
def test_a_bad_node_count_is_refused(spec: str) -> None:
    with pytest.raises(InvalidInput, match="NAME=COUNT"):
        expand_shape_specs([spec])


def test_an_unknown_shape_lists_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r"a3-ultragpu-8g, a4-highgpu-8g, .*nd-gb300-v6"):
        load_shape("no-such-machine")


def test_a_misspelt_shape_gets_the_nearest_name() -> None:
    with pytest.raises(NotFound, match="no machine shape 'a4-highgpu-8'; did you mean a4-highgpu-8g"):
        load_shape("a4-highgpu-8")


def test_a_shape_can_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n')
    assert load_shape(file).name == "mine"


def test_a_shape_like_another_differs_in_the_values_it_sets_itself() -> None:
    base = load_shape("dgx-h200")
    made = parse_shape('name = "x"\nlike = "dgx-h200"\n[gpu_kinds.gpu]\nmemory = "1Gi"\n')
    kinds = {"gpu": replace(base.gpu_kinds["gpu"], memory="1Gi")}
    assert made == replace(base, name="x", gpu_kinds=kinds)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = \n", "line 1"),
        ('title = "x"', "name"),
        ('name = "x"\ncolour = "red"', "colour"),
        ('name = "x"\nlike = "y"', "like: no built-in machine shape 'y'"),
        ('name = "x"\n[[nics]]\nkind = "cx"\npath = "pci0000:00/0000:01:00.0"', "no \\[nic_kinds.cx\\]"),
        ('name = "x"\n[[gpus]]\nname = "g"\nkind = "k"\npath = "pci0000:00"', "must end in a PCI address"),
    ],
)
def test_a_mistake_in_a_file_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_shape(text, "mine.toml")
