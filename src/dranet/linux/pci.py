"""PCIe link speeds, access control services (ACS), and rebinding a PCI function to its driver.

Virtual functions and virtual machines often report nothing, or invalid values (width 0 or 255, speed Unknown). These
read as None, which does not mean slow.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from dranet.core.errors import KernelError
from dranet.linux.files import becomes_true, write_existing
from dranet.linux.hardware import pci_function
from dranet.linux.sysfs import Sysfs

_SPEED = re.compile(r"([0-9.]+) GT/s")
_EXTENDED_CAPABILITIES = 0x100
_ACS = 0x0D
_REDIRECT_BITS = 0x04 | 0x08
"""P2P request redirect and P2P completion redirect of the ACS control register."""
_MOST_CAPABILITIES = 64
_REBIND_SECONDS = 10.0


class LinkState(NamedTuple):
    """Speed in GT/s and lanes."""

    speed: float
    width: int

    def is_below(self, other: LinkState) -> bool:
        return self.speed < other.speed or self.width < other.width

    def __str__(self) -> str:
        return f"{self.speed:g} GT/s x{self.width}"


def link_state(speed: str | None, width: str | None) -> LinkState | None:
    """Parse the sysfs values of speed and width; None if they are unknown."""
    rate = _SPEED.match(speed or "")
    if rate is None or width is None or not width.isdigit() or not 0 < int(width) < 255:
        return None
    return LinkState(float(rate[1]), int(width))


def best_link(sysfs: Sysfs, path: str) -> LinkState | None:
    """The best link that the function and its upstream port both support."""
    own, above = _link(sysfs, path, "max"), _link(sysfs, path.rpartition("/")[0], "max")
    if own is None or above is None:
        return own
    return LinkState(min(own.speed, above.speed), min(own.width, above.width))


def _link(sysfs: Sysfs, path: str, which: str) -> LinkState | None:
    return link_state(sysfs.read(path, f"{which}_link_speed"), sysfs.read(path, f"{which}_link_width"))


def redirects_peers(sysfs: Sysfs, path: str) -> bool | None:
    """Whether a bridge redirects traffic between devices below it to the root complex; None if unknown."""
    config = sysfs.read_bytes(path, "config")
    control = None if config is None else acs_control(config)
    return None if control is None else bool(control & _REDIRECT_BITS)


def acs_control(config: bytes) -> int | None:
    """The ACS control register in a function's configuration space; None without that capability."""
    at = _EXTENDED_CAPABILITIES
    for _ in range(_MOST_CAPABILITIES):
        if at < _EXTENDED_CAPABILITIES or at + 8 > len(config):
            return None
        (header,) = struct.unpack_from("<I", config, at)
        if header & 0xFFFF == _ACS:
            return int(struct.unpack_from("<H", config, at + 6)[0])
        at = header >> 20
    return None


class RebindError(KernelError):
    """The function could not be unbound, or its driver did not bind it again."""


def rebind(sysfs_root: str, address: str, wait: float = _REBIND_SECONDS) -> None:
    """Unbind the function from its driver, bind it again, and wait for its netdev.

    This is the last way to recover a netdev: the driver creates a new one in the initial network namespace, even if a
    process keeps the namespace of the old one alive. All settings of the old netdev are lost, and the function's
    traffic, RDMA device and virtual functions are interrupted.
    """
    function = pci_function(Sysfs(sysfs_root), address)
    if function is None or function.driver is None:
        reason = "no such PCI function" if function is None else "it has no driver"
        raise RebindError(f"cannot rebind {address}: {reason}")
    if function.sriov_num_vfs:
        raise RebindError(
            f"cannot rebind {address}: it has {function.sriov_num_vfs} virtual functions; delete them first"
        )
    folder = f"{sysfs_root}/bus/pci/drivers/{function.driver}"
    _write(f"{folder}/unbind", address)
    _write(f"{folder}/bind", address)
    if not becomes_true(lambda: _has_netdev(sysfs_root, address), wait):
        raise RebindError(
            f"{address} was bound to {function.driver} again, but has no netdev after {wait:g} s; check dmesg"
        )


def _has_netdev(sysfs_root: str, address: str) -> bool:
    function = pci_function(Sysfs(sysfs_root), address)  # a new reader, because a Sysfs caches folders
    return function is not None and bool(function.netdevs)


def _write(path: str, text: str) -> None:
    try:
        write_existing(path, text)
    except OSError as error:
        raise RebindError(f"cannot write {text} to {path}: {error.strerror}; is sysfs mounted writable?") from error
