"""The attribute names that drivers publish, for rules that must know them without seeing hardware.

Those of a cloud are asked for late: finding the installed clouds takes longer than linting a file, and a name that
every node has needs no cloud.
"""

from __future__ import annotations

from functools import cache

from dranet.model.attributes import ATTRIBUTES, CAPACITIES, STANDARD_DOMAIN

_NVIDIA = (
    "type uuid index minor productName brand architecture cudaComputeCapability cudaDriverVersion driverVersion "
    "addressingMode profile parentUUID parentIndex parentMinor memory multiprocessors copyEngines decoders encoders "
    "jpegEngines ofaEngines virtualizable pcieBusID"
)
_OUR_ATTRIBUTES = frozenset(doc.name for doc in ATTRIBUTES)

ON_EVERY_NODE = (
    _OUR_ATTRIBUTES
    | {doc.name for doc in CAPACITIES}
    | {f"gpu.nvidia.com/{name}" for name in _NVIDIA.split()}
    | {f"{STANDARD_DOMAIN}/{name}" for name in ("pcieRoot", "pciBusID", "numaNode")}
)
"""Names of ours and of NVIDIA's driver that do not depend on the place."""


@cache
def _of_clouds() -> frozenset[str]:
    from dranet.inventory.cloud.installed import cloud_attributes

    return frozenset(doc.name for doc in cloud_attributes())


def known_anywhere() -> frozenset[str]:
    """Every name we know, whoever publishes it and wherever."""
    return ON_EVERY_NODE | _of_clouds()


def may_publish(name: str) -> bool:
    """Whether our driver has this attribute on some node."""
    return name in _OUR_ATTRIBUTES or name in _of_clouds()


def our_domains() -> frozenset[str]:
    """The part before the slash, of all that our driver may publish."""
    return frozenset(name.partition("/")[0] for name in _OUR_ATTRIBUTES | _of_clouds())
