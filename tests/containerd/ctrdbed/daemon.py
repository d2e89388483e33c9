"""A real containerd: namespaces of its own, folders of its own, gone without a trace afterwards.

containerd, its shims and the containers live in fresh mount, network and process namespaces. The process namespace's
first process is ours, and its end takes all the others along, whatever state a test left them in. Only sockets and
files in the given folder are shared with the test.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from dranet.testing.waiting import wait_until

CONFIG = """\
version = 3
root = '{folder}/root'
state = '{folder}/state'

[grpc]
  address = '{folder}/c.sock'
[ttrpc]
  address = '{folder}/t.sock'

[plugins.'io.containerd.nri.v1.nri']
  socket_path = '{folder}/nri.sock'
  plugin_path = '{folder}/nri-plugins'
  plugin_config_path = '{folder}/nri-conf'
  plugin_request_timeout = '{request_timeout:g}s'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{image}'

[plugins.'io.containerd.cri.v1.runtime']
  # Without CAP_SYS_RESOURCE a lower score cannot be set.
  restrict_oom_score_adj = true
  # Pods here are one sleeping process each: no groups of ours in the machine's hierarchies.
  disable_cgroup = true

  [plugins.'io.containerd.cri.v1.runtime'.cni]
    conf_dir = '{folder}/net.d'
    bin_dirs = ['{folder}/cni']

  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    BinaryName = '{runc}'

[plugins.'io.containerd.internal.v1.opt']
  path = '{folder}/opt'
"""

# A network plugin that leaves the pod's namespace as it is: the tests' pods need one, but nothing in it.
CNI_PLUGIN = """\
#!/bin/sh
[ "$CNI_COMMAND" = ADD ] || exit 0
echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"'"$CNI_NETNS"'"}],'
echo '"ips":[{"address":"192.0.2.2/24","interface":0}]}'
"""
CNI_CONFIG = '{"cniVersion":"1.0.0","name":"none","plugins":[{"type":"none"}]}'

NAMESPACES = ("--mount", "--net", "--pid")
START_TIMEOUT = 60.0


class Containerd:
    """containerd in `folder`, from the programs in `programs`; `image` is what sandboxes are made of."""

    def __init__(self, folder: Path, *, programs: Path, runc: Path, request_timeout: float) -> None:
        self.folder = folder
        self.nri_socket = folder / "nri.sock"
        self.cri_socket = folder / "c.sock"
        self._programs = programs
        self._runc = runc
        self._request_timeout = request_timeout
        self._namespaces: subprocess.Popen[bytes] | None = None
        self._daemon: subprocess.Popen[bytes] | None = None

    def up(self, image_tar: Path, image: str) -> None:
        (self.folder / "config.toml").write_text(
            CONFIG.format(folder=self.folder, request_timeout=self._request_timeout, image=image, runc=self._runc)
        )
        for folder in ("cni", "net.d"):
            (self.folder / folder).mkdir()
        (self.folder / "net.d" / "10-none.conflist").write_text(CNI_CONFIG)
        for plugin in ("none", "loopback"):
            (self.folder / "cni" / plugin).write_text(CNI_PLUGIN)
            (self.folder / "cni" / plugin).chmod(0o755)
        script = "mount -t tmpfs tmpfs /run && ip link set lo up && exec sleep infinity"
        self._namespaces = subprocess.Popen(
            [
                "unshare",
                *NAMESPACES,
                "--fork",
                "--kill-child",
                "--mount-proc",
                "--propagation=private",
                "sh",
                "-c",
                script,
            ]
        )
        self.start()
        self._ctr("--namespace=k8s.io", "images", "import", str(image_tar))

    def start(self) -> None:
        """Start the daemon. Its pods, if it had any, have lived on without it."""
        environment = {**os.environ, "PATH": f"{self._programs}:{os.environ['PATH']}"}
        command = ["containerd", "--config", str(self.folder / "config.toml")]
        with open(self.folder / "log", "ab") as log:
            self._daemon = subprocess.Popen([*self._entry(), *command], env=environment, stdout=log, stderr=log)
        wait_until(lambda: self._try_ctr("version"), "containerd to answer")

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

    def kill_sandbox(self, sandbox: str) -> None:
        """Its process dies; the runtime keeps its network until it is stopped."""
        self._ctr("--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", sandbox)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def command(self, *words: str) -> list[str]:
        """A command as a process next to containerd: same mounts, network and processes."""
        return [*self._entry(), *words]

    def network(self) -> str:
        """The path of the namespace that is the host's network here."""
        assert self._namespaces is not None
        return f"/proc/{child_of(self._namespaces.pid)}/ns/net"

    def _entry(self) -> list[str]:
        """The words that run a command inside: the namespaces are those of unshare's child."""
        assert self._namespaces is not None
        child = child_of(self._namespaces.pid)
        wait_until(lambda: b"infinity" in Path(f"/proc/{child}/cmdline").read_bytes(), "the mounts")
        return ["nsenter", f"--target={child}", *NAMESPACES]

    def _try_ctr(self, *words: str) -> bool:
        return self._run_ctr(*words).returncode == 0

    def _ctr(self, *words: str) -> None:
        done = self._run_ctr(*words)
        if done.returncode != 0:
            raise RuntimeError(f"ctr {' '.join(words)} failed: {done.stderr.decode().strip()}")

    def _run_ctr(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [self._programs / "ctr", "--address", self.cri_socket, *words], capture_output=True, timeout=START_TIMEOUT
        )


def child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_until(lambda: children.read_text().strip() != "", f"process {pid} to start its child")
    return int(children.read_text().split()[0])
