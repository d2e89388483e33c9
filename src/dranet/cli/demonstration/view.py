"""The text output of ``dranet demo``.

Every pod has a letter, which marks its devices in the picture of the machines, also without colours.
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

from dranet.machines.machine import MachineDevice
from dranet.testing.checks import Check, PodView
from dranet.testing.cluster import ClusterNode, SandboxCluster
from dranet.testing.demo import LaneReport, Observer, PodReport, ScenarioResult
from dranet.testing.isolation import SandboxRoot
from dranet.testing.running import RunningPod
from dranet.testing.scenarios import Scenario, Stage

_COLOURS = ("green", "blue", "magenta", "yellow", "cyan", "red")
_HEAD_STYLE = "bold"
_PIPE_WIDTH = 120


def _console() -> Console:
    """The width of the terminal, or for a file or pipe one that fits every table."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


class Progress(Observer):
    """Shows only what is being done, and that only on a terminal; stays when asked to."""

    def __init__(self, sandbox: SandboxRoot, kept: Scenario | None, console: Console | None = None) -> None:
        self.sandbox = sandbox
        self.kept = kept
        self.console = console or Console(stderr=True, highlight=False)
        self._status = self.console.status("")

    def begin(self, scenario: Scenario) -> None:
        self._status.start()

    def step(self, text: str) -> None:
        self._status.update(f"{text} ...")

    def end(self, result: ScenarioResult) -> None:
        self._status.stop()

    def close(self) -> None:
        self._status.stop()  # gives a terminal its cursor back

    async def pause(self, cluster: SandboxCluster, stage: Stage, pods: Sequence[RunningPod]) -> None:
        if self.kept is None or stage is not self.kept.stages[-1]:
            return
        for name, node in cluster.nodes.items():
            self.sandbox.name(node.node.namespace, name)
        for pod in pods:
            if pod.sandbox.netns is not None:
                self.sandbox.name(pod.sandbox.netns, pod.name)
        self._status.stop()
        with _interrupt() as enough:  # before we invite anybody to press Ctrl-C
            self.console.print(inspection_hints(self.sandbox, cluster, pods), soft_wrap=True)
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


def inspection_hints(sandbox: SandboxRoot, cluster: SandboxCluster, pods: Sequence[RunningPod]) -> Text:
    """The commands that enter and inspect the sandbox."""
    node = next(iter(cluster.nodes.values()))
    pod = next((pod for pod in pods if pod.nics), pods[0])
    folder, inside = node.node.folder, f"nsenter --net={sandbox.names}"
    tool = f"{inside}/{node.plan.name} {sys.executable} -m dranet"
    config = f"--kubeconfig {folder}/kubeconfig.json"
    user = " --user --preserve-credentials" if sandbox.own_user else ""
    enter = f"nsenter --target {sandbox.pid} --mount --net --pid{user}"
    lines = [
        "The sandbox stays up until you press Ctrl-C. From another terminal:",
        "",
        f"  {enter}",
        "",
        "and inside it:",
        "",
        f"  {inside}/{pod.name} ip addr",
        f"  {inside}/{node.plan.name} ip link",
        f"  {tool} status {config}",
        f"  {tool} topo --node {node.plan.name} {config}",
        f"  cat {folder}/log/driver.log",
        f"  ls {folder}/cdi {folder}/dev/infiniband {folder}/sys/class/net",
        f"  ls {sandbox.names}",
        "",
    ]
    return Text("\n".join(lines))


class TextView(Progress):
    """Prints the scenarios on a terminal."""

    def __init__(self, sandbox: SandboxRoot, kept: Scenario | None, console: Console | None = None) -> None:
        super().__init__(sandbox, kept, console or _console())
        self._cluster: SandboxCluster | None = None

    def begin(self, scenario: Scenario) -> None:
        self.console.print(Rule(f"[bold]{scenario.name}[/bold]  {scenario.title}", align="left"))
        super().begin(scenario)

    def machines(self, cluster: SandboxCluster) -> None:
        self._cluster = cluster
        for name, node in cluster.nodes.items():
            nics = len(cluster.published(name))
            self._print(f"{name}: published {nics} NICs; the machine has {len(node.machine.gpus)} GPUs")
        if not all(node.char_devices for node in cluster.nodes.values()):
            self._print("This kernel does not allow device nodes here; /dev/infiniband stays empty in this run.")

    def stage(self, stage: Stage) -> None:
        self.console.print()
        self.console.print(f"[bold]{stage.title}[/bold]")
        files = ", ".join(stage.files)
        self._print(
            f"applied {files}" + (f", with resourceClaimTemplateName: {stage.template}" if stage.template else "")
        )

    def pods(self, views: Sequence[PodView]) -> None:
        letters = dict(zip((view.pod.name for view in views if view.pod.devices), ascii_uppercase, strict=False))
        self._show(_pod_table(views, letters))
        worker = next((view for view in views if view.pod.devices), None)
        if worker is not None and self._cluster is not None:
            self._show(_inside(worker))
            self._show(_picture(self._cluster.nodes.values(), views, letters))

    def lanes(self, stage: Stage, reports: Sequence[LaneReport]) -> None:
        if not stage.pairs:
            self._print("These NICs are RDMA only and have no network interface, so there is no ping.")
        for report in reports:
            self._print(_lane(report))

    def detached(self, reports: Sequence[PodReport], whole: bool) -> None:
        times = _range([report.detach_ms for report in reports if report.devices and report.detach_ms is not None])
        found = "all settings are restored" if whole else "some settings differ from before"
        self._print(f"Pods deleted, NICs returned to the host network namespace in {times}: {found}.")

    def checked(self, check: Check) -> None:
        if check.failure is not None:
            self._print(Text(f"✗ {check.failure}", style="red"))

    def end(self, result: ScenarioResult) -> None:
        super().end(result)
        colour, mark = ("red", "✗") if result.failures else ("green", "✓")
        total = result.passed + len(result.failures)
        self.console.print()
        self._print(f"[{colour}]{mark} {result.passed} of {total} checks passed[/{colour}] in {result.seconds:.1f} s")
        self.console.print()

    def finish(self, results: Sequence[ScenarioResult]) -> None:
        self.console.print(_summary(results))
        failed = sum(len(result.failures) for result in results)
        passed = sum(result.passed for result in results)
        seconds = sum(result.seconds for result in results)
        verdict = f"[red]{failed} checks failed[/red]" if failed else f"[green]All {passed} checks passed[/green]"
        self.console.print(f"{verdict} in {seconds:.0f} s. Nothing is left on this machine.")

    def _print(self, text: RenderableType) -> None:
        self.console.print(Padding(text, (0, 0, 0, 2), expand=False))

    def _show(self, part: Table | Group) -> None:
        self._print(Group("", part))


