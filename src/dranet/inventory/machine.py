"""What cloud providers want to know about the machine before they are asked."""

from __future__ import annotations

from dranet.inventory.cloud.provider import CloudContext, Firmware
from dranet.kernel.hardware import rdma_devices
from dranet.kernel.sysfs import Sysfs

_DMI = "class/dmi/id"


def cloud_context(sysfs: Sysfs, webhook_url: str = "") -> CloudContext:
    """The firmware's words and the RDMA devices, read once at start."""
    words = (sysfs.read(_DMI, name) or "" for name in ("sys_vendor", "product_name", "chassis_asset_tag"))
    return CloudContext(
        firmware=Firmware(*words),
        webhook_url=webhook_url,
        rdma_devices={device.name: device.pci_address for device in rdma_devices(sysfs) if device.pci_address},
    )
