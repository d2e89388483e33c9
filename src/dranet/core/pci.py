"""PCI addresses, and which PCI classes are GPUs.

A PCI address survives renames, driver reloads and moves between network namespaces. That is why devices are named after
it.
"""

from __future__ import annotations

import re

import msgspec

from dranet.core.errors import InvalidInput

_FORM = re.compile(r"(?:([0-9a-fA-F]{4}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-9a-fA-F])")

# VGA, 3D and other display controllers, and processing accelerators: GPUs use any of these classes.
_GPU_CLASSES = frozenset({"0300", "0302", "0380", "1200"})

GPU_BASE_CLASSES = frozenset(code[:2] for code in _GPU_CLASSES)
"""The first two digits of a GPU's class, for callers that filter the bus by base class."""

GPU_DRIVERS = {"10de": "gpu.nvidia.com", "1002": "gpu.amd.com", "8086": "gpu.intel.com"}
"""The DRA driver that publishes a vendor's GPUs, by PCI vendor ID."""


class PciAddress(msgspec.Struct, frozen=True, order=True):
    """Domain, bus, device and function; sorts numerically."""

    domain: int
    bus: int
    device: int
    function: int

    @classmethod
    def parse(cls, text: str) -> PciAddress:
        """Parse ``dddd:bb:dd.f`` or ``bb:dd.f`` in either case."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise InvalidInput(f"{text!r} is not a PCI address; write it as dddd:bb:dd.f, for example 0000:8a:00.0")
        domain, bus, device, function = match.groups()
        return cls(int(domain or "0", 16), int(bus, 16), int(device, 16), int(function, 16))

    @classmethod
    def find(cls, text: str) -> PciAddress | None:
        """The address, or None if ``text`` is not a full PCI address. For the components of a sysfs path."""
        return cls.parse(text) if _FORM.fullmatch(text) and len(text) == 12 else None

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"


def is_gpu(class_code: str) -> bool:
    """Whether a function of this class (six hex digits) is a GPU.

    The display chip of a server's management controller has such a class too. To find only GPUs that pods can use, also
    check that the vendor is in GPU_DRIVERS.
    """
    return class_code[:4] in _GPU_CLASSES
