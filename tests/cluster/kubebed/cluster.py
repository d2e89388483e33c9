"""The whole bed: brought up in the order that works, found again while it runs, taken down whatever happened.

`up` starts by clearing what an earlier bed of the same number left. A bed has an owner, the process that will take
it down; `keep` gives it none, for a developer who wants it to stay.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.file_lock import locked

from . import config, parts
from .build import GoProgram
from .cache import BedError, say
from .controlplane import CONTROLLERS, STORE, ControlPlane
from .helm import Helm
from .images import busybox_image
from .kubectl import Kubectl
from .layout import Layout, NodeLayout
from .nics import Fabric, Nic, default_nics
from .node import Node
from .pki import CONTROL_PLANE_USERS, make_pki, node_user
from .processes import Processes, Record, this_process, wait_until

HIDDEN_IN_NODES = ("/run", "/dev", "/sys", "/proc", "/var/lib", "/var/log")


@dataclass(frozen=True)
class Options:
    """What kind of bed."""

    kubernetes: str = parts.DEFAULT_KUBERNETES
    nodes: int = 2
    nics: int = 8
    """NICs per node; 0 for none, when a test makes its own."""
    feature_gates: dict[str, bool] = field(default_factory=dict)
    controllers: bool = True
    """False: the scheduler alone, so that nothing happens but what it does."""
    etcd_quota: int = 0
    """Bytes; 0 for etcd's own default."""

    @staticmethod
    def from_environment() -> Options:
        return Options(
            kubernetes=os.environ.get("K8S", parts.DEFAULT_KUBERNETES),
            nodes=int(os.environ.get("BED_NODES", "2")),
            nics=int(os.environ.get("BED_NICS", "8")),
        )

    @property
    def version(self) -> str:
        return parts.kubernetes_version(self.kubernetes)


