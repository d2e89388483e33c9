"""Playing a story: machines up, manifests applied, pods run, looked at, measured and stopped, everything checked.

The play is told to an audience as it goes (a live view, or nobody) and ends in a result. A check that fails does not
stop the play: it is written down, and the rest is still shown. What cannot go on (a pod that fits nowhere, a driver
that dies) ends the story with that failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dranet.kube import resources
from dranet.manifests.reading import must_read
from dranet.model.errors import DranetError
from dranet.nri.errors import NriError
from dranet.sandbox import controllers, observing, running, traffic
from dranet.sandbox.checks import Check, PodView, check_home, check_pods, expect
from dranet.sandbox.cluster import NodePlan, SandboxCluster, until
from dranet.sandbox.running import RunningPod
from dranet.sandbox.scheduler import Scheduler
from dranet.sandbox.stories import Act, Story, example_files
from dranet.topology.shape import load_shape

Object = dict[str, Any]
Beside = Callable[[SandboxCluster], AbstractAsyncContextManager[None]]
"""Something that runs beside a story's cluster for as long as it stands, such as a page that shows it."""


@dataclass(frozen=True, slots=True)
class PodReport:
    """One pod of a story, to remember when it is gone."""

    pod: str
    node: str
    devices: tuple[str, ...]
    attach_ms: float
    detach_ms: float | None
    alignment: str | None
    busbw: float | None


@dataclass(frozen=True, slots=True)
class LaneReport:
    """What went over the cards that two pods have on the same rails."""

    near: str
    far: str
    pings_ms: tuple[float | None, ...]
    gbits: tuple[float, ...]


@dataclass(slots=True)
class StoryResult:
    """What came of a story."""

    story: Story
    pods: list[PodReport] = field(default_factory=list)
    lanes: list[LaneReport] = field(default_factory=list)
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Audience:
    """Who watches. This one is not interested in anything; views override what they show."""

    def begin(self, story: Story) -> None:
        """A story begins."""

    def step(self, text: str) -> None:
        """Something starts that may take a moment."""

    def machines(self, cluster: SandboxCluster) -> None:
        """The machines stand and their devices are published."""

    def act(self, act: Act) -> None:
        """An act begins."""

    def pods(self, views: Sequence[PodView]) -> None:
        """The pods run."""

    def lanes(self, act: Act, reports: Sequence[LaneReport]) -> None:
        """Packets went over the claimed cards."""

    async def stay(self, cluster: SandboxCluster, act: Act, pods: Sequence[RunningPod]) -> None:
        """The moment to look around; the pods are stopped when this returns."""

    def home(self, reports: Sequence[PodReport], whole: bool) -> None:
        """The pods are gone; `whole` where everything is as it was before them."""

    def checked(self, check: Check) -> None:
        """A fact was checked."""

    def end(self, result: StoryResult) -> None:
        """The story is over."""

    def curtain(self, results: Sequence[StoryResult]) -> None:
        """All stories are over."""

    def leave(self) -> None:
        """Nothing more will come, for whatever reason."""


@asynccontextmanager
async def nothing_beside(_: SandboxCluster) -> AsyncIterator[None]:
    yield


