"""The kubelet's calls: prepare, unprepare and health, with metrics, logs and reports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from dranet.core.errors import DranetError
from dranet.core.logs import get_logger, log_context
from dranet.core.names import ClaimRef
from dranet.kubernetes.kubelet.handler import DeviceHealth, PreparedDevice, PrepareError, UnprepareError
from dranet.node.claims.prepare import Preparer
from dranet.node.records.plan import ClaimPlan
from dranet.node.server.metrics import ClaimMetrics
from dranet.node.server.node_devices import NodeDevices
from dranet.node.server.reports import Reports

log = get_logger(__name__)


class ClaimService:
    """The handler behind the kubelet plugin."""

    def __init__(self, preparer: Preparer, reports: Reports, metrics: ClaimMetrics, devices: NodeDevices) -> None:
        self._preparer = preparer
        self._reports = reports
        self._metrics = metrics
        self._devices = devices
        self._unprepared: dict[str, ClaimPlan] = {}
        """Claims that are unprepared and not reported yet, by UID."""

    async def prepare(self, claim: ClaimRef) -> Sequence[PreparedDevice]:
        with log_context(claim=claim), self._metrics.observe("PrepareResourceClaims") as clock:
            try:
                found = await self._preparer.read_claim(claim)
                clock.start()
                prepared = await self._preparer.prepare_claim(found)
            except (DranetError, OSError) as error:
                log.warning("Could not prepare claim", error=error)
                self._reports.prepare_failed(claim.namespace, claim.name, claim.uid, str(error))
                raise PrepareError(str(error)) from error
            log.info("Prepared claim", devices=",".join(device.device for device in prepared))
            return prepared

    async def after_reply(self, claim: ClaimRef) -> None:
        with log_context(claim=claim):
            if (plan := self._unprepared.pop(claim.uid, None)) is not None:
                self._report_unprepared(plan)
            try:
                await self._preparer.after_reply(claim)
            except (DranetError, OSError) as error:
                log.warning("Early device setup failed; will retry during attach", error=error)

    async def unprepare(self, claim: ClaimRef) -> None:
        with log_context(claim=claim), self._metrics.observe("UnprepareResourceClaims"):
            try:
                plan = await self._preparer.unprepare(claim)
            except (DranetError, OSError) as error:
                log.warning("Could not unprepare claim", error=error)
                raise UnprepareError(str(error)) from error
            if plan is not None:
                self._unprepared[claim.uid] = plan

    def _report_unprepared(self, plan: ClaimPlan) -> None:
        log.info("Unprepared claim")
        self._reports.unprepared(plan)
        self._devices.request_rescan()

    def health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        return self._devices.health()
