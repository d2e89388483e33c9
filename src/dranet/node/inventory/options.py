"""What the operator chooses about the inventory."""

from __future__ import annotations

import msgspec

from dranet.core.attributes import DEFAULT_FILTER
from dranet.node.inventory.rails import RailSource


class InventoryOptions(msgspec.Struct, frozen=True):
    """Settings of a scan."""

    filter: str = DEFAULT_FILTER
    """CEL over ``attributes``; empty keeps every device."""
    move_ib_interfaces: bool = True
    """False: IPoIB interfaces stay on the host, and their NICs are offered as RDMA-only devices."""
    uplink_interfaces: tuple[str, ...] = ()
    """Name patterns of the node's uplinks; empty: the links of default routes."""
    offer_interfaces: tuple[str, ...] = ()
    """Patterns of interface names or PCI addresses to offer although the node's network depends on them."""
    rails: RailSource = RailSource()
    """Where the rail of a NIC is read from."""
    shared_nics: str = ""
    """CEL like `filter`: devices for which it is true can be shared by several claims; empty: none."""
    sriov_vfs: str = ""
    """CEL like `filter`: physical functions for which it is true are offered whole or as VFs; empty: none."""
    list_attributes: bool = False
    """Publish the standard NUMA attribute as a list (feature gate DRAListTypeAttributes)."""
