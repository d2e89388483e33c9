"""What cloud providers want to know about the machine before they are asked."""

from __future__ import annotations

from dranet.inventory.cloud.provider import Context, Machine
from dranet.kernel.hardware import rdma_devices
from dranet.kernel.sysfs import Sysfs

_DMI = "class/dmi/id"


def cloud_context(sysfs: Sysfs, webhook_url: str = "") -> Context:
    """The firmware's words and the eRDMA cards, read once at start."""
    words = (sysfs.read(_DMI, name) or "" for name in ("sys_vendor", "product_name", "chassis_asset_tag"))
    erdma = (device.pci_address for device in rdma_devices(sysfs) if device.name.startswith("erdma"))
    return Context(
        machine=Machine(*words),
        webhook_url=webhook_url,
        erdma_addresses=frozenset(address for address in erdma if address),
    )
