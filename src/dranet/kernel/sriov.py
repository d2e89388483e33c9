"""Virtual functions of a PCI card: made, removed, and what the physical function decides over each of them.

The kernel takes only "from none to n" and "none": making them one by one would destroy those that are in use. What is
set here belongs to the physical function's side, where a pod with the virtual one cannot reach it.
"""

from __future__ import annotations

import struct
import time
from pathlib import Path

import msgspec

from dranet.kernel import codec
from dranet.kernel.codec import Message
from dranet.kernel.errors import KernelError
from dranet.kernel.links import RTM_GETLINK, RTM_NEWLINK
from dranet.kernel.netlink import NetlinkSocket

WAIT_SECONDS = 10.0
_IFINFO = struct.Struct("=BxHiII")
_EXT_MASK, _FILTER_VF = 29, 1
_VFINFO_LIST, _VF_INFO = 22, 1
_MAC, _VLAN, _SPOOFCHK, _RATE, _TRUST = 1, 2, 4, 6, 9
_UNKNOWN = 0xFFFFFFFF
"""What the kernel says of a setting that the card's driver does not have."""


class SriovError(KernelError):
    """Virtual functions that could not be made or removed; says why."""


class VfSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a physical function decides over a virtual one. Rates are Mbit/s, 0 for none; a MAC of zeros is none."""

    mac: str = "00:00:00:00:00:00"
    vlan: int = 0
    priority: int = 0
    spoof_check: bool = True
    trust: bool = False
    min_rate: int = 0
    max_rate: int = 0


def count(sysfs_root: str, address: str) -> int:
    """How many virtual functions there are now; none where the card is gone."""
    try:
        return int(_file(sysfs_root, address).read_text())
    except (OSError, ValueError):
        return 0


def make(sysfs_root: str, address: str, total: int) -> None:
    """All of them at once; returns when the kernel has them."""
    _write(sysfs_root, address, total)


def remove(sysfs_root: str, address: str) -> None:
    """All of them; nothing to do where there are none."""
    if count(sysfs_root, address):
        _write(sysfs_root, address, 0)


def wait_for_interface(sysfs_root: str, address: str, number: int, seconds: float = WAIT_SECONDS) -> None:
    """Until a virtual function has a network interface: its driver may have to be loaded first."""
    folder = Path(sysfs_root, "bus/pci/devices", address, f"virtfn{number}", "net")
    end = time.monotonic() + seconds
    while not folder.is_dir() or not any(folder.iterdir()):
        if time.monotonic() > end:
            raise SriovError(
                f"virtual function {number} of {address} has no network interface after {seconds:g} s: "
                "is its driver loaded, and sriov_drivers_autoprobe 1?"
            )
        time.sleep(0.02)


def settings(socket: NetlinkSocket, index: int) -> dict[int, VfSettings]:
    """What the physical function with this link decides over each of its virtual ones, by number."""
    payload = _IFINFO.pack(0, 0, index, 0, 0) + codec.u32(_EXT_MASK, _FILTER_VF)
    replies = socket.request(Message(RTM_GETLINK, 0, payload, f"look up the virtual functions of link {index}"))
    entries = codec.attributes(replies[0].payload, _IFINFO.size).get(_VFINFO_LIST, b"")
    return dict(_read(value) for kind, value in codec.attribute_list(entries) if kind == _VF_INFO)


def change(index: int, number: int, was: VfSettings, wanted: VfSettings) -> list[Message]:
    """One message for each setting that differs: a driver that lacks one refuses that one by name."""
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
    payload = _IFINFO.pack(0, 0, index, 0, 0) + codec.nested(_VFINFO_LIST, codec.nested(_VF_INFO, setting))
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
        _file(sysfs_root, address).write_text(str(number))
    except OSError as error:
        raise SriovError(
            f"cannot set sriov_numvfs of {address} to {number}: {error.strerror}; is sysfs mounted writable?"
        ) from error
