"""A real CRI-O, built from its published module, with Debian's conmon and runc.

CRI-O reads images from registries only, so a registry in its network namespace has the image while it is pulled.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from dranet.testing.waiting import wait_until
from tests.cluster.kubebed import cgroups, parts

from .cri import pull
from .runtime import START_TIMEOUT, Runtime, child_of

CONFIG = """\
[crio]
root = "{folder}/root"
runroot = "{folder}/state"
storage_driver = "vfs"
log_dir = "{folder}/logs"
version_file = "{folder}/version"
clean_shutdown_file = "{folder}/clean"

[crio.api]
listen = "{folder}/c.sock"

[crio.runtime]
conmon = "{conmon}"
conmon_cgroup = "pod"
cgroup_manager = "cgroupfs"
pinns_path = "{pinns}"
namespaces_dir = "/run"
container_exits_dir = "{folder}/exits"
container_attach_socket_dir = "{folder}/attach"
apparmor_profile = "unconfined"
enable_criu_support = false
disable_hostport_mapping = true
default_runtime = "runc"

[crio.runtime.runtimes.runc]
runtime_path = "{runc}"
runtime_root = "{folder}/runc"
monitor_path = "{conmon}"
monitor_cgroup = "pod"

[crio.image]
pause_image = "{image}"
signature_policy = "{folder}/policy.json"

[crio.network]
network_dir = "{folder}/net.d"
plugin_dirs = ["{folder}/cni"]

[crio.nri]
enable_nri = true
nri_listen = "{folder}/nri.sock"
nri_plugin_dir = "{folder}/nri-plugins"
nri_plugin_config_dir = "{folder}/nri-conf"
nri_plugin_request_timeout = "{request_timeout:g}s"
"""
REGISTRIES = """\
[[registry]]
prefix = "localhost"
location = "{address}"
insecure = true
"""
PUSH = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from registry import Registry
Registry(sys.argv[2]).push(Path(sys.argv[3]), sys.argv[4])
"""
ADDRESS = "127.0.0.1:5000"
PROJECT = Path(__file__).parents[3]


class Crio(Runtime):
    name = "cri-o"
    no_cdi_device = "CDI device"
    can_kill_sandbox = False
    """It pins the namespaces of a sandbox, and starts a process for it only if containers share one."""

    def configure(self, image: str) -> None:
        self.cgroup_parent = f"/{self.folder.name}"
        cgroups.make(self.folder.name)
        values = {"folder": self.folder, "image": image, "request_timeout": self.request_timeout}
        programs = {"conmon": parts.conmon(), "pinns": parts.pinns(), "runc": parts.runc()}
        (self.folder / "crio.conf").write_text(CONFIG.format(**values, **programs))
        (self.folder / "policy.json").write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
        (self.folder / "registries.conf").write_text(REGISTRIES.format(address=ADDRESS))

    def daemon_command(self) -> tuple[Sequence[str], Path]:
        files = ["--config", f"{self.folder}/crio.conf", "--registries-conf", f"{self.folder}/registries.conf"]
        return ["crio", *files, "--config-dir="], parts.crio_dir()

    def answers(self) -> bool:
        command: list[str | Path] = [parts.crio_dir() / "crio", "status", "--socket", self.cri_socket, "info"]
        return subprocess.run(command, capture_output=True, timeout=START_TIMEOUT).returncode == 0

    def load(self, image_tar: Path, image: str) -> None:
        name, _, tag = image.removeprefix("localhost/").partition(":")
        layout = self.folder / "layout"
        with tarfile.open(image_tar) as archive:
            archive.extractall(layout, filter="data")
        push = [sys.executable, "-c", PUSH, str(PROJECT / "deploy/release"), f"{ADDRESS}/{name}", str(layout), tag]
        with self._registry():
            subprocess.run(self.command(*push), check=True, timeout=START_TIMEOUT)
            pull(self.cri_socket, image)

    def kill_sandbox(self, sandbox: str) -> None:
        raise NotImplementedError("a sandbox of CRI-O has no process; the tests that kill one ask `can_kill_sandbox`")

    def down(self) -> None:
        super().down()
        cgroups.remove(self.folder.name)

    @contextlib.contextmanager
    def _registry(self) -> Iterator[None]:
        """Inside the namespaces, while the image is pulled."""
        storage = {"filesystem": {"rootdirectory": str(self.folder / "registry")}}
        settings = {"version": "0.1", "storage": storage, "http": {"addr": ADDRESS}}
        (self.folder / "registry.yml").write_text(json.dumps(settings))
        command = self.command(str(parts.registry()), "serve", str(self.folder / "registry.yml"))
        with open(self.folder / "registry.log", "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        port = ADDRESS.rpartition(":")[2]
        probe = self.command("sh", "-c", f"ss -ltn | grep -q :{port}")
        try:
            wait_until(lambda: subprocess.run(probe).returncode == 0, "the registry to listen")
            yield
        finally:
            os.kill(child_of(process.pid), signal.SIGTERM)  # nsenter only waits for it
            process.wait()
