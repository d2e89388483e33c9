"""A hook that the runtime no longer waits for changes nothing."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dranet.core.backoff import Backoff
from dranet.kubernetes.nri.errors import CallError
from dranet.kubernetes.nri.messages import LinuxNamespace, LinuxPodSandbox, PodSandbox
from dranet.kubernetes.nri.request_context import RequestContext
from dranet.linux.namespaces import Namespace
from dranet.node.claims.leases import Leases
from dranet.node.server.attach import Attacher
from dranet.node.server.hooks import Hooks
from dranet.node.server.metrics import HookMetrics
from dranet.node.server.reports import Reports

from .conftest import TestNode


class NoReports:
    """Discards status and events."""

    def set(self, claim: object, devices: object) -> None: ...

    def clear(self, claim: object) -> None: ...

    def warning(self, about: object, reason: str, message: str) -> None: ...


def sandbox(pod: Namespace) -> PodSandbox:
    network = LinuxNamespace(type="network", path=pod.path)
    linux = LinuxPodSandbox(namespaces=[network])
    return PodSandbox(id="s", name="pod-1", uid="pod-1", namespace="default", pid=1, linux=linux)


@pytest.mark.parametrize(("now", "gone"), [(2.0, False), (0.0, True)], ids=["after its deadline", "hung up"])
async def test_expired_hook_moves_nothing(node: TestNode, now: float, gone: bool) -> None:
    quiet, unused = NoReports(), SimpleNamespace(watch=lambda *_: None, add_sandbox=lambda *_: None)
    delays, leases = Backoff(random.Random(1)), Leases(node.host, node.store)
    others: dict[str, Any] = {"reconciler": unused, "handover": unused}
    hooks = Hooks(
        attacher=Attacher(node.lifecycle, Reports(quiet, quiet), leases, delays),
        metrics=HookMetrics(CollectorRegistry()),
        on_detached=lambda: None,
        **others,
    )
    node.plan("nic0")
    pod = node.pod()
    context = RequestContext(received_at=0.0, deadline=1.0, now=lambda: now, hung_up=lambda: gone)
    with pytest.raises(CallError, match="the request expired before the driver could start"):
        await hooks.run_pod_sandbox(sandbox(pod), context)
    assert node.names() == {"nic0", "nic1"} and node.names(pod) == set()
    leases.close()
