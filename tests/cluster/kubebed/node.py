"""One node: namespaces, a cable to the hub, containerd, a kubelet, NICs and stand-in RDMA devices.

A node object holds no state of its own: everything is found again through the layout and the recorded processes, so a
command line started later works with the same node.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from . import cgroups, config, parts
from .cache import BedError
from .layout import NodeLayout
from .nics import Fabric, Nic, in_namespace, ip
from .processes import Processes, Record, children, state, wait_until

NAMESPACES = ("-m", "-n", "-u", "-i", "-p")
HOLDER = Path(__file__).with_name("nodeinit.py")
UVERBS_MAJOR, UVERBS_MINOR = 231, 192
UMAD_MAJOR, UMAD_MINOR = 231, 0


class Node:
    def __init__(self, layout: NodeLayout, processes: Processes) -> None:
        self.layout = layout
        self._processes = processes

    @property
    def name(self) -> str:
        return self.layout.name

    @property
    def pid(self) -> int:
        """Process 1 of the node, as the machine numbers it."""
        outer = self._processes.find(f"{self.name}-init")
        found = children(outer.pid)
        if not found:
            raise BedError(f"node {self.name} is gone; {self._processes.explain(outer.name)}")
        return found[0]

    @property
    def sysfs(self) -> Path:
        """A folder of this machine that the node shows as /run/bed/sysfs: fill it with the sysfs a driver shall see."""
        return self.layout.folder / "sysfs"

    @property
    def root(self) -> Path:
        """The node's file system as seen from this machine."""
        return Path(f"/proc/{self.pid}/root")

    @property
    def registries(self) -> Path:
        """Where containerd looks how to reach a registry; a folder for each."""
        return self.layout.folder / "registries"

    def create(self) -> None:
        """Namespaces and the cable to the hub; no daemon yet."""
        shutil.rmtree(self.layout.folder, ignore_errors=True)
        self.layout.folder.mkdir(parents=True)
        cgroups.make(self.layout.cgroup)
        unshare = ["unshare", *NAMESPACES, "--propagation", "private", "--fork", "--kill-child"]
        holder = self._processes.start(
            f"{self.name}-init", [*unshare, sys.executable, "-I", HOLDER, self.layout.folder, self.name]
        )
        wait_until(lambda: self._laid_out(holder), f"node {self.name} to be laid out", 60)
        self._connect()

    def configure_containerd(self) -> None:
        folder = self.layout.folder
        (folder / "net.d").mkdir()
        (folder / "net.d/10-bed.conflist").write_text(config.cni_config(self.layout))
        (folder / "containerd.toml").write_text(config.containerd_config(self.layout, parts.cni_dir(), parts.runc()))

    def wait_containerd(self) -> None:
        wait_until(lambda: self._ctr("version").returncode == 0, f"containerd of {self.name}", 60)

    def start_containerd(self) -> None:
        """As configured before; with pods running it takes them over again."""
        self.start("containerd", [parts.containerd_dir() / "containerd", "-c", self.layout.folder / "containerd.toml"])

    def start_kubelet(self, version: str, gates: str) -> None:
        (self.layout.folder / "kubelet.json").write_text(config.kubelet_config(self.layout))
        kubelet = parts.kubernetes("kubelet", version)
        self.start("kubelet", [kubelet, *config.kubelet_arguments(self.layout, gates)])

    def start(self, name: str, command: Iterable[str | Path]) -> Record:
        """A daemon in the node, recorded as `<node>-<name>`."""
        path = f"{parts.containerd_dir()}:{parts.runc().parent}:{os.environ['PATH']}"
        return self._processes.start_in(f"{self.name}-{name}", self.entry(), command, {"PATH": path})

    def stop(self, name: str, patience: float = 10) -> None:
        self._processes.stop(f"{self.name}-{name}", patience=patience)

    def process(self, name: str) -> Record:
        return self._processes.find(f"{self.name}-{name}")

    def pod_processes(self, pod_uid: str) -> list[int]:
        """Processes of a pod on this node, as this machine numbers them: to kill a driver in its container."""
        return cgroups.pod_processes(self.layout.cgroup, pod_uid)

    @contextlib.contextmanager
    def paused(self, pod_uid: str) -> Iterator[list[int]]:
        """All processes of a pod stand still (SIGSTOP) inside the `with`."""
        stopped = self.pod_processes(pod_uid)
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        try:
            wait_until(lambda: all(state(process) == "T" for process in stopped), "the processes to stand still", 60)
            yield stopped
        finally:
            for process in stopped:
                os.kill(process, signal.SIGCONT)

    def run(self, *command: str | Path, check: bool = True, stdin: str | None = None) -> str:
        """A command in the node, with the rights of its root; its output."""
        words = [str(word) for word in command]
        done = subprocess.run([*self.entry(), *words], capture_output=True, text=True, input=stdin)
        if check and done.returncode != 0:
            raise BedError(f"on {self.name}: {' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def load_image(self, tar: Path) -> None:
        """Make the images in an OCI tar known to containerd. Pods that use them say `imagePullPolicy: Never`."""
        done = self._ctr("-n", "k8s.io", "images", "import", str(tar.resolve()))
        if done.returncode != 0:
            raise BedError(f"containerd of {self.name} does not take {tar}: {done.stderr.strip()}")

    def has_image(self, reference: str) -> bool:
        return reference in self._ctr("-n", "k8s.io", "images", "ls", "-q").stdout.split()

    def plug(self, fabric: Fabric, nics: Iterable[Nic]) -> None:
        for nic in nics:
            fabric.plug(nic, self.layout.index, self.pid)

    def unplug(self, fabric: Fabric, nics: Iterable[Nic]) -> None:
        for nic in nics:
            fabric.unplug(nic, self.layout.index)

    def links(self) -> list[str]:
        """Names of the links now in the node's own namespace."""
        lines = in_namespace(self.pid, "-br link show").splitlines()
        return sorted(line.split()[0].partition("@")[0] for line in lines)

    def make_rdma_devices(self, count: int) -> None:
        """`uverbsN` and `umadN` that stand in for real ones: the kernel has no driver behind them, so opening one
        gives ENXIO where the container is allowed to and EPERM where it is not."""
        folder = self.root / "dev/infiniband"
        folder.mkdir(exist_ok=True)
        for n in range(count):
            _make_device(folder / f"uverbs{n}", UVERBS_MAJOR, UVERBS_MINOR + n)
            _make_device(folder / f"umad{n}", UMAD_MAJOR, UMAD_MINOR + n)

    def remove(self) -> None:
        """What is left on the machine once the node's processes are gone."""
        ip(f"link del {self.layout.uplink}", accept="Cannot find device")
        cgroups.remove(self.layout.cgroup)
        shutil.rmtree(self.layout.folder, ignore_errors=True)

    def _laid_out(self, holder: Record) -> bool:
        if not holder.alive():
            raise BedError(f"node {self.name} could not be laid out; {self._processes.explain(holder.name)}")
        return (self.layout.folder / "ready").exists()

    def _connect(self) -> None:
        bed, pid, uplink = self.layout.bed, self.pid, self.layout.uplink
        ip(f"link add {uplink} type veth peer name eth0 netns {pid}")
        ip(f"link set {uplink} master {bed.bridge} up")
        in_namespace(pid, f"addr add {self.layout.address}/24 dev eth0")
        in_namespace(pid, "link set eth0 up")
        # As on a real node there is a default route; the hub does not forward, so nothing leaves the bed by it.
        in_namespace(pid, f"route add default via {bed.hub_address}")
        ip(f"route replace {self.layout.pods} via {self.layout.address}")

    def entry(self) -> list[str]:
        return ["nsenter", "-t", str(self.pid), *NAMESPACES, "--"]

    def _ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*self.entry(), str(parts.containerd_dir() / "ctr"), *arguments]
        return subprocess.run(command, capture_output=True, text=True)


def _make_device(path: Path, major: int, minor: int) -> None:
    if not path.exists():
        os.mknod(path, 0o020666, os.makedev(major, minor))
        path.chmod(0o666)
