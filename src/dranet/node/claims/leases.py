"""DHCP leases: obtained at prepare, renewed while the pod runs, released with the claim.

Waiting for servers happens on threads of their own: hooks use the shared thread pool and must find a free thread.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from dranet.core.errors import DranetError, KernelError
from dranet.core.logs import get_logger, log_context
from dranet.linux.dhcp import Lease, LeaseRefused
from dranet.node.features import lease as leasing
from dranet.node.namespaces import Host
from dranet.node.records.plan import ClaimPlan, DevicePlan
from dranet.node.store import Store

log = get_logger(__name__)

_OBTAIN_SECONDS = 5.0
_RETRY_SECONDS = 5.0
"""Between attempts to store that a lease has expired, for example on a full disk."""
_THREADS = 16
"""How many servers can keep the driver waiting at the same time."""

_T = TypeVar("_T")
_Key = tuple[str, str, tuple[str, str | None]]


class Leases:
    """The leases of this node's plans, with one renewal task for each device."""

    def __init__(
        self, host: Host, store: Store, *, patience: float = _OBTAIN_SECONDS, retry_seconds: float = _RETRY_SECONDS
    ) -> None:
        self._host = host
        self._store = store
        self._patience = patience
        self._retry_seconds = retry_seconds
        self._tasks: dict[_Key, asyncio.Task[None]] = {}
        """By claim UID, network namespace and device."""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="dhcp")

    async def _in_thread(self, function: Callable[..., _T], *arguments: object) -> _T:
        context = contextvars.copy_context()  # log lines in the thread keep their pod and claim
        return await asyncio.get_running_loop().run_in_executor(self._threads, context.run, function, *arguments)

    def close(self) -> None:
        """Stop renewing; returns when no thread waits for a server, so that the host's sockets may be closed."""
        for task in self._tasks.values():
            task.cancel()
        self._threads.shutdown(cancel_futures=True)

    async def obtain(self, devices: Sequence[DevicePlan]) -> list[DevicePlan]:
        """The plans with leases, for devices that use DHCP; raises DhcpError where no server answers."""
        wanting = [device for device in devices if device.pod_config and device.pod_config.dhcp]
        obtained = (self._in_thread(leasing.obtain, self._host, device, self._patience) for device in wanting)
        by_key = {device.key: device for device in await asyncio.gather(*obtained)}
        return [by_key.get(device.key, device) for device in devices]

    def keep(self, plans: Iterable[ClaimPlan], netns: str) -> None:
        """Renew the leases of these plans while their pod runs, and stop renewing them in an earlier sandbox of it."""
        for plan in plans:
            for key in [key for key in self._tasks if key[0] == plan.uid and key[1] != netns]:
                self._tasks.pop(key).cancel()
            for device in plan.devices:
                key = (plan.uid, netns, device.key)
                if device.lease and (key not in self._tasks or self._tasks[key].done()):
                    with log_context(pod=plan.pod, claim=plan.ref, device=device.name):
                        work = self._renew_forever(plan.uid, device, netns)
                        self._tasks[key] = asyncio.get_running_loop().create_task(work)

    def stop(self, plan: ClaimPlan) -> None:
        """Stop renewing: the pod is being deleted."""
        for key in [key for key in self._tasks if key[0] == plan.uid]:
            self._tasks.pop(key).cancel()

    async def release(self, plan: ClaimPlan) -> None:
        """Tell the servers that the addresses are free, after detach. Best effort."""
        self.stop(plan)
        for device in plan.devices:
            with log_context(device=device.name):
                if device.lease:
                    await self._in_thread(leasing.release, self._host, device)

    async def _renew_forever(self, claim_uid: str, device: DevicePlan, netns: str) -> None:
        kept: Mapping[str, Any] = device.lease
        while True:
            lease, age = leasing.read(kept, self._host.boot)
            if age >= lease.lifetime:
                reason = f"no server renewed it in {lease.lifetime} s"
                await self._expire(claim_uid, device, lease, netns, reason)
                return
            await asyncio.sleep(leasing.pause_before_renewal(lease, age))
            try:
                renewed = await self._in_thread(leasing.renew, self._host, device, kept, netns)
            except LeaseRefused as error:
                await self._expire(claim_uid, device, lease, netns, str(error))
                return
            except (KernelError, OSError) as error:
                log.warning("Could not renew DHCP lease; will retry", address=lease.address, error=error)
                continue
            kept = leasing.record(renewed, self._host.boot)
            # Where it is not stored, the next renewal is; a driver that restarts before finds an older lease.
            await self._try_to_update(claim_uid, device, {"lease": kept})

    async def _expire(self, claim_uid: str, device: DevicePlan, lease: Lease, netns: str, reason: str) -> None:
        """Remove the address from the pod, and from the plan, so that a repair does not set it again.

        The pod first: the server may give the address to another host now.
        """
        log.error("DHCP lease expired; removing its address from the pod", address=lease.address, reason=reason)
        try:
            await self._in_thread(leasing.remove_address, self._host, device, lease, netns)
        except (KernelError, OSError) as error:
            log.warning("Could not remove expired address from the pod", address=lease.address, error=error)
        config = leasing.without_lease(device.pod_config, lease) if device.pod_config else None
        without: dict[str, Any] = {"lease": {}, "pod_config": config}
        while not await self._try_to_update(claim_uid, device, without):  # noqa: ASYNC110 (the disk sends no event)
            await asyncio.sleep(self._retry_seconds)

    async def _try_to_update(self, claim_uid: str, device: DevicePlan, changes: Mapping[str, Any]) -> bool:
        try:
            await self._in_thread(self._update, claim_uid, device, changes)
        except (DranetError, OSError) as error:
            log.warning("Could not store DHCP lease; will retry", error=error)
            return False
        return True

    def _update(self, claim_uid: str, device: DevicePlan, changes: Mapping[str, Any]) -> None:
        plan = self._store.get(claim_uid)
        if plan is not None:
            changed = (msgspec.structs.replace(d, **changes) if d.key == device.key else d for d in plan.devices)
            self._store.change(claim_uid, devices=tuple(changed))
