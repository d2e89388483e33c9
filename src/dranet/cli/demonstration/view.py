"""The text view of ``dranet demo``: what a person would type to look at each thing, and what they would see.

Every pod has a letter, by which the picture of the machines shows whose a device is, also without colours.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from string import ascii_uppercase

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from dranet.sandbox.checks import Check, PodView
from dranet.sandbox.cluster import ClusterNode, SandboxCluster
from dranet.sandbox.demo import Audience, LaneReport, PodReport, StoryResult
from dranet.sandbox.isolation import Quarters
from dranet.sandbox.running import RunningPod
from dranet.sandbox.stories import Act, Story
from dranet.topology.machine import Part

COLOURS = ("green", "blue", "magenta", "yellow", "cyan", "red")
HEAD = "bold"
PIPE_WIDTH = 120


def _console() -> Console:
    """The terminal as wide as it is; a file or pipe wide enough for every table."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


class Progress(Audience):
    """Shows only what is being done, and that only on a terminal; stays when asked to."""

    def __init__(self, quarters: Quarters, kept: Story | None, console: Console | None = None) -> None:
        self.quarters = quarters
        self.kept = kept
        self.console = console or Console(stderr=True, highlight=False)
        self._status = self.console.status("")

    def begin(self, story: Story) -> None:
        self._status.start()

    def step(self, text: str) -> None:
        self._status.update(f"{text} ...")

    def end(self, result: StoryResult) -> None:
        self._status.stop()

    def leave(self) -> None:
        self._status.stop()  # gives a terminal its cursor back

    async def stay(self, cluster: SandboxCluster, act: Act, pods: Sequence[RunningPod]) -> None:
        if self.kept is None or act is not self.kept.acts[-1]:
            return
        for name, node in cluster.nodes.items():
            self.quarters.name(node.node.namespace, name)
        for pod in pods:
            if pod.sandbox.netns is not None:
                self.quarters.name(pod.sandbox.netns, pod.name)
        self._status.stop()
        with _interrupt() as enough:  # before we invite anybody to press Ctrl-C
            self.console.print(look_around(self.quarters, cluster, pods), soft_wrap=True)
            await enough.wait()
        self._status.start()


@contextmanager
def _interrupt() -> Iterator[asyncio.Event]:
    """Ctrl-C as an event, for as long as the block lasts."""
    enough = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, enough.set)
    try:
        yield enough
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def look_around(quarters: Quarters, cluster: SandboxCluster, pods: Sequence[RunningPod]) -> Text:
    """How to get in, and what there is to see."""
    node = next(iter(cluster.nodes.values()))
    pod = next((pod for pod in pods if pod.cards), pods[0])
    folder, inside = node.node.folder, f"nsenter --net={quarters.names}"
    tool = f"{inside}/{node.plan.name} {sys.executable} -m dranet"
    config = f"--kubeconfig {folder}/kubeconfig.json"
    user = " --user --preserve-credentials" if quarters.own_user else ""
    enter = f"nsenter --target {quarters.pid} --mount --net --pid{user}"
    lines = [
        "The sandbox stays up until you press Ctrl-C. From another terminal:",
        "",
        f"  {enter}",
        "",
        "and in there:",
        "",
        f"  {inside}/{pod.name} ip addr",
        f"  {inside}/{node.plan.name} ip link",
        f"  {tool} status {config}",
        f"  {tool} topo --node {node.plan.name} {config}",
        f"  cat {folder}/log/driver.log",
        f"  ls {folder}/cdi {folder}/dev/infiniband {folder}/sys/class/net",
        f"  ls {quarters.names}",
        "",
    ]
    return Text("\n".join(lines))


