"""DHCP leases: obtained at prepare on the host, kept alive inside the pod, given back when the claim ends.

A lease belongs to a plan and is stored with it, so a restarted driver goes on renewing where the old one stopped.
Renewal runs in the pod's namespace, because that is where the address lives.

Waiting for a server is done on threads of our own: hooks share theirs with everybody else, and must find one free.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from dranet.driver.claims.plan import ClaimPlan, DevicePlan, PodSide
from dranet.driver.claims.store import Store
from dranet.driver.moving import network_layers as layers
from dranet.driver.moving.host import Host, Pod, find_at_home, find_in_pod
from dranet.kernel import addresses, links, routes
from dranet.kernel.dhcp import DhcpClient, DhcpError, Lease, LeaseRefused
from dranet.kernel.errors import KernelError

log = logging.getLogger(__name__)

OBTAIN_SECONDS = 5.0
RENEW_SECONDS = 10.0
SHORTEST_PAUSE = 1.0
AT_ONCE = 16
"""How many servers may keep us waiting at the same time."""

_T = TypeVar("_T")


class Leases:
    """The leases of this node's plans, one renewal task a device."""

    def __init__(self, host: Host, store: Store, *, patience: float = OBTAIN_SECONDS) -> None:
        self._host = host
        self._store = store
        self._patience = patience
        self._tasks: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        """By claim UID, network namespace and device."""
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="dhcp")

    async def _aside(self, function: Callable[..., _T], *arguments: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def close(self) -> None:
        """No more renewing; returns when nobody waits for a server, and the sockets of the node may be closed."""
        for task in self._tasks.values():
            task.cancel()
        self._threads.shutdown(cancel_futures=True)

    async def obtain(self, devices: Sequence[DevicePlan]) -> list[DevicePlan]:
        """The plans with what DHCP says, for those that want it; raises DhcpError where nobody answers."""
        wanting = [device for device in devices if device.pod and device.pod.dhcp]
        found = await asyncio.gather(*(self._aside(self._obtain, device) for device in wanting))
        by_name = {device.device: device for device in found}
        return [by_name.get(device.device, device) for device in devices]

    def _obtain(self, device: DevicePlan) -> DevicePlan:
        assert device.host is not None and device.pod is not None
        (card,) = find_at_home(self._host, [device])
        if card is None:
            raise DhcpError(f"{device.host.link.name} is not on this node")
        mac = device.pod.mac or card.mac
        changes = [links.change(card.index, up=False), links.change(card.index, mac=mac)] if mac != card.mac else []
        layers.raise_first(self._host.route.batch([*changes, links.change(card.index, up=True)]))
        with DhcpClient(card.name, mac, namespace_fd=self._host.namespace.fd) as client:
            lease = client.obtain(self._patience)
        log.info("%s: DHCP gave %s/%s for %s s", device.device, lease.address, lease.prefix, lease.lifetime)
        pod = with_lease(device.pod, lease)
        return msgspec.structs.replace(device, pod=pod, lease=_record(lease))

    def keep(self, plans: Iterable[ClaimPlan], netns: str) -> None:
        """Renew the leases of these plans for as long as their pod lives, and no longer in an earlier sandbox of it."""
        for plan in plans:
            for key in [key for key in self._tasks if key[0] == plan.uid and key[1] != netns]:
                self._tasks.pop(key).cancel()
            for device in plan.devices:
                key = (plan.uid, netns, device.device)
                if device.lease and (key not in self._tasks or self._tasks[key].done()):
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
            if device.lease and device.host and device.host.link.is_up:
                await self._aside(_release, self._host, device)

    async def _renew_forever(self, claim_uid: str, device: DevicePlan, netns: str) -> None:
        record = dict(device.lease)
        while True:
            lease = msgspec.convert(record["lease"], Lease)
            age = time.time() - record["granted"]
            await asyncio.sleep(pause_before_renewal(lease, age))
            try:
                renewed = await self._aside(_renew, device, lease, netns)
            except LeaseRefused as error:
                log.error("%s: the DHCP server took %s back: %s", device.device, lease.address, error)
                return
            except (KernelError, OSError) as error:
                log.warning("%s: DHCP renewal of %s failed: %s", device.device, lease.address, error)
                continue
            record = _record(renewed)
            self._remember(claim_uid, device.device, record)

    def _remember(self, claim_uid: str, name: str, record: dict[str, Any]) -> None:
        plan = self._store.get(claim_uid)
        if plan is not None:
            devices = tuple(msgspec.structs.replace(d, lease=record) if d.device == name else d for d in plan.devices)
            self._store.change(claim_uid, devices=devices)


def with_lease(pod: PodSide, lease: Lease) -> PodSide:
    """The pod's side with the leased address, routes and, where the user said nothing, MTU."""
    said = {route.destination for route in pod.routes}
    offered = [
        routes.to(destination, index=0, gateway=gateway or None, scope=0 if gateway else routes.SCOPE_LINK)
        for destination, gateway in lease.effective_routes
        if destination not in said
    ]
    return msgspec.structs.replace(
        pod,
        addresses=(*pod.addresses, addresses.from_cidr(f"{lease.address}/{lease.prefix}", 0)),
        routes=(*pod.routes, *offered),
        mtu=pod.mtu if pod.mtu is not None else lease.mtu,
    )


def _record(lease: Lease) -> dict[str, Any]:
    return {"lease": msgspec.to_builtins(lease), "granted": time.time()}


def pause_before_renewal(lease: Lease, age: float) -> float:
    """Until half of what is left before the next milestone, as the standard says, but never in a tight loop."""
    if age < lease.renew_after:
        return max(lease.renew_after - age, SHORTEST_PAUSE)
    return max((lease.lifetime - age) / 2, SHORTEST_PAUSE)


def _renew(device: DevicePlan, lease: Lease, netns: str) -> Lease:
    with Pod.open(netns) as pod:
        (card,) = find_in_pod(pod, [device])
        if card is None:
            raise DhcpError(f"{device.device} is not in its pod any more")
        with DhcpClient(card.name, card.mac, namespace_fd=pod.namespace.fd) as client:
            return client.renew(lease, RENEW_SECONDS)


def _release(host: Host, device: DevicePlan) -> None:
    assert device.host is not None
    lease = msgspec.convert(device.lease["lease"], Lease)
    try:
        link, inside = device.host.link, host.namespace.fd
        with DhcpClient(link.name, link.mac, namespace_fd=inside) as client:
            client.release(lease)
    except (KernelError, OSError) as error:
        log.info("%s: the lease of %s could not be given back: %s", device.device, lease.address, error)
