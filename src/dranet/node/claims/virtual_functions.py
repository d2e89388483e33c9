"""Creates the virtual functions of a device with the first claim, and removes them with the last.

All of a device at once, because the kernel knows nothing else; and with the first claim, so that a device that is only
claimed whole is never changed.

A claim is in the store before its virtual functions are created, and is deleted after they are removed, both under one
lock for each physical function. So after a crash the store has a claim for the driver's virtual functions, and virtual
functions without a claim belong to other programs and are never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from dranet.core.errors import Busy
from dranet.core.logs import get_logger
from dranet.core.names import pci_device_name, physical_function_name
from dranet.core.pci import PciAddress
from dranet.linux import links, sriov
from dranet.linux.hardware import pci_function
from dranet.linux.sysfs import Sysfs
from dranet.node.faultpoints import reach
from dranet.node.features.base import raise_first
from dranet.node.features.interface import take_down_messages
from dranet.node.features.vf import FEATURE, VfRecord, physical_link
from dranet.node.inventory.snapshot import NodeDevice
from dranet.node.lifecycle.pod_locks import PodLocks
from dranet.node.namespaces import Host
from dranet.node.records.plan import ClaimPlan, DevicePlan
from dranet.node.store import Store

log = get_logger(__name__)


class VirtualFunctions:
    """Creates and removes the virtual functions of claims."""

    def __init__(self, host: Host, store: Store) -> None:
        self._host, self._store = host, store
        self._locks = PodLocks(f"{store.path}.functions.lock" if store.path else None)

    def create(self, plan: ClaimPlan, devices: Sequence[tuple[DevicePlan, NodeDevice]]) -> ClaimPlan:
        """The plan with these devices, after it is stored and the virtual functions exist."""
        for device, seen in devices:
            assert seen.pf is not None
            assert seen.vf is not None
            pf = str(seen.pf)
            with self._locks.hold(pf):
                record = VfRecord(pf=pf, number=seen.vf, was_up=self._was_up(pf))
                plan = msgspec.structs.replace(
                    plan, devices=(*plan.devices, FEATURE.with_record(device, record)), provisional=True
                )
                self._create(plan, pf)
            sriov.wait_for_interface(self._host.sysfs_root, pf, seen.vf)
        return plan

    def _create(self, plan: ClaimPlan, pf: str) -> None:
        root = self._host.sysfs_root
        if sriov.count(root, pf) and not self._has_claims(pf, plan.uid) and not self._created_for(plan, pf):
            raise Busy(f"{pf} has virtual functions that this driver did not create; remove them first")
        self._store.put(plan)
        reach("functions.stored")
        link = physical_link(self._host, pf)
        if link is None:
            raise Busy(f"{pf} is in a pod, so its virtual functions cannot be created")
        if not link.is_up:  # a virtual function has no carrier while its physical function is down
            self._host.route.request(links.change(link.index, up=True))
        if not sriov.count(root, pf):
            function = pci_function(Sysfs(root), pf)
            total = function.sriov_total_vfs if function else 0
            sriov.create(root, pf, total)
            log.info("Created virtual functions", interface=link.name, count=total)
        reach("functions.created")

    def _created_for(self, plan: ClaimPlan, pf: str) -> bool:
        """Whether they were created for this claim, perhaps before a crash."""
        known = self._store.plans.get(plan.uid)
        return known is not None and any(_is_of(pf, device.name) for device in known.devices)

    def _was_up(self, pf: str) -> bool:
        records = (FEATURE.record_of(device) for plan in self._store.plans.values() for device in plan.devices)
        before = [record.was_up for record in records if record is not None and record.pf == pf]
        link = physical_link(self._host, pf)
        return before[0] if before else link is None or link.is_up

    def _has_claims(self, pf: str, other_than: str) -> bool:
        """Whether another claim has a virtual function of it, also one with an unreadable plan."""
        plans = {uid: [d.name for d in plan.devices] for uid, plan in self._store.plans.items()}
        plans |= {uid: list(lost.devices) for uid, lost in self._store.unreadable.items()}
        return any(_is_of(pf, name) for uid, names in plans.items() if uid != other_than for name in names)

    @contextmanager
    def releasing(self, plan: ClaimPlan) -> Iterator[None]:
        """Hold while a claim is deleted from the store. Removes its virtual functions unless another claim has some."""
        records = _records_of(plan)
        with ExitStack() as held:
            for pf in sorted(records):
                held.enter_context(self._locks.hold(pf))
                if not self._has_claims(pf, plan.uid):
                    self._remove(records[pf])
            yield

    def _remove(self, record: VfRecord) -> None:
        if sriov.count(self._host.sysfs_root, record.pf):
            sriov.remove(self._host.sysfs_root, record.pf)
            log.info("Removed virtual functions", pci_address=record.pf)
        reach("functions.removed")
        link = physical_link(self._host, record.pf)
        if link is not None and link.is_up and not record.was_up:
            raise_first(self._host.route.batch(take_down_messages(self._host.route, link.index)))


def has_functions(plan: ClaimPlan) -> bool:
    """Whether the claim has virtual functions that the driver created."""
    return bool(_records_of(plan))


def _records_of(plan: ClaimPlan) -> dict[str, VfRecord]:
    """By physical function."""
    return {record.pf: record for device in plan.devices if (record := FEATURE.record_of(device)) is not None}


def _is_of(pf: str, device: str) -> bool:
    address = PciAddress.find(pf)
    return address is not None and physical_function_name(device) == pci_device_name(address)
