"""What is on this node: network and RDMA devices, what they are near to, and why some are left alone.

:class:`Inventory` looks once, :class:`Watcher` decides when to look again, :mod:`dranet.inventory.cloud` asks the place
the node runs in. A look gives a :class:`Snapshot`, whose devices are exactly what is published.
"""

from dranet.inventory.inventory import Inventory
from dranet.inventory.look import Options
from dranet.inventory.snapshot import Accelerator, Fault, Netdev, NodeDevice, Place, Skipped, Snapshot
from dranet.inventory.sources import Kernel, LiveKernel
from dranet.inventory.watcher import Pace, Watcher
from dranet.model.attributes import DEFAULT_FILTER
from dranet.model.faults import FaultKind

__all__ = [
    "DEFAULT_FILTER",
    "Fault",
    "FaultKind",
    "Inventory",
    "Kernel",
    "LiveKernel",
    "Accelerator",
    "Netdev",
    "NodeDevice",
    "Options",
    "Pace",
    "Place",
    "Skipped",
    "Snapshot",
    "Watcher",
]
