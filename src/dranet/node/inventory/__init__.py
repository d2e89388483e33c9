"""The devices of this node: network and RDMA devices, their positions, and why others are skipped.

:class:`Inventory` scans once, :class:`Watcher` decides when to scan again, and :mod:`dranet.node.inventory.cloud` asks
the cloud's metadata service. A scan returns a :class:`Snapshot`, whose devices are exactly what is published.
"""

from dranet.core.attributes import DEFAULT_FILTER
from dranet.core.device import FaultKind
from dranet.node.inventory.inventory import Inventory
from dranet.node.inventory.options import InventoryOptions
from dranet.node.inventory.snapshot import Accelerator, Fault, Netdev, NetdevLocation, NodeDevice, Skipped, Snapshot
from dranet.node.inventory.sources import Kernel, LiveKernel
from dranet.node.inventory.watcher import Watcher, WatchIntervals

__all__ = [
    "DEFAULT_FILTER",
    "Accelerator",
    "Fault",
    "FaultKind",
    "Inventory",
    "InventoryOptions",
    "Kernel",
    "LiveKernel",
    "Netdev",
    "NetdevLocation",
    "NodeDevice",
    "Skipped",
    "Snapshot",
    "WatchIntervals",
    "Watcher",
]
