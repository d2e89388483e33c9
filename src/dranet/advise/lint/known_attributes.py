"""Attribute names that drivers publish, for rules that run without hardware.

Those of cloud providers are loaded only if needed: finding the installed providers takes longer than linting a file.
"""

from __future__ import annotations

from functools import cache

from dranet.core.attributes import ATTRIBUTES, CAPACITIES, STANDARD_DOMAIN

_NVIDIA = (
    "type uuid index minor productName brand architecture cudaComputeCapability cudaDriverVersion driverVersion "
    "addressingMode profile parentUUID parentIndex parentMinor memory multiprocessors copyEngines decoders encoders "
    "jpegEngines ofaEngines virtualizable pcieBusID"
)
_OUR_ATTRIBUTES = frozenset(doc.name for doc in ATTRIBUTES)

WITHOUT_CLOUD = (
    _OUR_ATTRIBUTES
    | {doc.name for doc in CAPACITIES}
    | {f"gpu.nvidia.com/{name}" for name in _NVIDIA.split()}
    | {f"{STANDARD_DOMAIN}/{name}" for name in ("pcieRoot", "pciBusID", "numaNode")}
)
"""Names that our driver and NVIDIA's publish outside of clouds too."""


@cache
def _cloud_attributes() -> frozenset[str]:
    from dranet.core.cloud_plugins import cloud_attributes

    return frozenset(doc.name for doc in cloud_attributes())


def all_known() -> frozenset[str]:
    """All known names."""
    return WITHOUT_CLOUD | _cloud_attributes()


def may_publish(name: str) -> bool:
    """Whether our driver publishes this attribute on some nodes."""
    return name in _OUR_ATTRIBUTES or name in _cloud_attributes()


def our_domains() -> frozenset[str]:
    """The domains of all attributes of our driver."""
    return frozenset(name.partition("/")[0] for name in _OUR_ATTRIBUTES | _cloud_attributes())
