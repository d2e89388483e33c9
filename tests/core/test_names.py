"""Device and interface names."""

import pytest

from dranet.core.errors import InvalidInput
from dranet.core.names import interface_name_problem, is_dns_label, link_device_name, pci_device_name
from dranet.core.pci import PciAddress


@pytest.mark.parametrize(
    ("interface", "device"),
    [
        ("eth0", "eth0"),
        ("eth:0", "net-mv2gqorq"),
        ("ETH0", "net-ivkeqma"),
        ("eth_int", "net-mv2gqx3jnz2a"),
        ("mlx5_6", "net-nvwhqnk7gy"),
        ("", ""),
    ],
)
def test_link_names_follow_the_reference_vectors(interface: str, device: str) -> None:
    assert link_device_name(interface) == device


def test_pci_devices_are_named_after_their_address() -> None:
    assert pci_device_name(PciAddress.parse("0000:8A:00.0")) == "pci-0000-8a-00-0"


@pytest.mark.parametrize("text", ["8a:00.0", "0000:8a:00.0", "0000:8A:00.0"])
def test_a_pci_address_reads_with_or_without_its_domain(text: str) -> None:
    assert str(PciAddress.parse(text)) == "0000:8a:00.0"


@pytest.mark.parametrize("text", ["", "8a:00", "0000:8a:00.10", "00000:8a:00.0", "0000:8g:00.0", "0000:8a:00.0\n"])
def test_an_invalid_pci_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a PCI address"):
        PciAddress.parse(text)


def test_every_encoded_name_is_a_dns_label() -> None:
    assert is_dns_label(link_device_name("ünïcode.1:2"))


@pytest.mark.parametrize("name", ["eth0", "dranet-arp", "a.b_c", "x" * 15])
def test_usable_interface_names_have_no_problem(name: str) -> None:
    assert interface_name_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../../kernel", "a b", "x" * 16, "a\0b", "é" * 8, "a:b", "{x}", "all"]
)
def test_names_that_could_escape_or_be_refused_are_problems(name: str) -> None:
    assert interface_name_problem(name) is not None
