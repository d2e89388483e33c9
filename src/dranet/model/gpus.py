"""What counts as a GPU on the PCI bus: once, for what is near a card and for machines written down as shapes."""

from __future__ import annotations

_CLASSES = frozenset({"0300", "0302", "0380", "1200"})
"""VGA, 3D and other display controllers, processing accelerators: GPUs call themselves any of these."""

BASE_CLASSES = frozenset(code[:2] for code in _CLASSES)
"""The first two digits, for readers that ask the bus by them."""

DRIVERS = {"10de": "gpu.nvidia.com", "1002": "gpu.amd.com", "8086": "gpu.intel.com"}
"""The DRA driver that publishes a vendor's GPUs, by PCI vendor ID."""


def is_gpu(class_code: str) -> bool:
    """Whether a function of this class (six hex digits) is one. The display chip of a server's management controller
    is a GPU by class too; who wants only those that a pod can be given asks for its vendor's driver as well."""
    return class_code[:4] in _CLASSES