class Play:
    """One story on machines of its own."""

    def __init__(self, story: Story, folder: Path, audience: Audience, beside: Beside | None = None) -> None:
        self.story = story
        self.beside = beside or nothing_beside
        self.folder = folder
        self.audience = audience
        self.result = StoryResult(story)

    async def run(self) -> StoryResult:
        """Play it to the end, whatever happens, and say what came of it."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        self.audience.begin(self.story)
        try:
            await self._acts()
        except (DranetError, NriError, OSError) as error:
            self._record([Check("the story is played to its end", str(error) or type(error).__name__)])
        self.result.seconds = clock() - begun
        self.audience.end(self.result)
        return self.result

    async def _acts(self) -> None:
        shape = load_shape(self.story.shape)
        plans = [NodePlan(f"{shape.name}-{i}", shape, i) for i in range(self.story.nodes)]
        self.audience.step(f"building {len(plans)} {shape.name} machines and starting their drivers")
        async with SandboxCluster(plans, self.folder / self.story.name) as cluster, self.beside(cluster):
            self.audience.machines(cluster)
            for act in self.story.acts:
                await self._act(cluster, act)
            self.audience.step("taking the machines down")

    async def _act(self, cluster: SandboxCluster, act: Act) -> None:
        self.audience.act(act)
        await cluster.settled()
        before = observing.cards_at_home(cluster.nodes)
        self.audience.step("applying " + ", ".join(act.files))
        pods = await controllers.apply(cluster.client, must_read(example_files(act)), template=act.template)
        started: list[RunningPod] = []
        try:
            for pod in pods:
                started.append(await self._start(cluster, pod))
            await self._show(cluster, act, started)
            await self.audience.stay(cluster, act, started)
        finally:
            reports = await self._stop(cluster, started, pods)
        self.audience.home(reports, await self._all_home(cluster, before))

    async def _start(self, cluster: SandboxCluster, pod: Object) -> RunningPod:
        name = pod["metadata"]["name"]
        self.audience.step(f"scheduling {name}")
        placed = await Scheduler(cluster.client).schedule(pod)
        node = cluster.nodes[placed["spec"]["nodeName"]]
        self.audience.step(f"starting {name} on {node.plan.name}")
        return await running.start(cluster.client, node, placed)

    async def _show(self, cluster: SandboxCluster, act: Act, pods: Sequence[RunningPod]) -> None:
        self.audience.step("looking into the pods")
        views = [await self._view(cluster, pod) for pod in pods]
        self._record(check_pods(act, views, observing.cards_at_home(cluster.nodes)))
        self.audience.pods(views)
        self.audience.step("sending packets over the claimed cards")
        reports = [await asyncio.to_thread(_measure, *found) for found in observing.lanes(pods)]
        self._record([expect("pods on different machines share rails, pair by pair", len(reports), act.pairs)])
        self._record(check for report in reports for check in _traffic_checks(report))
        self.result.lanes += reports
        self.audience.lanes(act, reports)

    async def _view(self, cluster: SandboxCluster, pod: RunningPod) -> PodView:
        """The pod once its claims' status tells of every card: the driver writes it after the pod has started."""
        namespace = pod.object["metadata"]["namespace"]
        names = controllers.claim_names(pod.object).values()

        def claims() -> list[Object]:
            found = (cluster.api.find(resources.RESOURCE_CLAIMS, name, namespace) for name in names)
            return [claim for claim in found if claim is not None]

        def told() -> int:
            return sum(len((claim.get("status") or {}).get("devices") or ()) for claim in claims())

        await until(
            lambda: told() >= len(pod.cards),
            lambda: f"the claims of {pod.name} tell of {told()} of {len(pod.cards)} cards",
        )
        return PodView(pod, observing.pod_interfaces(pod), observing.fit(pod), tuple(claims()))

    async def _stop(
        self, cluster: SandboxCluster, started: Sequence[RunningPod], pods: Sequence[Object]
    ) -> list[PodReport]:
        reports: list[PodReport] = []
        for pod in started:
            self.audience.step(f"stopping {pod.name}")
            seen = observing.fit(pod)
            await running.stop(cluster.client, pod)
            reports.append(_report(pod, seen))
        await controllers.withdraw(cluster.client, pods)
        self.result.pods += reports
        return reports

    async def _all_home(self, cluster: SandboxCluster, before: dict[str, dict[str, observing.Interface]]) -> bool:
        claims, _ = await cluster.client.list(resources.RESOURCE_CLAIMS)
        checks = list(check_home(before, observing.cards_at_home(cluster.nodes), cluster.nodes, claims))
        self._record(checks)
        return all(check.failure is None for check in checks)

    def _record(self, checks: Iterable[Check]) -> None:
        for check in checks:
            if check.failure is None:
                self.result.passed += 1
            else:
                self.result.failures.append(check.failure)
            self.audience.checked(check)


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
    failure = f"{lost} of {len(report.pings_ms)} pings between {pair} got no answer" if lost else None
    yield Check(f"{pair} ping each other over every card", failure)
    silent = sum(not gbit for gbit in report.gbits)
    failure = f"{silent or 'all'} cards between {pair} carried no data" if silent or not report.gbits else None
    yield Check(f"data flows between {pair} over every card", failure)


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
