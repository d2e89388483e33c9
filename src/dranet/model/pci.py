"""PCI addresses, the stable identity of a card.

A function's address survives renames, driver reloads and moves between network namespaces, which is why devices are
named after it.
"""

from __future__ import annotations

import re

import msgspec

from dranet.model.errors import InvalidInput

_FORM = re.compile(r"(?:([0-9a-fA-F]{4}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-9a-fA-F])")


class PciAddress(msgspec.Struct, frozen=True, order=True):
    """Domain, bus, device and function; sorts as the numbers do."""

    domain: int
    bus: int
    device: int
    function: int

    @classmethod
    def parse(cls, text: str) -> PciAddress:
        """Read ``dddd:bb:dd.f`` or ``bb:dd.f``, any case."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise InvalidInput(f"{text!r} is not a PCI address; write it as dddd:bb:dd.f, for example 0000:8a:00.0")
        domain, bus, device, function = match.groups()
        return cls(int(domain or "0", 16), int(bus, 16), int(device, 16), int(function, 16))

    @classmethod
    def find(cls, text: str) -> PciAddress | None:
        """The address, or None where ``text`` is none: for walking paths."""
        return cls.parse(text) if _FORM.fullmatch(text) and len(text) == 12 else None

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"
