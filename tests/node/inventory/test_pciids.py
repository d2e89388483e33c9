"""Names of PCI products, from whichever list there is."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dranet.core.pciids import PATH_VARIABLE, SHORT_LIST, PciIds, PciNames, find_list

LIST = b"""# comment
0001  Before
\t1021  Wrong product
15b3  Mellanox Technologies
\t1017  MT27800 Family [ConnectX-5]
\t\t15b3 1021  a subsystem
# another comment
\t1021  MT2910 Family [ConnectX-7]
1af4  Red Hat, Inc.
\t1017  Wrong vendor
C 02  Network controller
\t00  Ethernet controller
"""


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    path = tmp_path / "pci.ids"
    path.write_bytes(LIST)
    return path


def test_a_product_is_named_under_its_own_vendor(listed: Path) -> None:
    assert PciIds(listed).names("15B3", "1021") == ("Mellanox Technologies", "MT2910 Family [ConnectX-7]")


def test_a_subsystem_line_is_not_a_product(listed: Path) -> None:
    assert PciIds(listed).names("15b3", "15b3").product == "unknown"


def test_what_is_not_listed_is_unknown(listed: Path) -> None:
    assert PciIds(listed).names("15b3", "ffff") == ("Mellanox Technologies", "unknown")
    assert PciIds(listed).names("ffff", "1021") == PciNames()


def test_a_list_may_be_compressed(tmp_path: Path) -> None:
    path = tmp_path / "pci.ids.gz"
    path.write_bytes(gzip.compress(LIST))
    assert PciIds(path).names("15b3", "1017").product == "MT27800 Family [ConnectX-5]"


def test_a_list_that_is_missing_makes_everything_unknown(tmp_path: Path) -> None:
    assert PciIds(tmp_path / "none").names("15b3", "1017") == PciNames()


def test_every_product_is_searched_once(listed: Path) -> None:
    ids = PciIds(listed)
    first = ids.names("15b3", "1021")
    listed.unlink()
    assert ids.names("15b3", "1021") == first


def test_the_environment_may_name_a_list(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(listed))
    assert find_list() == listed


@pytest.mark.parametrize("content", [None, b"\x1f\x8b", b"\x1f\x8b\x08\x00garbage"])
def test_a_list_that_cannot_be_read_costs_the_names_and_is_reported(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "ids").write_bytes(content)
    ids = PciIds(tmp_path / "ids")
    assert ids.names("15b3", "1021") == PciNames()
    assert f"cannot read the PCI ID list {tmp_path / 'ids'}" in ids.problem


@pytest.mark.parametrize(
    ("vendor", "product", "name"),
    [
        ("15b3", "101e", "ConnectX Family mlx5Gen Virtual Function"),
        ("1d0f", "efa1", "Elastic Fabric Adapter (EFA)"),
        ("1ae0", "0042", "Compute Engine Virtual Ethernet [gVNIC]"),
        ("1af4", "1041", "Virtio 1.0 network device"),
        ("8086", "1592", "Ethernet Controller E810-C for QSFP"),
    ],
)
def test_the_short_list_knows_the_nics_of_the_clouds(vendor: str, product: str, name: str) -> None:
    assert PciIds(SHORT_LIST).names(vendor, product).product == name
