"""What the kubelet sees: prepare, unprepare and health, with metrics and reports around them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

from dranet.driver.claims.prepare import Preparer
from dranet.driver.log_fields import about
from dranet.driver.records.plan import ClaimPlan
from dranet.driver.serving.metrics import ClaimMetrics
from dranet.driver.serving.node_devices import NodeDevices
from dranet.driver.serving.reports import Reports
from dranet.kubelet.handler import ANSWER_FIRST_SECONDS, DeviceHealth, PreparedDevice, PrepareError, UnprepareError
from dranet.model.errors import DranetError
from dranet.model.names import ClaimRef

log = logging.getLogger(__name__)


class ClaimService:
    """The handler behind the kubelet plugin."""

    def __init__(self, preparer: Preparer, reports: Reports, metrics: ClaimMetrics, devices: NodeDevices) -> None:
        self._preparer = preparer
        self._reports = reports
        self._metrics = metrics
        self._devices = devices

    async def prepare(self, claim: ClaimRef) -> Sequence[PreparedDevice]:
        with about(claim=claim), self._metrics.observe("PrepareResourceClaims") as clock:
            try:
                found = await self._preparer.read(claim)
                clock.start()
                prepared = await self._preparer.prepare_as_read(found)
            except (DranetError, OSError) as error:
                log.warning("cannot be prepared: %s", error)
                self._reports.prepare_failed(claim.namespace, claim.name, claim.uid, str(error))
                raise PrepareError(str(error)) from error
            log.info("prepared: %s", ", ".join(device.device for device in prepared) or "no devices")
            return prepared

    async def prepared(self, claim: ClaimRef) -> None:
        with about(claim=claim):
            try:
                await self._preparer.follow_up(claim)
            except (DranetError, OSError) as error:
                log.warning("its cards are not made ready before its pod starts: %s", error)

    async def unprepare(self, claim: ClaimRef) -> None:
        with about(claim=claim), self._metrics.observe("UnprepareResourceClaims"):
            try:
                plan = await self._preparer.unprepare(claim)
            except (DranetError, OSError) as error:
                log.warning("cannot be unprepared: %s", error)
                raise UnprepareError(str(error)) from error
            if plan is not None:
                asyncio.get_running_loop().call_later(ANSWER_FIRST_SECONDS, self._ended, plan)

    def _ended(self, plan: ClaimPlan) -> None:
        log.info("unprepared")
        self._reports.unprepared(plan)
        self._devices.request_look()

    def health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        return self._devices.health()
