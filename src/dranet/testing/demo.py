"""Run a scenario: start machines, apply manifests, run, observe, measure and stop pods, and check everything.

An observer (the demo's view, or none) is notified of each step. A failed check does not stop the scenario: it is
recorded, and the rest still runs. An error that prevents the next step (a pod fits nowhere, a driver exits) ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dranet.advise.manifests import must_read
from dranet.core.errors import DranetError
from dranet.kubernetes.api import resources
from dranet.kubernetes.nri.errors import NriError
from dranet.machines.shape import load_shape
from dranet.testing import controllers, observing, running, traffic
from dranet.testing.checks import Check, PodView, check_pods, check_restored, expect
from dranet.testing.cluster import NodePlan, SandboxCluster
from dranet.testing.running import RunningPod
from dranet.testing.scenarios import Scenario, Stage, example_files
from dranet.testing.scheduler import Scheduler
from dranet.testing.waiting import WaitTimeout, until

Object = dict[str, Any]
ClusterCompanion = Callable[[SandboxCluster], AbstractAsyncContextManager[None]]
"""A context that is open while a scenario's cluster runs, such as a page that shows it."""


@dataclass(frozen=True, slots=True)
class PodReport:
    """The result of one pod."""

    pod: str
    node: str
    devices: tuple[str, ...]
    attach_ms: float
    detach_ms: float | None
    alignment: str | None
    busbw: float | None


@dataclass(frozen=True, slots=True)
class LaneReport:
    """Traffic between two pods through their NICs on the same rails."""

    near: str
    far: str
    pings_ms: tuple[float | None, ...]
    gbits: tuple[float, ...]


@dataclass(slots=True)
class ScenarioResult:
    """The result of a scenario."""

    scenario: Scenario
    pods: list[PodReport] = field(default_factory=list)
    lanes: list[LaneReport] = field(default_factory=list)
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Observer:
    """Is notified of the steps of scenarios. Does nothing; views override methods."""

    def begin(self, scenario: Scenario) -> None:
        """A scenario starts."""

    def step(self, text: str) -> None:
        """A step starts that may take a moment."""

    def machines(self, cluster: SandboxCluster) -> None:
        """The machines are up, and their devices are published."""

    def stage(self, stage: Stage) -> None:
        """A stage starts."""

    def pods(self, views: Sequence[PodView]) -> None:
        """The pods are running."""

    def lanes(self, stage: Stage, reports: Sequence[LaneReport]) -> None:
        """Packets were sent through the claimed NICs."""

    async def pause(self, cluster: SandboxCluster, stage: Stage, pods: Sequence[RunningPod]) -> None:
        """The pods are stopped when this returns."""

    def detached(self, reports: Sequence[PodReport], restored: bool) -> None:
        """The pods were deleted; `restored` if the state is the same as before them."""

    def checked(self, check: Check) -> None:
        """A fact was checked."""

    def end(self, result: ScenarioResult) -> None:
        """The scenario has completed."""

    def finish(self, results: Sequence[ScenarioResult]) -> None:
        """All scenarios have completed."""

    def close(self) -> None:
        """No more notifications will follow, also after an error."""


@asynccontextmanager
async def _no_companion(_: SandboxCluster) -> AsyncIterator[None]:
    yield


