"""Faults that began or ended, told where people look: log, metric, and events on the node and on the pod that has the
card. The taint on the device is `NodeDevices`' part."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from dranet.driver.records.plan import PodRef
from dranet.driver.serving.metrics import FaultMetrics
from dranet.driver.serving.reports import EventSink
from dranet.driver.store import Store
from dranet.health.judging import Finding
from dranet.health.policy import BROKEN
from dranet.kube.events import NETWORK_DEVICE_BROKEN, NETWORK_DEVICE_DEGRADED, ObjectRef
from dranet.model.faults import FaultKind

log = logging.getLogger(__name__)

Key = tuple[str, FaultKind]


class FaultReports:
    """Compares what is wrong with what was."""

    def __init__(
        self, node: str, metrics: FaultMetrics, events: EventSink, holders: Callable[[], Mapping[str, PodRef]]
    ) -> None:
        self._node, self._metrics, self._events, self._holders = node, metrics, events, holders
        self._known: dict[Key, Finding] = {}

    def tell(self, findings: Sequence[Finding]) -> None:
        """All that is wrong now."""
        now: dict[Key, Finding] = {(finding.device, finding.fault): finding for finding in findings}
        if now == self._known:
            return
        for key in now.keys() - self._known.keys():
            self._began(now[key])
        for device, fault in self._known.keys() - now.keys():
            log.info("%s: %s is over", device or "the node", fault)
        self._known = now
        self._metrics.set(findings)

    def _began(self, finding: Finding) -> None:
        reason = NETWORK_DEVICE_BROKEN if finding.severity == BROKEN else NETWORK_DEVICE_DEGRADED
        message = f"{finding.device or 'the node'}: {finding.fault}: {finding.message}"
        log.warning("%s (%s)", message, finding.severity)
        self._events.warning(ObjectRef.node(self._node, self._node), reason, message)
        pod = self._holders().get(finding.device)
        if pod is not None:
            self._events.warning(ObjectRef.pod(pod.namespace, pod.name, pod.uid), reason, message)


def holders(store: Store) -> dict[str, PodRef]:
    """The pod that has each device."""
    return {device.name: plan.pod for plan in store.plans.values() for device in plan.devices}
