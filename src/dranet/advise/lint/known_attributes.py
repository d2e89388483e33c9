"""Attribute names that drivers publish, for rules that run without hardware.

Those of cloud providers are loaded only if needed: finding the installed providers takes longer than linting a file.
"""

from __future__ import annotations

from functools import cache

from dranet.advise.manifests import vendor_attributes
from dranet.core.attributes import ATTRIBUTES, CAPACITIES, STANDARD_DOMAIN

_OUR_ATTRIBUTES = frozenset(doc.name for doc in ATTRIBUTES)

WITHOUT_CLOUD = (
    _OUR_ATTRIBUTES
    | {doc.name for doc in CAPACITIES}
    | vendor_attributes()
    | {f"{STANDARD_DOMAIN}/{name}" for name in ("pcieRoot", "pciBusID", "numaNode")}
)
"""Names that our driver and those of vendors publish outside of clouds too."""


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
