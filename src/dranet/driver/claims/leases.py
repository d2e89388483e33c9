"""Who keeps DHCP leases alive: obtained at prepare, renewed while the pod lives, given back when the claim ends.

Waiting for a server is done on threads of our own: hooks share theirs with everybody else, and must find one free.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from dranet.driver.log_fields import about
from dranet.driver.namespaces import Host
from dranet.driver.parts import lease as leasing
from dranet.driver.records.plan import ClaimPlan, DevicePlan
from dranet.driver.store import Store
from dranet.kernel.dhcp import Lease, LeaseRefused
from dranet.kernel.errors import KernelError

log = logging.getLogger(__name__)

OBTAIN_SECONDS = 5.0
AT_ONCE = 16
"""How many servers may keep us waiting at the same time."""

_T = TypeVar("_T")
Key = tuple[str, str, tuple[str, str | None]]


class Leases:
    """The leases of this node's plans, one renewal task a device."""

    def __init__(self, host: Host, store: Store, *, patience: float = OBTAIN_SECONDS) -> None:
        self._host = host
        self._store = store
        self._patience = patience
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        """By claim UID, network namespace and device."""
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="dhcp")

    async def _aside(self, function: Callable[..., _T], *arguments: object) -> _T:
        inside = contextvars.copy_context()  # whom log lines are about comes along
        return await asyncio.get_running_loop().run_in_executor(self._threads, inside.run, function, *arguments)

    def close(self) -> None:
        """No more renewing; returns when nobody waits for a server, and the sockets of the node may be closed."""
        for task in self._tasks.values():
            task.cancel()
        self._threads.shutdown(cancel_futures=True)

    async def obtain(self, devices: Sequence[DevicePlan]) -> list[DevicePlan]:
        """The plans with what DHCP says, for those that want it; raises DhcpError where nobody answers."""
        wanting = [device for device in devices if device.wanted and device.wanted.dhcp]
        asked = (self._aside(leasing.obtain, self._host, device, self._patience) for device in wanting)
        by_key = {device.key: device for device in await asyncio.gather(*asked)}
        return [by_key.get(device.key, device) for device in devices]

    def keep(self, plans: Iterable[ClaimPlan], netns: str) -> None:
        """Renew the leases of these plans for as long as their pod lives, and no longer in an earlier sandbox of it."""
        for plan in plans:
            for key in [key for key in self._tasks if key[0] == plan.uid and key[1] != netns]:
                self._tasks.pop(key).cancel()
            for device in plan.devices:
                key = (plan.uid, netns, device.key)
                if device.lease and (key not in self._tasks or self._tasks[key].done()):
                    with about(pod=plan.pod, claim=plan.ref, device=device.name):
                        work = self._renew_forever(plan.uid, device, netns)
                        self._tasks[key] = asyncio.get_running_loop().create_task(work)

    def stop(self, plan: ClaimPlan) -> None:
        """No more renewing: the pod is ending."""
        for key in [key for key in self._tasks if key[0] == plan.uid]:
            self._tasks.pop(key).cancel()

    async def release(self, plan: ClaimPlan) -> None:
        """Tell the servers that the addresses are free; the cards are home. Nothing depends on it."""
        self.stop(plan)
        for device in plan.devices:
            with about(device=device.name):
                if device.lease:
                    await self._aside(leasing.release, self._host, device)

    async def _renew_forever(self, claim_uid: str, device: DevicePlan, netns: str) -> None:
        kept: Mapping[str, Any] = device.lease
        while True:
            lease, age = leasing.read(kept, self._host.boot)
            if age >= lease.lifetime:
                await self._end(claim_uid, device, lease, netns, f"nobody renewed it in {lease.lifetime} s")
                return
            await asyncio.sleep(leasing.pause_before_renewal(lease, age))
            try:
                renewed = await self._aside(leasing.renew, self._host, device, lease, netns)
            except LeaseRefused as error:
                await self._end(claim_uid, device, lease, netns, str(error))
                return
            except (KernelError, OSError) as error:
                log.warning("DHCP renewal of %s failed: %s", lease.address, error)
                continue
            kept = leasing.record(renewed, self._host.boot)
            await self._aside(self._remember, claim_uid, device, {"lease": kept})

    async def _end(self, claim_uid: str, device: DevicePlan, lease: Lease, netns: str, why: str) -> None:
        """The address is not ours any more: it goes from the pod, and from the plan, so that nothing puts it back."""
        log.error("the lease of %s has ended, and the address is removed from the pod: %s", lease.address, why)
        wanted = leasing.without_lease(device.wanted, lease) if device.wanted else None
        await self._aside(self._remember, claim_uid, device, {"lease": {}, "wanted": wanted})
        try:
            await self._aside(leasing.take_off, self._host, device, lease, netns)
        except (KernelError, OSError) as error:
            log.warning("%s may still be on the pod: %s", lease.address, error)

    def _remember(self, claim_uid: str, device: DevicePlan, changes: Mapping[str, Any]) -> None:
        plan = self._store.get(claim_uid)
        if plan is not None:
            changed = (msgspec.structs.replace(d, **changes) if d.key == device.key else d for d in plan.devices)
            self._store.change(claim_uid, devices=tuple(changed))
