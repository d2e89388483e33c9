"""A real container runtime: namespaces of its own, folders of its own, gone without a trace afterwards.

The daemon, its monitors and the containers live in fresh mount, network and process namespaces. The process namespace's
first process is ours, and its end takes all the others along, whatever state a test left them in. Only sockets and
files in the given folder are shared with the test.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from dranet.testing.waiting import wait_until

# A network plugin that leaves the pod's namespace as it is: the tests' pods need one, but nothing in it.
CNI_PLUGIN = """\
#!/bin/sh
[ "$CNI_COMMAND" = VERSION ] && echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}'
[ "$CNI_COMMAND" = ADD ] || exit 0
echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"'"$CNI_NETNS"'"}],'
echo '"ips":[{"address":"192.0.2.2/24","interface":0}]}'
"""
CNI_CONFIG = '{"cniVersion":"1.0.0","name":"none","plugins":[{"type":"none"}]}'

NAMESPACES = ("--mount", "--net", "--pid")
START_TIMEOUT = 60.0


class Runtime(ABC):
    """A runtime in `folder`; `image` is what sandboxes are made of."""

    name: str
    """As the runtime reports itself to NRI plugins."""
    no_cdi_device: str
    """A pattern of its error for a container whose CDI device has no spec."""
    can_kill_sandbox = True
    sends_timeout = True
    """Whether it tells a plugin how long a request may take."""
    lists_starting_sandboxes = True
    """Whether a plugin that reconnects learns of a sandbox whose start is not finished."""
    cgroup_parent = ""
    """Of the pods' cgroups; empty: pods have none."""

    def __init__(self, folder: Path, *, request_timeout: float) -> None:
        self.folder = folder
        self.nri_socket = folder / "nri.sock"
        self.cri_socket = folder / "c.sock"
        self.request_timeout = request_timeout
        self._namespaces: subprocess.Popen[bytes] | None = None
        self._daemon: subprocess.Popen[bytes] | None = None

    def up(self, image_tar: Path, image: str) -> None:
        self._write_network()
        self.configure(image)
        script = "mount -t tmpfs tmpfs /run && ip link set lo up && exec sleep infinity"
        unshare = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", "--propagation=private"]
        self._namespaces = subprocess.Popen([*unshare, "sh", "-c", script])
        self.start()
        self.load(image_tar, image)

    @abstractmethod
    def configure(self, image: str) -> None:
        """Write the configuration."""

    @abstractmethod
    def daemon_command(self) -> tuple[Sequence[str], Path]:
        """The daemon's command, and the folder of its programs."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether the daemon serves CRI."""

    @abstractmethod
    def load(self, image_tar: Path, image: str) -> None:
        """Give the runtime an image."""

    @abstractmethod
    def kill_sandbox(self, sandbox: str) -> None:
        """Where `can_kill_sandbox`: its process dies; the runtime keeps its network until it is stopped."""

    def start(self) -> None:
        """Start the daemon. Its pods, if it had any, have lived on without it."""
        command, programs = self.daemon_command()
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        with open(self.folder / "log", "ab") as log:
            self._daemon = subprocess.Popen([*self._entry(), *command], env=environment, stdout=log, stderr=log)
        wait_until(lambda: self._ended() or self.answers(), f"{self.name} to answer", seen=self.log)

    def _ended(self) -> bool:
        if self._daemon is not None and self._daemon.poll() is not None:
            raise RuntimeError(f"{self.name} ended: {self.log()[-2000:]}")
        return False

    def stop(self) -> None:
        """Stop the daemon, not its pods."""
        if self._daemon is not None:
            os.kill(child_of(self._daemon.pid), signal.SIGTERM)  # nsenter only waits for the daemon
            self._daemon.wait()

    def down(self) -> None:
        if self._namespaces is not None:
            self._namespaces.kill()  # unshare takes process 1 of the namespace along, and that one all the others
            self._namespaces.wait()
        if self._daemon is not None:
            self._daemon.wait()
        shutil.rmtree(self.folder)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def command(self, *words: str) -> list[str]:
        """A command as a process next to the runtime: same mounts, network and processes."""
        return [*self._entry(), *words]

    def network(self) -> str:
        """The path of the namespace that is the host's network here."""
        assert self._namespaces is not None
        return f"/proc/{child_of(self._namespaces.pid)}/ns/net"

    def _write_network(self) -> None:
        for folder in ("cni", "net.d"):
            (self.folder / folder).mkdir()
        (self.folder / "net.d" / "10-none.conflist").write_text(CNI_CONFIG)
        for plugin in ("none", "loopback"):
            (self.folder / "cni" / plugin).write_text(CNI_PLUGIN)
            (self.folder / "cni" / plugin).chmod(0o755)

    def _entry(self) -> list[str]:
        """The words that run a command inside: the namespaces are those of unshare's child."""
        assert self._namespaces is not None
        child = child_of(self._namespaces.pid)
        wait_until(lambda: b"infinity" in Path(f"/proc/{child}/cmdline").read_bytes(), "the mounts")
        return ["nsenter", f"--target={child}", *NAMESPACES]


def child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_until(lambda: children.read_text().strip() != "", f"process {pid} to start its child")
    return int(children.read_text().split()[0])
