"""The lives of pods on one node of a bed, with what each cost the driver; every figure is one life's own.

Calls are timed by the driver itself: both the runtime's hooks and the kubelet's calls are histograms in its metrics,
read before and after a life. Starts are timed by the API server's events.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import defaultdict
from typing import Any

from bench.cluster.bare_kernel import BareKernel
from bench.cluster.drivers import CALLS, SEEN_BY_KUBELET, Running
from tests.cluster.kubebed import Kubectl
from tests.cluster.kubebed.manifests import RESOURCE_API, claim_template, pod, request
from tests.cluster.kubebed.node import Node
from tests.cluster.kubebed.startup import Startup, start_pods

NICS = 8
CLASS = "bench"
NIC = 'device.attributes["dra.net"].ifName.startsWith("nic")'
QUIET_SECONDS = 20.0
SETTLE_SECONDS = 1.0
"""After a life: the kernel clears namespaces away, the driver looks at its NICs again and tells the API server."""

Figures = dict[str, list[float]]


def objects() -> list[dict[str, Any]]:
    """What pods with one and with eight NICs refer to."""
    selectors = [{"cel": {"expression": f'device.driver == "dra.net" && {NIC}'}}]
    device_class = {"apiVersion": RESOURCE_API, "kind": "DeviceClass", "metadata": {"name": CLASS}}
    templates = [claim_template(f"nics-{count}", request("nic", CLASS, count=count)) for count in (1, NICS)]
    return [{**device_class, "spec": {"selectors": selectors}}, *templates]


class Lives:
    """Pods with the NICs of one node, one after the other or all at once."""

    def __init__(self, running: Running, node: Node, kubectl: Kubectl, kernel: BareKernel) -> None:
        self._running = running
        self._node = node
        self._kubectl = kubectl
        self._kernel = kernel
        self._numbers = itertools.count()
        self.figures: Figures = defaultdict(list)

    def measure(self, cycles: int) -> dict[str, float]:
        """Medians of everything, and the lowest of each call."""
        self._note("memory_at_start_mb", self._running.memory(self._node))
        for nics in (NICS, 1, 0):
            for _ in range(cycles):
                self._life(nics)
        for _ in range(max(1, cycles // 4)):
            started = self._start(1, pods=NICS)
            self._note(f"burst_of_{NICS}_pods_s", max(each.running for each in started))
            self._end()
        self._note("memory_after_mb", self._running.memory(self._node))
        self._quiet()
        medians = {key: statistics.median(values) for key, values in self.figures.items()}
        # On a machine that others use as well, the lowest says more of the driver and the median more of the others.
        return {**medians, **{f"{call}_lowest": min(self.figures[call]) for call in CALLS}}

    def _note(self, key: str, value: float) -> None:
        self.figures[key].append(value)

    def _life(self, nics: int) -> None:
        before, cpu = self._running.spent(self._node), self._running.cpu(self._node)
        (started,) = self._start(nics)
        self._end()
        self._note(f"pod_up_with_{nics}_nics_s", started.running)
        if nics != NICS:
            return
        self._note("cpu_per_life_ms", (self._running.cpu(self._node) - cpu) * 1000)
        after = self._running.spent(self._node)
        for call in (*CALLS, *SEEN_BY_KUBELET):
            seconds, calls = (now - then for now, then in zip(after[call], before[call], strict=True))
            self._note(call, seconds / calls * 1000)
        for key, seconds in zip(("bare_kernel_attach_ms", "bare_kernel_detach_ms"), self._kernel.round(), strict=True):
            self._note(key, seconds * 1000)
        self._note("bare_kernel_attach_beside_its_network_ms", self._kernel.round(beside_its_network=True)[0] * 1000)

    def _start(self, nics: int, pods: int = 1) -> list[Startup]:
        templates = {"nics": f"nics-{nics}"} if nics else {}
        names = [f"life-{next(self._numbers)}" for _ in range(pods)]
        return start_pods(self._kubectl, *(pod(name, node=self._node.name, templates=templates) for name in names))

    def _end(self) -> None:
        self._kubectl.run("delete", "pods", "--all", "--grace-period=1", "--wait=true")
        time.sleep(SETTLE_SECONDS)

    def _quiet(self) -> None:
        time.sleep(5)
        cpu = self._running.cpu(self._node)
        time.sleep(QUIET_SECONDS)
        self._note("quiet_cpu_ms_per_s", (self._running.cpu(self._node) - cpu) * 1000 / QUIET_SECONDS)