class Cluster:
    def __init__(self, layout: Layout, options: Options) -> None:
        self.layout = layout
        self.options = options
        self.processes = Processes(layout.folder)
        self._gates = config.feature_gates(options.version, options.feature_gates)
        self.control_plane = ControlPlane(layout, self.processes, options.version, self._gates, options.etcd_quota)
        self.nodes = [Node(NodeLayout(layout, index), self.processes) for index in range(1, options.nodes + 1)]

    @staticmethod
    def running(layout: Layout) -> Cluster:
        """The bed that is up, with the options it was started with."""
        try:
            saved = json.loads((layout.folder / "bed.json").read_text())
        except FileNotFoundError:
            raise BedError(f"{layout.name} is not up: start it with `up`") from None
        return Cluster(layout, Options(**saved["options"]))

    @property
    def kubectl(self) -> Kubectl:
        return Kubectl(parts.kubectl(), self.layout.kubeconfig, cache=self.layout.discovery)

    @property
    def helm(self) -> Helm:
        return Helm(parts.add_on(parts.HELM), self.layout.kubeconfig, self.layout.discovery)

    @property
    def fabric(self) -> Fabric:
        return Fabric(self.processes.find("fabric").pid)

    def node_names(self) -> list[str]:
        return [node.name for node in self.nodes]

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise BedError(f"no node {name!r}; there are {self.node_names()}")

    def nics(self, node: Node) -> tuple[Nic, ...]:
        """The NICs the node was given when the bed came up."""
        return default_nics(node.layout.index, self.options.nics)

    def healthy(self) -> bool:
        """Whether everything `up` started still runs; add-ons may come and go."""
        started = [*STORE, *CONTROLLERS, "fabric"]
        started += [f"{node.name}-{part}" for node in self.nodes for part in ("init", "containerd", "kubelet")]
        return all(map(self.processes.running, started)) and self.control_plane.api_ready()

    def up(self, keep: bool = False) -> None:
        """From nothing to schedulable nodes. Without `keep` the bed belongs to this process."""
        _check_machine(self.layout)
        parts.build_all(self.options.version, ())
        started = time.monotonic()
        with _exclusive(self.layout):
            self._refuse_other_owner()
            self._clear()
            self._refuse_foreign_bridge()
            try:
                self._bring_up(keep)
            except BaseException:
                self._clear(keep_logs=True)
                raise
        say(f"{self.layout.name} is up in {time.monotonic() - started:.1f} s: Kubernetes {self.options.version}")

    def down(self) -> None:
        with _exclusive(self.layout):
            self._clear(keep_logs=True)

    def kept(self) -> bool:
        """Whether the bed was brought up to stay."""
        return self._description().get("owner", "none") is None

    def owner_alive(self) -> bool:
        """Whether the process that would take this bed down still lives."""
        owner = self._description().get("owner")
        return owner is not None and Record(**owner).alive()

    def load_image(self, tar: Path) -> None:
        for node in self.nodes:
            node.load_image(tar)

    def has_image(self, reference: str) -> bool:
        """Whether every node knows the image."""
        return all(node.has_image(reference) for node in self.nodes)

    def install_driver(
        self, release: str, chart: Path, image: Path | None = None, values: Mapping[str, Any] | None = None
    ) -> None:
        """Load the image on every node, install or upgrade the chart as its users do, wait until its pods are ready."""
        if image is not None:
            self.load_image(image)
        self.helm.install(release, chart, values, "kube-system")

    def uninstall_driver(self, release: str) -> None:
        self.helm.uninstall(release, "kube-system")

    def restart_kubelet(self, node: Node) -> None:
        node.stop("kubelet")
        node.start_kubelet(self.options.version, self._gates)

    def restart_containerd(self, node: Node, *, crash: bool = False) -> None:
        """Its pods keep running meanwhile: each has a shim of its own. A crash lets it finish nothing."""
        node.stop("containerd", patience=0 if crash else 10)
        node.start_containerd()
        node.wait_containerd()

    @contextlib.contextmanager
    def api_server_away(self, controllers_restart: bool = False, ready_within: float = 60) -> Iterator[None]:
        """No API server inside the `with`; back and ready after it.

        Where several compete for the lead, scheduler and controller manager end when they cannot renew their lease, and
        are started again. `controllers_restart` does the same here; else they go on with delays of up to a minute.
        """
        self.control_plane.kill_api_server()
        try:
            yield
        finally:
            self.control_plane.start_api_server()
            self.control_plane.wait_api_server(ready_within)
            if controllers_restart:
                self.control_plane.restart_controllers()

    def replug(self, node: Node, nics: Iterable[Nic]) -> None:
        """Make `nics` of a node afresh, whatever became of them."""
        for nic in nics:
            self.fabric.unplug(nic, node.layout.index)
            self.fabric.plug(nic, node.layout.index, node.pid)

    def start_dns(self) -> None:
        """Cluster DNS as a process on the hub; headless services then resolve in pods."""
        (self.layout.folder / "Corefile").write_text(config.dns_config(self.layout))
        self.start_add_on(parts.COREDNS, "-conf", str(self.layout.folder / "Corefile"))

    def start_add_on(self, program: GoProgram, *arguments: str) -> Record:
        """A helper as a process next to the control plane; one that runs already is left as it is."""
        if running := self.processes.running(program.name):
            return running
        return self.processes.start(program.name, [parts.add_on(program), *arguments])

    def _bring_up(self, keep: bool) -> None:
        self.layout.logs.mkdir(parents=True)
        owner = None if keep else this_process("owner")
        self._save_description(owner)
        if owner:
            self._start_guard(owner)
        make_pki(self.layout, (*CONTROL_PLANE_USERS, *(node_user(node.name) for node in self.nodes)))
        self.control_plane.make_hub()
        self.control_plane.start_etcd()
        self.control_plane.start_api_server()
        self._make_nodes()
        self.control_plane.wait_api_server()
        if not self.options.controllers:
            self.control_plane.start_scheduler()
            return
        self.control_plane.start_controllers()
        for node in self.nodes:
            node.start_kubelet(self.options.version, self._gates)
        wait_until(self._schedulable, "all nodes to be schedulable", 120)

    def _make_nodes(self) -> None:
        """While the API server starts: it takes the longest."""
        self.processes.start("fabric", ["unshare", "-n", "sleep", "infinity"])
        for node in self.nodes:
            node.create()
            node.configure_containerd()
            node.start_containerd()
        self._join_pod_networks()
        for node in self.nodes:
            node.plug(self.fabric, self.nics(node))
            node.wait_containerd()
            node.load_image(busybox_image())

    def _join_pod_networks(self) -> None:
        """Every pod reaches every pod: a route to the pods of each other node."""
        for node in self.nodes:
            for other in self.nodes:
                if other is not node:
                    node.run("ip", "route", "replace", other.layout.pods, "via", other.layout.address)

    def _schedulable(self) -> bool:
        nodes = self.kubectl.items("nodes")
        ready = [node for node in nodes if _is_ready(node) and not node["spec"].get("taints")]
        return len(ready) == len(self.nodes) and bool(self.kubectl.items("serviceaccounts"))

    def _description(self) -> dict[str, Any]:
        try:
            saved: dict[str, Any] = json.loads((self.layout.folder / "bed.json").read_text())
        except FileNotFoundError:
            return {}
        return saved

    def _save_description(self, owner: Record | None) -> None:
        saved = {"options": asdict(self.options), "owner": asdict(owner) if owner else None}
        (self.layout.folder / "bed.json").write_text(json.dumps(saved, indent=1))

    def _start_guard(self, owner: Record) -> None:
        """A process that takes this bed down should its owner die without doing so; see `guard`."""
        package = Path(__file__).parent
        command = [sys.executable, str(package), "guard", str(owner.pid), str(owner.started)]
        self.processes.start("guard", command, {"BED": str(self.layout.number)})

    def _refuse_other_owner(self) -> None:
        if self.owner_alive():
            raise BedError(
                f"{self.layout.name} is in use by another test run: wait, or take another bed with BED=1 to 9"
            )

    def _refuse_foreign_bridge(self) -> None:
        """What is left after clearing was made by a bed whose records are in another cache."""
        if Path("/sys/class/net", self.layout.bridge).exists():
            raise BedError(
                f"{self.layout.bridge} exists, and {self.layout.folder} knows nothing of it: a bed of another cache. "
                f"Take BED=1 to 9; if that cache is gone, `ip link del {self.layout.bridge}`"
            )

    def _clear(self, keep_logs: bool = False) -> None:
        if self._description():
            self._end_processes()
            for index in range(1, self._nodes_before() + 1):
                Node(NodeLayout(self.layout, index), self.processes).remove()
            self.control_plane.remove_hub()
        _remove_files(self.layout, keep_logs)

    def _end_processes(self) -> None:
        """Killing the parent of a node's process 1 ends that one, and with it every process of the node."""
        records = [record.name for record in self.processes.records() if record.pid != os.getpid()]
        inits = [name for name in records if name.endswith("-init")]
        others = [name for name in records if name not in (*inits, *STORE)]
        self.processes.stop(*CONTROLLERS)
        self.processes.stop(*inits, patience=0)
        self.processes.stop(*others)
        self.processes.stop("kube-apiserver", patience=3)
        self.processes.stop("etcd", patience=3)

    def _nodes_before(self) -> int:
        """How many nodes the bed being cleared had, which need not be how many this one will have."""
        with contextlib.suppress(BedError):
            return max(self.options.nodes, Cluster.running(self.layout).options.nodes)
        return self.options.nodes


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _check_machine(layout: Layout) -> None:
    if os.geteuid() != 0:
        raise BedError("a bed makes namespaces, links and control groups: run it as root")
    missing = [tool for tool in ("unshare", "nsenter", "ip", "openssl", "mount") if shutil.which(tool) is None]
    if missing:
        raise BedError(f"missing on this machine: {', '.join(missing)} (packages util-linux, iproute2, openssl)")
    for hidden in HIDDEN_IN_NODES:
        if layout.folder.is_relative_to(hidden):
            raise BedError(
                f"the cache {layout.folder} is below {hidden}, which nodes do not see: set XDG_CACHE_HOME elsewhere"
            )


def _remove_files(layout: Layout, keep_logs: bool) -> None:
    for path in sorted(layout.folder.glob("*")):
        if path == layout.logs and keep_logs:
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextlib.contextmanager
def _exclusive(layout: Layout) -> Iterator[None]:
    """One `up` or `down` of a bed at a time."""
    layout.folder.mkdir(parents=True, exist_ok=True)
    with locked(layout.folder.with_suffix(".lock")):
        yield
