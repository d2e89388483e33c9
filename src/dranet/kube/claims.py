"""Claims: reading them, and saying on them what became of their devices.

The status is written with server-side apply, so it stands beside what other drivers say of their devices. What should
stand there is only noted; one task writes it, and tries again until it is written or the claim is gone. A claim is its
UID: one deleted and made again under the same name is another claim.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dranet.basics.backoff import Backoff
from dranet.kube.client import KubeClient, Object
from dranet.kube.clock import Now, timestamp, utc_now
from dranet.kube.errors import KubeError, Missing
from dranet.kube.resources import RESOURCE_CLAIMS
from dranet.model.names import DRIVER_NAME, ClaimRef

log = logging.getLogger(__name__)

READY = "Ready"
NETWORK_READY = "NetworkReady"
RDMA_LINK_READY = "RDMALinkReady"

Key = tuple[str, str, str, str]

IPS_MAX = 16
MESSAGE_MAX = 4096


class Condition(msgspec.Struct, frozen=True):
    """One fact about a device, true or false, with a reason a program and a message a person can read."""

    type: str
    status: bool
    reason: str
    message: str = ""


class NetworkData(msgspec.Struct, frozen=True, kw_only=True):
    """The interface as the pod has it."""

    interface_name: str = ""
    hardware_address: str = ""
    ips: tuple[str, ...] = ()

    def to_api(self) -> Object:
        """In the API's names, without what is empty."""
        out = {
            "interfaceName": self.interface_name,
            "hardwareAddress": self.hardware_address,
            "ips": list(self.ips[:IPS_MAX]),
        }
        return {key: value for key, value in out.items() if value}


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one device of a claim."""

    pool: str
    device: str
    conditions: tuple[Condition, ...] = ()
    network: NetworkData | None = None
    driver: str = DRIVER_NAME
    share_id: str | None = None

    @property
    def key(self) -> Key:
        """What identifies an entry of ``status.devices``."""
        return self.driver, self.pool, self.device, self.share_id or ""

    def to_api(self, before: Mapping[str, Object], now: str) -> Object:
        """The entry; a condition that says what it said before keeps the time it began."""
        out: Object = {"driver": self.driver, "pool": self.pool, "device": self.device}
        if self.share_id:
            out["shareID"] = self.share_id
        out["conditions"] = [_condition(item, before.get(item.type), now) for item in self.conditions]
        if self.network is not None:
            out["networkData"] = self.network.to_api()
        return out


async def get_claim(client: KubeClient, namespace: str, name: str) -> Object:
    """One ResourceClaim in v1 shape; raises Missing."""
    return await client.get(RESOURCE_CLAIMS, name, namespace)


class ClaimStatusWriter:
    """Keeps ``status.devices`` of claims equal to what was said last; ``run`` must be running."""

    def __init__(
        self, client: KubeClient, *, manager: str = DRIVER_NAME, driver: str = DRIVER_NAME, now: Now = utc_now
    ) -> None:
        self._client = client
        self._manager = manager
        self._driver = driver
        self._now = now
        self._wanted: dict[ClaimRef, tuple[DeviceStatus, ...]] = {}
        self._said: dict[ClaimRef, tuple[DeviceStatus, ...]] = {}
        self._due: dict[ClaimRef, float] = {}
        self._backoff: dict[ClaimRef, Backoff] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def set(self, claim: ClaimRef, devices: Sequence[DeviceStatus]) -> None:
        """What the claim's status should say of our devices. Returns at once."""
        wanted = tuple(sorted(devices, key=lambda item: item.key))
        if claim not in self._wanted and self._said.get(claim) == wanted:
            return
        self._wanted[claim] = wanted
        self._due[claim] = 0.0
        self._idle.clear()
        self._wake.set()

    def clear(self, claim: ClaimRef) -> None:
        """The claim was unprepared: nothing is to be said of it any more."""
        self.set(claim, ())

    async def idle(self) -> None:
        """Wait until everything said is written."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write what waits, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            claim = min(self._due, key=lambda ref: (self._due[ref], ref), default=None)
            delay = None if claim is None else self._due[claim] - loop.time()
            if claim is None or (delay is not None and delay > 0):
                await self._sleep(delay)
            else:
                await self._attempt(claim)

    async def _sleep(self, delay: float | None) -> None:
        try:
            async with asyncio.timeout(delay):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _attempt(self, claim: ClaimRef) -> None:
        wanted = self._wanted[claim]
        try:
            written = await self._write(claim, wanted)
        except KubeError as error:
            log.warning("status of claim %s: %s", claim, error)
            backoff = self._backoff.setdefault(claim, Backoff(self._client.rng))
            if self._wanted.get(claim) is wanted:
                self._due[claim] = asyncio.get_running_loop().time() + backoff.next()
            return
        self._finished(claim, wanted, exists=written)

    def _finished(self, claim: ClaimRef, wanted: tuple[DeviceStatus, ...], *, exists: bool) -> None:
        self._backoff.pop(claim, None)
        if exists and wanted:
            self._said[claim] = wanted
        else:
            self._said.pop(claim, None)
        if self._wanted[claim] is wanted:
            del self._wanted[claim], self._due[claim]
        if not self._wanted:
            self._idle.set()

    async def _write(self, claim: ClaimRef, wanted: tuple[DeviceStatus, ...]) -> bool:
        """Look, then write the difference. False where this very claim is no more."""
        try:
            found = await get_claim(self._client, claim.namespace, claim.name)
        except Missing:
            return False
        if found["metadata"].get("uid") != claim.uid:
            return False
        status = found.get("status") or {}
        before = {_key(item): item for item in status.get("devices") or () if item.get("driver") == self._driver}
        entries = self._entries(wanted, before, _allocated(status))
        if entries == [before[key] for key in sorted(before)]:
            return True
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
            "status": {"devices": entries} if entries else {},
        }
        try:
            await self._client.apply(RESOURCE_CLAIMS, body, self._manager, claim.namespace, sub="status")
        except Missing:
            return False
        return True

    def _entries(
        self, wanted: Sequence[DeviceStatus], before: Mapping[Key, Object], allocated: frozenset[Key]
    ) -> list[Object]:
        """Entries for devices the claim holds; the server refuses others, and they are nobody's business any more."""
        now = timestamp(self._now())
        return [
            item.to_api({old["type"]: old for old in before.get(item.key, {}).get("conditions") or ()}, now)
            for item in wanted
            if item.key in allocated
        ]


def _allocated(status: Mapping[str, Any]) -> frozenset[Key]:
    devices = (status.get("allocation") or {}).get("devices") or {}
    return frozenset(_key(result) for result in devices.get("results") or ())


def _key(item: Mapping[str, Any]) -> Key:
    return item["driver"], item["pool"], item["device"], item.get("shareID") or ""


def _condition(condition: Condition, before: Object | None, now: str) -> Object:
    status = "True" if condition.status else "False"
    since = before["lastTransitionTime"] if before is not None and before.get("status") == status else now
    return {
        "type": condition.type,
        "status": status,
        "reason": condition.reason,
        "message": condition.message[:MESSAGE_MAX],
        "lastTransitionTime": since,
    }