class ScenarioRunner:
    """Runs one scenario on machines of its own."""

    def __init__(
        self, scenario: Scenario, folder: Path, observer: Observer, companion: ClusterCompanion | None = None
    ) -> None:
        self.scenario = scenario
        self.companion = companion or _no_companion
        self.folder = folder
        self.observer = observer
        self.result = ScenarioResult(scenario)

    async def run(self) -> ScenarioResult:
        """Run the scenario; errors become failures in the result."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        self.observer.begin(self.scenario)
        try:
            await self._stages()
        except (DranetError, NriError, OSError, WaitTimeout) as error:
            self._record([Check("the scenario runs to its end", str(error) or type(error).__name__)])
        self.result.seconds = clock() - begun
        self.observer.end(self.result)
        return self.result

    async def _stages(self) -> None:
        shape = load_shape(self.scenario.shape)
        plans = [NodePlan(f"{shape.name}-{i}", shape, i) for i in range(self.scenario.nodes)]
        self.observer.step(f"building {len(plans)} {shape.name} machines and starting their drivers")
        async with SandboxCluster(plans, self.folder / self.scenario.name) as cluster, self.companion(cluster):
            self.observer.machines(cluster)
            for stage in self.scenario.stages:
                await self._stage(cluster, stage)
            self.observer.step("taking the machines down")

    async def _stage(self, cluster: SandboxCluster, stage: Stage) -> None:
        self.observer.stage(stage)
        await cluster.wait_for_devices()
        before = observing.host_interfaces(cluster.nodes)
        self.observer.step("applying " + ", ".join(stage.files))
        pods = await controllers.apply(cluster.client, must_read(example_files(stage)), template=stage.template)
        started: list[RunningPod] = []
        try:
            for pod in pods:
                started.append(await self._start(cluster, pod))
            await self._show(cluster, stage, started)
            await self.observer.pause(cluster, stage, started)
        finally:
            reports = await self._stop(cluster, started, pods)
        self.observer.detached(reports, await self._is_restored(cluster, before))

    async def _start(self, cluster: SandboxCluster, pod: Object) -> RunningPod:
        name = pod["metadata"]["name"]
        self.observer.step(f"scheduling {name}")
        placed = await Scheduler(cluster.client).schedule(pod)
        node = cluster.nodes[placed["spec"]["nodeName"]]
        self.observer.step(f"starting {name} on {node.plan.name}")
        return await running.start(cluster.client, node, placed)

    async def _show(self, cluster: SandboxCluster, stage: Stage, pods: Sequence[RunningPod]) -> None:
        self.observer.step("reading the state of the pods")
        views = [await self._view(cluster, pod) for pod in pods]
        self._record(check_pods(stage, views, observing.host_interfaces(cluster.nodes)))
        self.observer.pods(views)
        self.observer.step("sending packets through the claimed NICs")
        reports = [await asyncio.to_thread(_measure, *found) for found in observing.lanes(pods)]
        self._record([expect("pairs of pods on different machines share rails", len(reports), stage.pairs)])
        self._record(check for report in reports for check in _traffic_checks(report))
        self.result.lanes += reports
        self.observer.lanes(stage, reports)

    async def _view(self, cluster: SandboxCluster, pod: RunningPod) -> PodView:
        """The pod's state. Waits for the status of its claims, which the driver writes after the pod has started."""
        namespace = pod.object["metadata"]["namespace"]
        names = controllers.claim_names(pod.object).values()

        def claims() -> list[Object]:
            found = (cluster.api.find(resources.RESOURCE_CLAIMS, name, namespace) for name in names)
            return [claim for claim in found if claim is not None]

        def reported() -> int:
            return sum(len((claim.get("status") or {}).get("devices") or ()) for claim in claims())

        await until(
            lambda: reported() >= len(pod.nics),
            f"{len(pod.nics)} devices in the status of the claims of {pod.name}",
            seen=reported,
        )
        return PodView(pod, observing.pod_interfaces(pod), observing.fit(pod), tuple(claims()))

    async def _stop(
        self, cluster: SandboxCluster, started: Sequence[RunningPod], pods: Sequence[Object]
    ) -> list[PodReport]:
        reports: list[PodReport] = []
        for pod in started:
            self.observer.step(f"stopping {pod.name}")
            seen = observing.fit(pod)
            await running.stop(cluster.client, pod)
            reports.append(_report(pod, seen))
        await controllers.withdraw(cluster.client, pods)
        self.result.pods += reports
        return reports

    async def _is_restored(self, cluster: SandboxCluster, before: dict[str, dict[str, observing.Interface]]) -> bool:
        claims, _ = await cluster.client.list(resources.RESOURCE_CLAIMS)
        checks = list(check_restored(before, observing.host_interfaces(cluster.nodes), cluster.nodes, claims))
        self._record(checks)
        return all(check.failure is None for check in checks)

    def _record(self, checks: Iterable[Check]) -> None:
        for check in checks:
            if check.failure is None:
                self.result.passed += 1
            else:
                self.result.failures.append(check.failure)
            self.observer.checked(check)


def _measure(near: RunningPod, far: RunningPod, found: Sequence[traffic.Lane]) -> LaneReport:
    pings = [traffic.ping(lane) for lane in found]
    return LaneReport(
        near.name,
        far.name,
        tuple(None if rtt is None else rtt * 1000 for rtt in pings),
        tuple(traffic.throughput(found)) if None not in pings else (),
    )


def _traffic_checks(report: LaneReport) -> Iterable[Check]:
    pair = f"{report.near} and {report.far}"
    lost = sum(ping is None for ping in report.pings_ms)
    failure = f"{lost} of {len(report.pings_ms)} pings between {pair} got no reply" if lost else None
    yield Check(f"{pair} ping each other through every NIC", failure)
    silent = sum(not gbit for gbit in report.gbits)
    failure = f"{silent or 'all'} NICs between {pair} carried no data" if silent or not report.gbits else None
    yield Check(f"data flows between {pair} through every NIC", failure)


def _report(pod: RunningPod, seen: observing.Fit) -> PodReport:
    return PodReport(
        pod.name,
        pod.node.plan.name,
        tuple(item.device for item in pod.devices),
        round(pod.attach_ms, 2),
        None if pod.detach_ms is None else round(pod.detach_ms, 2),
        seen.worst,
        None if seen.busbw is None else round(seen.busbw, 1),
    )
