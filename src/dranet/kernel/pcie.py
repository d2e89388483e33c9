"""PCIe links and access control of PCI functions, as sysfs shows them.

Virtual functions and virtual machines often say nothing, or nonsense (width 0 or 255, speed Unknown): that reads as
None, which is not the same as slow.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from dranet.kernel.sysfs import Sysfs

_SPEED = re.compile(r"([0-9.]+) GT/s")
_EXTENDED_CAPABILITIES = 0x100
_ACS = 0x0D
_REDIRECT_BITS = 0x04 | 0x08
"""P2P request redirect and P2P completion redirect of the ACS control register."""
_MOST_CAPABILITIES = 64


class LinkState(NamedTuple):
    """Speed in GT/s and lanes."""

    speed: float
    width: int


def link_state(speed: str | None, width: str | None) -> LinkState | None:
    """A link by the texts of its speed and its width; None where they say nothing."""
    rate = _SPEED.match(speed or "")
    if rate is None or width is None or not width.isdigit() or not 0 < int(width) < 255:
        return None
    return LinkState(float(rate[1]), int(width))


def best_link(sysfs: Sysfs, path: str) -> LinkState | None:
    """The most that the function and the port above it can do together."""
    own, above = _link(sysfs, path, "max"), _link(sysfs, path.rpartition("/")[0], "max")
    if own is None or above is None:
        return own
    return LinkState(min(own.speed, above.speed), min(own.width, above.width))


def _link(sysfs: Sysfs, path: str, which: str) -> LinkState | None:
    return link_state(sysfs.read(path, f"{which}_link_speed"), sysfs.read(path, f"{which}_link_width"))


def redirects_peers(sysfs: Sysfs, path: str) -> bool | None:
    """Whether a bridge sends traffic between devices below it up to the root; None where it does not say."""
    config = sysfs.read_bytes(path, "config")
    control = None if config is None else acs_control(config)
    return None if control is None else bool(control & _REDIRECT_BITS)


def acs_control(config: bytes) -> int | None:
    """The access control register in a function's configuration space; None without that capability."""
    at = _EXTENDED_CAPABILITIES
    for _ in range(_MOST_CAPABILITIES):
        if at < _EXTENDED_CAPABILITIES or at + 8 > len(config):
            return None
        (header,) = struct.unpack_from("<I", config, at)
        if header & 0xFFFF == _ACS:
            return int(struct.unpack_from("<H", config, at + 6)[0])
        at = header >> 20
    return None