class TextView(Progress):
    """Tells the stories on a terminal."""

    def __init__(self, quarters: Quarters, kept: Story | None, console: Console | None = None) -> None:
        super().__init__(quarters, kept, console or _console())
        self._cluster: SandboxCluster | None = None

    def begin(self, story: Story) -> None:
        self.console.print(Rule(f"[bold]{story.name}[/bold]  {story.title}", align="left"))
        super().begin(story)

    def machines(self, cluster: SandboxCluster) -> None:
        self._cluster = cluster
        for name, node in cluster.nodes.items():
            cards = len(cluster.published(name))
            self._say(f"{name}: {cards} cards discovered and published, {len(node.machine.gpus)} GPUs beside them")
        if not all(node.char_devices for node in cluster.nodes.values()):
            self._say("This kernel lets us make no device nodes; /dev/infiniband stays empty in this run.")

    def act(self, act: Act) -> None:
        self.console.print()
        self.console.print(f"[bold]{act.title}[/bold]")
        files = ", ".join(act.files)
        self._say(f"applied {files}" + (f", with resourceClaimTemplateName: {act.template}" if act.template else ""))

    def pods(self, views: Sequence[PodView]) -> None:
        letters = dict(zip((view.pod.name for view in views if view.pod.devices), ascii_uppercase, strict=False))
        self._show(_pod_table(views, letters))
        worker = next((view for view in views if view.pod.devices), None)
        if worker is not None and self._cluster is not None:
            self._show(_inside(worker))
            self._show(_picture(self._cluster.nodes.values(), views, letters))

    def lanes(self, act: Act, reports: Sequence[LaneReport]) -> None:
        if not act.pairs:
            self._say("These cards have no network interface: RDMA only, so there is nothing to ping.")
        for report in reports:
            self._say(_lane(report))

    def home(self, reports: Sequence[PodReport], whole: bool) -> None:
        times = _range([report.detach_ms for report in reports if report.devices and report.detach_ms is not None])
        found = "every card is home as it left" if whole else "not everything is as it was"
        self._say(f"Pods deleted, cards taken back in {times}: {found}.")

    def checked(self, check: Check) -> None:
        if check.failure is not None:
            self._say(Text(f"✗ {check.failure}", style="red"))

    def end(self, result: StoryResult) -> None:
        super().end(result)
        colour, mark = ("red", "✗") if result.failures else ("green", "✓")
        total = result.passed + len(result.failures)
        self.console.print()
        self._say(f"[{colour}]{mark} {result.passed} of {total} checks passed[/{colour}] in {result.seconds:.1f} s")
        self.console.print()

    def curtain(self, results: Sequence[StoryResult]) -> None:
        self.console.print(_summary(results))
        failed = sum(len(result.failures) for result in results)
        passed = sum(result.passed for result in results)
        seconds = sum(result.seconds for result in results)
        verdict = f"[red]{failed} checks failed[/red]" if failed else f"[green]All {passed} checks passed[/green]"
        self.console.print(f"{verdict} in {seconds:.0f} s. Nothing of this is left on your machine.")

    def _say(self, text: RenderableType) -> None:
        self.console.print(Padding(text, (0, 0, 0, 2), expand=False))

    def _show(self, part: Table | Group) -> None:
        self._say(Group("", part))


def _pod_table(views: Sequence[PodView], letters: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style=HEAD)
    for title in ("", "pod", "machine", "GPUs", "cards", "farthest pair", "expected busbw", "attached in"):
        table.add_column(title, overflow="fold")
    for view in views:
        pod = view.pod
        rate = f"{_rate(view.fit.busbw)} GB/s" if view.fit.busbw else "-"
        if view.fit.busbw and view.fit.best and _rate(view.fit.best) != _rate(view.fit.busbw):
            rate += f" [red](of {_rate(view.fit.best)})[/red]"
        gpus = len(pod.devices) - len(pod.cards)
        cells = [pod.node.plan.name, str(gpus or "-"), str(len(pod.cards) or "-"), view.fit.worst or "-", rate]
        table.add_row(_letter(letters, pod.name), pod.name, *cells, _ms(pod.attach_ms) if pod.cards else "-")
    return table


def _inside(view: PodView) -> Group:
    """One worker from the inside."""
    pod = view.pod
    parts: list[Text] = []
    if view.interfaces:
        parts += [_heading(f"{pod.name}, ip addr:"), *_addresses(view)]
    nodes = " ".join(path.rpartition("/")[2] for path in pod.char_devices)
    if nodes:
        parts += [_heading(f"{pod.name}, /dev/infiniband:"), Text(f"  {nodes}")]
    for claim in view.claims:
        parts += [_heading(f"claim {claim['metadata']['name']}, status:"), *_claim_lines(claim)]
    return Group(*parts)


def _heading(text: str) -> Text:
    return Text(text, style="italic")


def _addresses(view: PodView) -> Iterator[Text]:
    for name, interface in view.interfaces.items():
        state = "UP" if interface.up else "DOWN"
        yield Text(f"  {name:14}{state:6}{' '.join(interface.addresses):18}mtu {interface.mtu}  {interface.mac}")


