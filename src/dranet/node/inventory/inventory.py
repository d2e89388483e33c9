"""The inventory of one node. It asks the kernel, the cloud and the PCI ID list; the watcher decides when to scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dranet.core.errors import DranetError
from dranet.core.pciids import PciIds
from dranet.node.inventory.claimed import ClaimedDevices
from dranet.node.inventory.cloud.provider import CloudProvider
from dranet.node.inventory.device_builder import DeviceBuilder, VirtualDevices
from dranet.node.inventory.filter import DeviceFilter
from dranet.node.inventory.infrastructure import LinkPolicy
from dranet.node.inventory.kernel_records import read_kernel
from dranet.node.inventory.options import InventoryOptions
from dranet.node.inventory.scan import Filters, Refusals, Scan
from dranet.node.inventory.snapshot import Snapshot
from dranet.node.inventory.sources import Kernel, LiveKernel
from dranet.node.inventory.uplinks import UplinkTargets


class Inventory:
    """Scans one node. Equal kernel records give equal snapshots: what is kept between scans only saves work."""

    def __init__(
        self,
        options: InventoryOptions | None = None,
        kernel: Kernel | None = None,
        cloud: CloudProvider | None = None,
        pci_ids: PciIds | None = None,
        problems: Sequence[str] = (),
        uplink_targets: Callable[[], UplinkTargets] = UplinkTargets,
    ) -> None:
        self.options = options or InventoryOptions()
        self.cloud = cloud
        shared, split = DeviceFilter(self.options.shared_nics), DeviceFilter(self.options.sriov_vfs)
        self._filters = Filters(
            keeps=DeviceFilter(self.options.filter).keeps,
            shares=shared.is_true_for if self.options.shared_nics else None,
            splits=split.is_true_for if self.options.sriov_vfs else None,
        )
        self._kernel: Kernel = kernel or LiveKernel()
        self._pci_ids = pci_ids or PciIds()
        self._problems = tuple(problems)
        self._uplink_targets = uplink_targets
        self._cloud_problems: tuple[str, ...] = ()
        self._virtual_devices: VirtualDevices = {}
        self._refusals: Refusals = {}

    def scan(self, claimed: ClaimedDevices = dict) -> Snapshot:
        """What is on the node now. Takes milliseconds and does not wait for the network."""
        # Before and after reading the kernel: a device may be claimed or released in between.
        before = claimed()
        records = read_kernel(self._kernel, self._uplink_targets(), self.options.uplink_interfaces)
        held = {**before, **claimed()}
        routes = self._kernel.routes() if self.options.rails.kind == "subnet" else ()
        builder = DeviceBuilder(self.options, records, self.cloud, self._pci_ids, routes, self._virtual_devices)
        links = LinkPolicy(self.options, records.uplinks, records.infrastructure, self.cloud)
        scan = Scan(records, builder, links, self._filters, held, self._refusals)
        self._virtual_devices, self._refusals = builder.virtual_devices, scan.refusals
        return scan.snapshot((*self._problems, *self._cloud_problems), lambda: self._pci_ids.problem)

    async def ask_cloud(self, snapshot: Snapshot) -> bool:
        """Let the cloud provider fetch what it knows about these devices; True if another scan will show more."""
        if self.cloud is None:
            return False
        before = self._cloud_problems
        try:
            changed = await self.cloud.refresh([device.identity for device in snapshot.devices])
        except DranetError as error:
            self._cloud_problems = (f"cloud provider {self.cloud.name}: {error}",)
            return self._cloud_problems != before
        self._cloud_problems = ()
        return changed or bool(before)
