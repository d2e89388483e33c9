"""Reads ResourceClaims and writes the status of their devices.

The status is written with server-side apply, so other drivers keep their entries. `set` only records the desired
status; one task writes it and retries until it is written or the claim is deleted. Claims are identified by UID: a
claim that is created again under the same name is another claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dranet.core.aio import wait_at_most
from dranet.core.backoff import Backoff
from dranet.core.logs import get_logger
from dranet.core.names import DRIVER_NAME, ClaimRef
from dranet.kubernetes.api.client import KubeClient, Object
from dranet.kubernetes.api.errors import KubeError, ObjectNotFound
from dranet.kubernetes.api.resources import RESOURCE_CLAIMS, Now, timestamp, utc_now

log = get_logger(__name__)

READY = "Ready"
NETWORK_READY = "NetworkReady"
RDMA_LINK_READY = "RDMALinkReady"

Key = tuple[str, str, str, str]

IPS_MAX = 16
MESSAGE_MAX = 4096


class Condition(msgspec.Struct, frozen=True):
    """A condition of a device."""

    type: str
    status: bool
    reason: str
    message: str = ""


class NetworkData(msgspec.Struct, frozen=True, kw_only=True):
    """The network interface in the pod."""

    interface_name: str = ""
    hardware_address: str = ""
    ips: tuple[str, ...] = ()

    def to_api(self) -> Object:
        """As v1 NetworkDeviceData, without empty fields."""
        out = {
            "interfaceName": self.interface_name,
            "hardwareAddress": self.hardware_address,
            "ips": list(self.ips[:IPS_MAX]),
        }
        return {key: value for key, value in out.items() if value}


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of one device of a claim."""

    pool: str
    device: str
    conditions: tuple[Condition, ...] = ()
    network: NetworkData | None = None
    driver: str = DRIVER_NAME
    share_id: str | None = None

    @property
    def key(self) -> Key:
        """The key of an entry in ``status.devices``."""
        return self.driver, self.pool, self.device, self.share_id or ""

    def to_api(self, before: Mapping[str, Object], now: str) -> Object:
        """As v1 AllocatedDeviceStatus. An unchanged condition keeps its lastTransitionTime."""
        out: Object = {"driver": self.driver, "pool": self.pool, "device": self.device}
        if self.share_id:
            out["shareID"] = self.share_id
        out["conditions"] = [_condition(item, before.get(item.type), now) for item in self.conditions]
        if self.network is not None:
            out["networkData"] = self.network.to_api()
        return out


async def get_claim(client: KubeClient, namespace: str, name: str) -> Object:
    """One ResourceClaim in v1 shape; raises ObjectNotFound."""
    return await client.get(RESOURCE_CLAIMS, name, namespace)


class ClaimStatusWriter:
    """Writes ``status.devices`` of claims in the background; ``run`` must be running."""

    def __init__(
        self, client: KubeClient, *, manager: str = DRIVER_NAME, driver: str = DRIVER_NAME, now: Now = utc_now
    ) -> None:
        self._client = client
        self._manager = manager
        self._driver = driver
        self._now = now
        self._desired: dict[ClaimRef, tuple[DeviceStatus, ...]] = {}
        self._written: dict[ClaimRef, tuple[DeviceStatus, ...]] = {}
        self._due: dict[ClaimRef, float] = {}
        self._backoff: dict[ClaimRef, Backoff] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def set(self, claim: ClaimRef, devices: Sequence[DeviceStatus]) -> None:
        """Set the desired status of the driver's devices in a claim. Returns at once."""
        desired = tuple(sorted(devices, key=lambda item: item.key))
        if claim not in self._desired and self._written.get(claim) == desired:
            return
        self._desired[claim] = desired
        self._due[claim] = 0.0
        self._idle.clear()
        self._wake.set()

    def clear(self, claim: ClaimRef) -> None:
        """Remove the driver's entries after the claim was unprepared."""
        self.set(claim, ())

    async def idle(self) -> None:
        """Wait until everything is written."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            claim = min(self._due, key=lambda ref: (self._due[ref], ref), default=None)
            delay = None if claim is None else self._due[claim] - loop.time()
            if claim is None or (delay is not None and delay > 0):
                await wait_at_most(delay, self._wake)
            else:
                await self._attempt(claim)

    async def _attempt(self, claim: ClaimRef) -> None:
        desired = self._desired[claim]
        try:
            written = await self._write(claim, desired)
        except KubeError as error:
            log.warning("Claim status not written; will retry", claim=claim, error=error)
            backoff = self._backoff.setdefault(claim, Backoff(self._client.rng))
            if self._desired.get(claim) is desired:
                self._due[claim] = asyncio.get_running_loop().time() + backoff.next()
            return
        self._finished(claim, desired, exists=written)

    def _finished(self, claim: ClaimRef, desired: tuple[DeviceStatus, ...], *, exists: bool) -> None:
        self._backoff.pop(claim, None)
        if exists and desired:
            self._written[claim] = desired
        else:
            self._written.pop(claim, None)
        if self._desired[claim] is desired:
            del self._desired[claim], self._due[claim]
        if not self._desired:
            self._idle.set()

    async def _write(self, claim: ClaimRef, desired: tuple[DeviceStatus, ...]) -> bool:
        """Read, then write if different. False if the claim with this UID does not exist."""
        try:
            found = await get_claim(self._client, claim.namespace, claim.name)
        except ObjectNotFound:
            return False
        if found["metadata"].get("uid") != claim.uid:
            return False
        status = found.get("status") or {}
        before = {_key(item): item for item in status.get("devices") or () if item.get("driver") == self._driver}
        entries = self._entries(desired, before, _allocated(status))
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
        except ObjectNotFound:
            return False
        return True

    def _entries(
        self, desired: Sequence[DeviceStatus], before: Mapping[Key, Object], allocated: frozenset[Key]
    ) -> list[Object]:
        """Entries for allocated devices; the server rejects entries for others."""
        now = timestamp(self._now())
        return [
            item.to_api({old["type"]: old for old in before.get(item.key, {}).get("conditions") or ()}, now)
            for item in desired
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
