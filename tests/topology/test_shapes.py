"""Machine shapes: the built-in ones are true to the nodes they were taken from, and mistakes in a file are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dranet.model.device import Device
from dranet.model.errors import InvalidInput, NotFound
from dranet.model.limits import slice_problems
from dranet.topology.shape import load_shape, parse_shape, pcie_root, shape_names
from dranet.topology.shape_devices import gpu_devices, links, nic_devices, nodes_of, shape_slices

DATA = Path(__file__).parent.parent / "data"
OURS = {"dra.net/ibOnly", "resource.kubernetes.io/pciBusID", "resource.kubernetes.io/numaNode"}


def recorded_devices(name: str) -> list[Device]:
    document = yaml.safe_load((DATA / name).read_text())
    (slice_,) = document.get("items") or [document]
    return [Device.from_api(raw) for raw in slice_["spec"]["devices"]]


def test_the_clouds_and_the_makers_machines_are_built_in() -> None:
    google = {"a3-megagpu-8g", "a3-ultragpu-8g", "a4-highgpu-8g", "a4x-highgpu-4g"}
    azure = {"nd-a100-v4", "nd-h100-v5", "nd-mi300x-v5", "nd-gb300-v6"}
    amazon = {"p4d.24xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"}
    oracle, nvidia = {"bm.gpu.h100.8", "bm.gpu.gb200.4"}, {"dgx-h100", "dgx-h200", "dgx-b200"}
    assert set(shape_names()) >= google | azure | amazon | oracle | nvidia


@pytest.mark.parametrize("name", shape_names())
def test_every_shape_says_where_its_facts_are_from_and_what_is_not_known(name: str) -> None:
    shape = load_shape(name)
    assert shape.sources and shape.unknown and shape.name == name


def test_gb300_gpus_are_those_of_the_recorded_node() -> None:
    assert gpu_devices(load_shape("nd-gb300-v6")) == recorded_devices("gb300-resourceslice-gpu.yaml")


def test_gb300_cards_are_those_of_the_recorded_node_plus_what_only_we_publish() -> None:
    ours = nic_devices(load_shape("nd-gb300-v6"))
    recorded = recorded_devices("gb300-resourceslice-dranet.yaml")
    stripped = [Device(name=d.name, attributes={k: v for k, v in d.attributes.items() if k not in OURS}) for d in ours]
    assert stripped == recorded


def test_cards_behind_hyper_v_have_no_pcie_root() -> None:
    assert all("resource.kubernetes.io/pcieRoot" not in d.attributes for d in nic_devices(load_shape("nd-gb300-v6")))


def test_a4_puts_two_gpus_and_two_cards_under_each_pcie_root() -> None:
    shape = load_shape("a4-highgpu-8g")
    roots = [pcie_root(part.path) for part in [*shape.gpus, *shape.nics]]
    assert {root: roots.count(root) for root in roots} == {
        "pci0000:8c": 4,
        "pci0000:93": 4,
        "pci0000:c1": 4,
        "pci0000:c8": 4,
    }


def test_a4_gpu_addresses_are_those_nccl_printed() -> None:
    buses = [gpu.pci.bus for gpu in load_shape("a4-highgpu-8g").gpus]
    assert buses == [0x8F, 0x90, 0x96, 0x97, 0xC4, 0xC5, 0xCB, 0xCC]


@pytest.mark.parametrize("name", shape_names())
def test_every_node_of_a_shape_passes_the_api_limits(name: str) -> None:
    shape = load_shape(name)
    assert slice_problems(nic_devices(shape, 7)) == []
    assert slice_problems(gpu_devices(shape, 7)) == []


@pytest.mark.parametrize("name", shape_names())
def test_no_two_nodes_share_a_mac_an_address_or_a_uuid(name: str) -> None:
    shape = load_shape(name)
    macs = [link.mac for i in range(5) for link in links(shape, i)]
    addresses = [a for i in range(5) for link in links(shape, i) for a in link.addresses]
    uuids = [d.attributes["uuid"] for i in range(5) for d in gpu_devices(shape, i) if "uuid" in d.attributes]
    assert all(len(values) == len(set(values)) for values in (macs, addresses, uuids))


def test_slices_of_a_node_name_both_drivers_and_the_node() -> None:
    slices = shape_slices(load_shape("a4-highgpu-8g"), "worker-1")
    assert [(s["spec"]["driver"], s["spec"]["nodeName"], len(s["spec"]["devices"])) for s in slices] == [
        ("dra.net", "worker-1", 8),
        ("gpu.nvidia.com", "worker-1", 8),
    ]


def test_node_counts_add_up_over_repeated_shapes() -> None:
    names = [name for name, _, _ in nodes_of(["a4-highgpu-8g=2", "nd-gb300-v6", "a4-highgpu-8g"])]
    assert names == ["a4-highgpu-8g-0", "a4-highgpu-8g-1", "nd-gb300-v6-0", "a4-highgpu-8g-2"]


@pytest.mark.parametrize("spec", ["a4-highgpu-8g=²", "a4-highgpu-8g=x", "a4-highgpu-8g=0", "a4-highgpu-8g=-1"])
def test_a_bad_node_count_is_refused(spec: str) -> None:
    with pytest.raises(InvalidInput, match="NAME=COUNT"):
        nodes_of([spec])


def test_an_unknown_shape_lists_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r"a3-ultragpu-8g, a4-highgpu-8g, .*nd-gb300-v6"):
        load_shape("dgx-9000")


def test_a_shape_can_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n')
    assert load_shape(file).name == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = \n", "line 1"),
        ('title = "x"', "name"),
        ('name = "x"\ncolour = "red"', "colour"),
        ('name = "x"\n[[nics]]\nkind = "cx"\npath = "pci0000:00/0000:01:00.0"', "no \\[nic_kinds.cx\\]"),
        ('name = "x"\n[[gpus]]\nname = "g"\nkind = "k"\npath = "pci0000:00"', "must end in a PCI address"),
    ],
)
def test_a_mistake_in_a_file_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_shape(text, "mine.toml")
