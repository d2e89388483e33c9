"""The inventory of one node, through its seams: kernel, cloud and the list of PCI names.

A look is synchronous and takes milliseconds; when to look is the watcher's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dranet.inventory.cloud.provider import CloudProvider
from dranet.inventory.filter import DeviceFilter
from dranet.inventory.in_use import InUse
from dranet.inventory.kernel_records import read_kernel
from dranet.inventory.look import Look, Memory, Options
from dranet.inventory.pciids import PciIds
from dranet.inventory.snapshot import Snapshot
from dranet.inventory.sources import Kernel, LiveKernel
from dranet.inventory.uplinks import Lifelines
from dranet.model.errors import DranetError


class Inventory:
    """Looks at one node. Equal worlds give equal snapshots: what is kept between looks only saves work."""

    def __init__(
        self,
        options: Options | None = None,
        kernel: Kernel | None = None,
        cloud: CloudProvider | None = None,
        pci_ids: PciIds | None = None,
        problems: Sequence[str] = (),
        lifelines: Callable[[], Lifelines] = Lifelines,
    ) -> None:
        self.options = options or Options()
        self.cloud = cloud
        self._filter = DeviceFilter(self.options.filter)
        self._shared = DeviceFilter(self.options.shared_cards)
        self._split = DeviceFilter(self.options.sriov_vfs)
        self._kernel: Kernel = kernel or LiveKernel()
        self._pci_ids = pci_ids or PciIds()
        self._problems = tuple(problems)
        self._lifelines = lifelines
        self._cloud_problems: tuple[str, ...] = ()
        self._memory = Memory()

    def look(self, in_use: InUse = dict) -> Snapshot:
        """What is on the node now. ``in_use`` tells the names of claimed devices and what was last known of them.

        It is asked before and after: a card that is claimed or given back while we look is changing under our eyes.
        """
        held = in_use()
        world = read_kernel(self._kernel, self._lifelines(), self.options.uplink_interfaces)
        look = Look(
            options=self.options,
            world=world,
            keeps=self._filter.keeps,
            cloud=self.cloud,
            pci_ids=self._pci_ids,
            in_use={**held, **in_use()},
            memory=self._memory,
            routes=self._kernel.routes() if self.options.rails.kind == "subnet" else (),
            shares=self._shared.is_true_for if self.options.shared_cards else None,
            splits=self._split.is_true_for if self.options.sriov_vfs else None,
        )
        self._memory = look.memory
        return look.snapshot((*self._problems, *self._cloud_problems))

    async def ask_cloud(self, snapshot: Snapshot) -> bool:
        """Let the cloud provider fetch what it knows about these devices; True if another look will show more."""
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