def _claim_lines(claim: Mapping[str, object]) -> Iterator[Text]:
    status = claim["status"]
    assert isinstance(status, dict)
    held = f"{len(status['allocation']['devices']['results'])} devices, reserved for {status['reservedFor'][0]['name']}"
    yield Text(f"  allocated: {held}")
    for device in status.get("devices") or ():
        conditions = " ".join(f"{c['type']}={c['status']}" for c in device["conditions"])
        data = device.get("networkData") or {}
        where = f"{data.get('interfaceName', '')} {' '.join(data.get('ips') or ())}".strip()
        yield Text(f"  {device['device']:18}{conditions:30}{where}".rstrip())


def _picture(nodes: Iterable[ClusterNode], views: Sequence[PodView], letters: Mapping[str, str]) -> Group:
    """GPUs and cards by NUMA node and PCIe root, each with the letter of the pod that has it."""
    owners = {(v.pod.node.plan.name, d.driver, d.device): v.pod.name for v in views for d in v.pod.devices}
    return Group(*(_machine_table(node, owners, letters) for node in nodes))


def _machine_table(node: ClusterNode, owners: Mapping[tuple[str, str, str], str], letters: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style=HEAD)
    for title in (node.plan.name, "PCIe root", "GPUs", "cards"):
        table.add_column(title, no_wrap=True)
    for (numa, root), (gpus, nics) in _places(node).items():
        cells = [
            Text("  ").join(_device(part, owners.get((node.plan.name, *part.id)), letters) for part in parts)
            for parts in (gpus, nics)
        ]
        table.add_row("" if numa is None else f"NUMA {numa}", root or "none", *cells)
    return table


def _places(node: ClusterNode) -> dict[tuple[int | None, str | None], tuple[list[Part], list[Part]]]:
    machine = node.machine
    found: dict[tuple[int | None, str | None], tuple[list[Part], list[Part]]] = {}
    for side, parts in enumerate((machine.gpus, machine.nics)):
        for part in parts:
            found.setdefault((part.place.numa, part.place.root), ([], []))[side].append(part)
    return dict(sorted(found.items(), key=lambda item: (item[0][0] or 0, item[0][1] or "~")))


def _device(part: Part, owner: str | None, letters: Mapping[str, str]) -> Text:
    title = part.title or part.device
    if owner is None:
        return Text(title, style="dim")
    letter = letters.get(owner, "?")
    return Text(f"{title}:{letter}", style=_colour(letter))


def _letter(letters: Mapping[str, str], pod: str) -> Text:
    letter = letters.get(pod, "")
    return Text(letter, style=_colour(letter) if letter else "")


def _colour(letter: str) -> str:
    return f"bold {COLOURS[ascii_uppercase.index(letter) % len(COLOURS)]}"


def _lane(report: LaneReport) -> str:
    answered = [ping for ping in report.pings_ms if ping is not None]
    count = len(report.pings_ms)
    ping = f"ping over {count} card{'s' * (count != 1)}: {len(answered)} answered"
    if answered:
        ping += f", {min(answered):.2f} to {max(answered):.2f} ms"
    flow = f"; TCP {sum(report.gbits):.1f} Gbit/s in all through this machine's kernel" if report.gbits else ""
    return f"{report.near} ⇄ {report.far}: {ping}{flow}"


def _summary(results: Sequence[StoryResult]) -> Table:
    table = Table(box=None, pad_edge=False, header_style=HEAD, title="Summary", title_justify="left")
    titles = ("scenario", "pods", "devices", "farthest pair", "expected busbw", "attach", "detach", "checks", "time")
    for title in titles:
        table.add_column(title, overflow="fold")
    for result in results:
        pods = [pod for pod in result.pods if pod.devices]
        rates = list(dict.fromkeys(_rate(pod.busbw) for pod in pods if pod.busbw))
        failed = len(result.failures)
        checks = f"[red]{failed} failed[/red]" if failed else f"[green]{result.passed} passed[/green]"
        table.add_row(
            result.story.name,
            str(len(result.pods)),
            str(sum(len(pod.devices) for pod in pods)),
            ", ".join(dict.fromkeys(pod.alignment or "-" for pod in pods)),
            f"{', '.join(rates)} GB/s" if rates else "-",
            _range([pod.attach_ms for pod in pods]),
            _range([pod.detach_ms for pod in pods if pod.detach_ms is not None]),
            checks,
            f"{result.seconds:.1f} s",
        )
    return table


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.0f}-{max(values):.0f} ms" if values else "-"


def _rate(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"
