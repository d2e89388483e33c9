"""Virtual functions come when the first is claimed, and go when the last is given back.

All of a card at once, for the kernel takes nothing else. At the first claim rather than at start: a card that nobody
wants in parts is never touched, and one that is wanted whole has no virtual functions to get rid of first.

Who holds one is in the store before they are made, and is struck from it after they are removed, both under one lock
for each physical function. So whoever comes after a crash finds a claim in the store for virtual functions that are
there, and virtual functions without a claim are somebody else's: those are never touched.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from dranet.driver.faultpoints import reach
from dranet.driver.moving.pod_locks import PodLocks
from dranet.driver.namespaces import Host
from dranet.driver.parts.base import raise_first
from dranet.driver.parts.lowering import lowering
from dranet.driver.parts.vf import PART, VfRecord, physical_link
from dranet.driver.records.plan import ClaimPlan, DevicePlan
from dranet.driver.store import Store
from dranet.inventory.snapshot import NodeDevice
from dranet.kernel import links, sriov
from dranet.kernel.hardware import pci_function
from dranet.kernel.sysfs import Sysfs
from dranet.model.errors import Busy
from dranet.model.names import pci_device_name, physical_function_name
from dranet.model.pci import PciAddress

log = logging.getLogger(__name__)


class Functions:
    """Makes and removes the virtual functions that claims of this node hold."""

    def __init__(self, host: Host, store: Store) -> None:
        self._host, self._store = host, store
        self._locks = PodLocks(f"{store.path}.functions.lock" if store.path else None)

    def make(self, plan: ClaimPlan, devices: Sequence[tuple[DevicePlan, NodeDevice]]) -> ClaimPlan:
        """The plan with these devices, written down, and each of them there."""
        for device, seen in devices:
            assert seen.pf is not None
            assert seen.vf is not None
            pf = str(seen.pf)
            with self._locks.hold(pf):
                record = VfRecord(pf=pf, number=seen.vf, was_up=self._was_up(pf))
                plan = msgspec.structs.replace(
                    plan, devices=(*plan.devices, PART.keep(device, record)), provisional=True
                )
                self._make(plan, pf)
            sriov.wait_for_interface(self._host.sysfs_root, pf, seen.vf)
        return plan

    def _make(self, plan: ClaimPlan, pf: str) -> None:
        root = self._host.sysfs_root
        if sriov.count(root, pf) and not self._holders(pf, plan.uid) and not self._is_known(plan, pf):
            raise Busy(f"{pf} has virtual functions that somebody else made; it is left alone")
        self._store.put(plan)
        reach("functions.stored")
        link = physical_link(self._host, pf)
        if link is None:
            raise Busy(f"{pf} is in a pod as a whole; its virtual functions cannot be made")
        if not link.is_up:  # a virtual function has no link while its card is down
            self._host.route.request(links.change(link.index, up=True))
        if not sriov.count(root, pf):
            function = pci_function(Sysfs(root), pf)
            total = function.sriov_total_vfs if function else 0
            sriov.make(root, pf, total)
            log.info("%d virtual functions of %s are made", total, link.name)
        reach("functions.made")

    def _is_known(self, plan: ClaimPlan, pf: str) -> bool:
        """Whether this claim itself had them made, a moment or a crash ago."""
        known = self._store.plans.get(plan.uid)
        return known is not None and any(_is_of(pf, device.name) for device in known.devices)

    def _was_up(self, pf: str) -> bool:
        held = (PART.of(device) for plan in self._store.plans.values() for device in plan.devices)
        before = [record.was_up for record in held if record is not None and record.pf == pf]
        link = physical_link(self._host, pf)
        return before[0] if before else link is None or link.is_up

    def _holders(self, pf: str, other_than: str) -> bool:
        """Whether another claim has a virtual function of it, also one whose plan cannot be read."""
        plans = {uid: [d.name for d in plan.devices] for uid, plan in self._store.plans.items()}
        plans |= {uid: list(lost.devices) for uid, lost in self._store.unreadable.items()}
        return any(_is_of(pf, name) for uid, names in plans.items() if uid != other_than for name in names)

    @contextmanager
    def ending(self, plan: ClaimPlan) -> Iterator[None]:
        """While a claim is struck from the store: what was made for it goes, unless another claim has some of it."""
        records = _records_of(plan)
        with ExitStack() as held:
            for pf in sorted(records):
                held.enter_context(self._locks.hold(pf))
                if not self._holders(pf, plan.uid):
                    self._remove(records[pf])
            yield

    def _remove(self, record: VfRecord) -> None:
        if sriov.count(self._host.sysfs_root, record.pf):
            sriov.remove(self._host.sysfs_root, record.pf)
            log.info("the virtual functions of %s are removed", record.pf)
        reach("functions.removed")
        link = physical_link(self._host, record.pf)
        if link is not None and link.is_up and not record.was_up:
            raise_first(self._host.route.batch(lowering(self._host.route, link.index)))


def has_functions(plan: ClaimPlan) -> bool:
    """Whether anything was made for it that goes with it."""
    return bool(_records_of(plan))


def _records_of(plan: ClaimPlan) -> dict[str, VfRecord]:
    """By physical function."""
    return {record.pf: record for device in plan.devices if (record := PART.of(device)) is not None}


def _is_of(pf: str, device: str) -> bool:
    address = PciAddress.find(pf)
    return address is not None and physical_function_name(device) == pci_device_name(address)
