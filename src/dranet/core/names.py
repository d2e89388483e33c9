"""Names of devices and interfaces, and their rules.

Device names must be DNS labels. Interface names that are not are encoded reversibly and without collisions, exactly as
in the reference driver, so that claims that select a device by name keep working.
"""

from __future__ import annotations

import base64
import re

import msgspec

from dranet.core.pci import PciAddress

DRIVER_NAME = "dra.net"

_INTERFACE_NAME_MAX = 15
_DNS_LABEL_MAX = 63

_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")

_VF_NAME = re.compile(r"(pci-[0-9a-f]{4}-[0-9a-f]{2}-[0-9a-f]{2}-[0-7])-vf[0-9]+")


class ClaimRef(msgspec.Struct, frozen=True, order=True):
    """A claim. The UID is its identity: a claim that was deleted and recreated has the same name and another UID."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def is_dns_label(text: str) -> bool:
    """Whether ``text`` is a DNS-1123 label of at most 63 characters."""
    return len(text) <= _DNS_LABEL_MAX and _DNS_LABEL.fullmatch(text) is not None


def pci_device_name(address: PciAddress) -> str:
    """``0000:8a:00.0`` becomes ``pci-0000-8a-00-0``."""
    return "pci-" + str(address).replace(":", "-").replace(".", "-")


def vf_device_name(physical: PciAddress, number: int) -> str:
    """``pci-0000-8a-00-0-vf3``. By number, because the PCI address is unknown until the function exists."""
    return f"{pci_device_name(physical)}-vf{number}"


def exclude_each_other(one: str, other: str) -> bool:
    """Whether two devices are the same, or one is a virtual function of the other."""
    return one == other or physical_function_name(one) == other or physical_function_name(other) == one


def physical_function_name(name: str) -> str:
    """The name of a virtual function's physical function; empty for other devices."""
    found = _VF_NAME.fullmatch(name)
    return found[1] if found else ""


def vf_number(name: str) -> int | None:
    """The number of a virtual function; None for other devices."""
    return int(name.rpartition("-vf")[2]) if physical_function_name(name) else None


def link_device_name(interface: str) -> str:
    """The interface's name if it is a DNS label, else ``net-`` and its base32 form."""
    if not interface or is_dns_label(interface):
        return interface
    raw = interface.encode("utf-8", "surrogateescape")
    return "net-" + base64.b32encode(raw).decode("ascii").rstrip("=").lower()


def interface_name_problem(name: str) -> str | None:
    """Why ``name`` is not a valid interface name, or None.

    Interface names become part of sysctl paths, so this check also prevents that a claim writes to other paths.
    """
    if not name:
        return "must not be empty"
    if len(name) > _INTERFACE_NAME_MAX or len(name.encode()) > _INTERFACE_NAME_MAX:
        return f"{name!r} is longer than {_INTERFACE_NAME_MAX} characters"
    if name in {".", "..", "all", "default"}:
        return f"{name!r} is not a usable interface name: it has another meaning in sysctl paths"
    bad = sorted({c for c in name if not (c.isalnum() or c in "-_.")})
    if bad:
        return f"{name!r} contains {', '.join(map(repr, bad))}; use letters, digits, '-', '_' and '.'"
    return None
