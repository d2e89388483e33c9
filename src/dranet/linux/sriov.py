"""Virtual functions of a PCI device: create and delete them, and their settings on the physical function.

The kernel can only create all at once or delete all: adding one would delete those in use. The settings are on the
physical function, out of reach of a process that has the virtual one.
"""

from __future__ import annotations

import struct
from pathlib import Path

import msgspec

from dranet.core.errors import KernelError
from dranet.linux import codec
from dranet.linux.codec import Message
from dranet.linux.files import becomes_true, write_existing
from dranet.linux.links import EXT_MASK, FILTER_VF, IFINFO, RTM_GETLINK, RTM_NEWLINK
from dranet.linux.netlink import NetlinkSocket

WAIT_SECONDS = 10.0
_VFINFO_LIST, _VF_INFO = 22, 1
_MAC, _VLAN, _SPOOFCHK, _RATE, _TRUST = 1, 2, 4, 6, 9
_UNKNOWN = 0xFFFFFFFF
"""The kernel's value for a setting that the NIC's driver does not support."""


class SriovError(KernelError):
    """Virtual functions could not be created or deleted."""


class VfSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a virtual function. Rates are Mbit/s, 0 for none; a MAC of zeros is none."""

    mac: str = "00:00:00:00:00:00"
    vlan: int = 0
    priority: int = 0
    spoof_check: bool = True
    trust: bool = False
    min_rate: int = 0
    max_rate: int = 0


def count(sysfs_root: str, address: str) -> int:
    """The number of virtual functions; 0 if the device does not exist."""
    try:
        return int(_file(sysfs_root, address).read_text())
    except (OSError, ValueError):
        return 0


def create(sysfs_root: str, address: str, total: int) -> None:
    """Create all virtual functions; returns when they exist."""
    _write(sysfs_root, address, total)


def remove(sysfs_root: str, address: str) -> None:
    """Delete all virtual functions, if there are any."""
    if count(sysfs_root, address):
        _write(sysfs_root, address, 0)


def wait_for_interface(sysfs_root: str, address: str, number: int, seconds: float = WAIT_SECONDS) -> None:
    """Wait until a virtual function has a network interface: its driver may have to be loaded first."""
    folder = Path(sysfs_root, "bus/pci/devices", address, f"virtfn{number}", "net")
    if not becomes_true(lambda: folder.is_dir() and any(folder.iterdir()), seconds):
        raise SriovError(
            f"virtual function {number} of {address} has no network interface after {seconds:g} s: "
            "is its driver loaded, and sriov_drivers_autoprobe 1?"
        )


def read_settings(socket: NetlinkSocket, index: int) -> dict[int, VfSettings]:
    """The settings of all virtual functions of the physical function with this link, by number."""
    payload = IFINFO.pack(0, 0, index, 0, 0) + codec.u32(EXT_MASK, FILTER_VF)
    replies = socket.request(Message(RTM_GETLINK, 0, payload, f"look up the virtual functions of link {index}"))
    entries = codec.attributes(replies[0].payload, IFINFO.size).get(_VFINFO_LIST, b"")
    return dict(_read(value) for kind, value in codec.attribute_list(entries) if kind == _VF_INFO)


def change(index: int, number: int, was: VfSettings, wanted: VfSettings) -> list[Message]:
    """One message for each different setting, so that the error names the one that the driver does not support."""
    parts = {
        "MAC": (was.mac != wanted.mac, _MAC, codec.mac_bytes(wanted.mac).ljust(32, b"\0")),
        "VLAN": (
            (was.vlan, was.priority) != (wanted.vlan, wanted.priority),
            _VLAN,
            struct.pack("=II", wanted.vlan, wanted.priority),
        ),
        "spoof check": (was.spoof_check != wanted.spoof_check, _SPOOFCHK, struct.pack("=I", wanted.spoof_check)),
        "trust": (was.trust != wanted.trust, _TRUST, struct.pack("=I", wanted.trust)),
        "rate": (
            (was.min_rate, was.max_rate) != (wanted.min_rate, wanted.max_rate),
            _RATE,
            struct.pack("=II", wanted.min_rate, wanted.max_rate),
        ),
    }
    return [
        _message(
            index, codec.attribute(kind, struct.pack("=I", number) + value), f"{name} of virtual function {number}"
        )
        for name, (differs, kind, value) in parts.items()
        if differs
    ]


def _message(index: int, setting: bytes, what: str) -> Message:
    payload = IFINFO.pack(0, 0, index, 0, 0) + codec.nested(_VFINFO_LIST, codec.nested(_VF_INFO, setting))
    return Message(RTM_NEWLINK, 0, payload, f"set the {what} on link {index}")


def _read(entry: bytes) -> tuple[int, VfSettings]:
    found = codec.attributes(entry)
    number, mac = struct.unpack_from("=I6s", found[_MAC])
    _, vlan, priority = struct.unpack_from("=III", found[_VLAN])
    low, high = struct.unpack_from("=III", found[_RATE])[1:] if _RATE in found else (0, 0)
    return number, VfSettings(
        mac=codec.mac_text(mac),
        vlan=vlan,
        priority=priority,
        spoof_check=_switch(found.get(_SPOOFCHK), True),
        trust=_switch(found.get(_TRUST), False),
        min_rate=low,
        max_rate=high,
    )


def _switch(value: bytes | None, otherwise: bool) -> bool:
    state = struct.unpack_from("=II", value)[1] if value else _UNKNOWN
    return otherwise if state == _UNKNOWN else bool(state)


def _file(sysfs_root: str, address: str) -> Path:
    return Path(sysfs_root, "bus/pci/devices", address, "sriov_numvfs")


def _write(sysfs_root: str, address: str, number: int) -> None:
    try:
        write_existing(str(_file(sysfs_root, address)), str(number))
    except OSError as error:
        raise SriovError(
            f"cannot set sriov_numvfs of {address} to {number}: {error.strerror}; is sysfs mounted writable?"
        ) from error