def _pod_table(views: Sequence[PodView], letters: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style=_HEAD_STYLE)
    for title in ("", "pod", "machine", "GPUs", "NICs", "farthest pair", "expected busbw", "attached in"):
        table.add_column(title, overflow="fold")
    for view in views:
        pod = view.pod
        rate = f"{_rate(view.fit.busbw)} GB/s" if view.fit.busbw else "-"
        if view.fit.busbw and view.fit.best and _rate(view.fit.best) != _rate(view.fit.busbw):
            rate += f" [red](of {_rate(view.fit.best)})[/red]"
        gpus = len(pod.devices) - len(pod.nics)
        cells = [pod.node.plan.name, str(gpus or "-"), str(len(pod.nics) or "-"), view.fit.worst or "-", rate]
        table.add_row(_letter(letters, pod.name), pod.name, *cells, _ms(pod.attach_ms) if pod.nics else "-")
    return table


def _inside(view: PodView) -> Group:
    """Interfaces, device nodes and claims of one pod."""
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
    """GPUs and NICs by NUMA node and PCIe root, each with the letter of its pod."""
    owners = {(v.pod.node.plan.name, d.driver, d.device): v.pod.name for v in views for d in v.pod.devices}
    return Group(*(_machine_table(node, owners, letters) for node in nodes))


def _machine_table(node: ClusterNode, owners: Mapping[tuple[str, str, str], str], letters: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style=_HEAD_STYLE)
    for title in (node.plan.name, "PCIe root", "GPUs", "NICs"):
        table.add_column(title, no_wrap=True)
    for (numa, root), (gpus, nics) in _places(node).items():
        cells = [
            Text("  ").join(_device(part, owners.get((node.plan.name, *part.id)), letters) for part in parts)
            for parts in (gpus, nics)
        ]
        table.add_row("" if numa is None else f"NUMA {numa}", root or "none", *cells)
    return table


def _places(node: ClusterNode) -> dict[tuple[int | None, str | None], tuple[list[MachineDevice], list[MachineDevice]]]:
    machine = node.machine
    found: dict[tuple[int | None, str | None], tuple[list[MachineDevice], list[MachineDevice]]] = {}
    for side, parts in enumerate((machine.gpus, machine.nics)):
        for part in parts:
            found.setdefault((part.position.numa, part.position.root), ([], []))[side].append(part)
    return dict(sorted(found.items(), key=lambda item: (item[0][0] or 0, item[0][1] or "~")))


def _device(part: MachineDevice, owner: str | None, letters: Mapping[str, str]) -> Text:
    title = part.title or part.device
    if owner is None:
        return Text(title, style="dim")
    letter = letters.get(owner, "?")
    return Text(f"{title}:{letter}", style=_colour(letter))


def _letter(letters: Mapping[str, str], pod: str) -> Text:
    letter = letters.get(pod, "")
    return Text(letter, style=_colour(letter) if letter else "")


def _colour(letter: str) -> str:
    return f"bold {_COLOURS[ascii_uppercase.index(letter) % len(_COLOURS)]}"


def _lane(report: LaneReport) -> str:
    answered = [ping for ping in report.pings_ms if ping is not None]
    count = len(report.pings_ms)
    ping = f"ping over {count} NIC{'s' * (count != 1)}: {len(answered)} answered"
    if answered:
        ping += f", {min(answered):.2f} to {max(answered):.2f} ms"
    flow = f"; TCP {sum(report.gbits):.1f} Gbit/s in total through the kernel of this machine" if report.gbits else ""
    return f"{report.near} ⇄ {report.far}: {ping}{flow}"


def _summary(results: Sequence[ScenarioResult]) -> Table:
    table = Table(box=None, pad_edge=False, header_style=_HEAD_STYLE, title="Summary", title_justify="left")
    titles = ("scenario", "pods", "devices", "farthest pair", "expected busbw", "attach", "detach", "checks", "time")
    for title in titles:
        table.add_column(title, overflow="fold")
    for result in results:
        pods = [pod for pod in result.pods if pod.devices]
        rates = list(dict.fromkeys(_rate(pod.busbw) for pod in pods if pod.busbw))
        failed = len(result.failures)
        checks = f"[red]{failed} failed[/red]" if failed else f"[green]{result.passed} passed[/green]"
        table.add_row(
            result.scenario.name,
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
