"""The names things carry and the rules they obey.

Device names must be DNS labels, which interface names often are not: those are encoded, reversibly and without
collisions, exactly as the reference driver does, so that claims naming a device keep working.
"""

from __future__ import annotations

import base64
import re

import msgspec

from dranet.model.pci import PciAddress

DRIVER_NAME = "dra.net"

INTERFACE_NAME_MAX = 15
DNS_LABEL_MAX = 63

_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")

_VF_NAME = re.compile(r"(pci-[0-9a-f]{4}-[0-9a-f]{2}-[0-9a-f]{2}-[0-7])-vf[0-9]+")


class ClaimRef(msgspec.Struct, frozen=True, order=True):
    """Which claim. The UID is the identity: a claim deleted and made anew has the same name and another UID."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def is_dns_label(text: str) -> bool:
    """Whether ``text`` is a DNS-1123 label of at most 63 characters."""
    return len(text) <= DNS_LABEL_MAX and _DNS_LABEL.fullmatch(text) is not None


def pci_device_name(address: PciAddress) -> str:
    """``0000:8a:00.0`` becomes ``pci-0000-8a-00-0``."""
    return "pci-" + str(address).replace(":", "-").replace(".", "-")


def vf_device_name(physical: PciAddress, number: int) -> str:
    """``pci-0000-8a-00-0-vf3``: by number, for its own address is not known before it is there."""
    return f"{pci_device_name(physical)}-vf{number}"


def exclude_each_other(one: str, other: str) -> bool:
    """Whether two devices are the same, or a physical function and a virtual one of it."""
    return one == other or physical_function_name(one) == other or physical_function_name(other) == one


def physical_function_name(name: str) -> str:
    """The name of the physical function that a virtual one is made from; empty for every other device."""
    found = _VF_NAME.fullmatch(name)
    return found[1] if found else ""


def function_number(name: str) -> int | None:
    """Which virtual function of its card a device is; None for every other device."""
    return int(name.rpartition("-vf")[2]) if physical_function_name(name) else None


def link_device_name(interface: str) -> str:
    """The interface's own name where it is a DNS label, else ``net-`` and its base32 form."""
    if not interface or is_dns_label(interface):
        return interface
    raw = interface.encode("utf-8", "surrogateescape")
    return "net-" + base64.b32encode(raw).decode("ascii").rstrip("=").lower()


def interface_name_problem(name: str) -> str | None:
    """Why ``name`` cannot be an interface name, or None where it can.

    Such names end up in sysctl paths, so this check is also what keeps a claim from writing anywhere else.
    """
    if not name:
        return "must not be empty"
    if len(name) > INTERFACE_NAME_MAX or len(name.encode()) > INTERFACE_NAME_MAX:
        return f"{name!r} is longer than {INTERFACE_NAME_MAX} characters"
    if name in {".", "..", "all", "default"}:
        return f"{name!r} is not a usable interface name: it means something else in the kernel's settings"
    bad = sorted({c for c in name if not (c.isalnum() or c in "-_.")})
    if bad:
        return f"{name!r} contains {', '.join(map(repr, bad))}; use letters, digits, '-', '_' and '.'"
    return None
