"""What cloud providers want to know about the machine before they are asked."""

from __future__ import annotations

from typing import Any

from dranet.inventory.cloud.provider import CloudContext, Firmware
from dranet.inventory.node_network import LiveNetwork
from dranet.kernel.hardware import rdma_devices
from dranet.kernel.sysfs import Sysfs

_DMI = "class/dmi/id"


def cloud_context(sysfs: Sysfs, webhook_url: str = "", **known: Any) -> CloudContext:
    """The firmware's words and the RDMA devices, read once at start; `known` are further fields of the context."""
    words = (sysfs.read(_DMI, name) or "" for name in ("sys_vendor", "product_name", "chassis_asset_tag"))
    return CloudContext(
        firmware=Firmware(*words),
        webhook_url=webhook_url,
        network=LiveNetwork(str(sysfs.root)),
        rdma_devices={device.name: device.pci_address for device in rdma_devices(sysfs) if device.pci_address},
        **known,
    )
