"""A real containerd, from Debian's packages: 2.x, and 1.7 with the settings that it needs for this driver."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.kubebed import parts

from .runtime import START_TIMEOUT, Runtime

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


CONFIG_17 = """\
version = 2
root = '{folder}/root'
state = '{folder}/state'

[grpc]
  address = '{folder}/c.sock'
[ttrpc]
  address = '{folder}/t.sock'

# NRI and CDI are off by default before containerd 2.
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = '{folder}/nri.sock'
  plugin_path = '{folder}/nri-plugins'
  plugin_config_path = '{folder}/nri-conf'
  plugin_request_timeout = '{request_timeout:g}s'

[plugins.'io.containerd.grpc.v1.cri']
  enable_cdi = true
  sandbox_image = '{image}'
  restrict_oom_score_adj = true
  disable_cgroup = true

  [plugins.'io.containerd.grpc.v1.cri'.cni]
    conf_dir = '{folder}/net.d'
    bin_dir = '{folder}/cni'

  [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
  [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]
    BinaryName = '{runc}'

[plugins.'io.containerd.internal.v1.opt']
  path = '{folder}/opt'
"""


class Containerd(Runtime):
    name = "containerd"
    no_cdi_device = "CDI device injection failed"
    config = CONFIG

    def programs(self) -> Path:
        return parts.containerd_dir()

    def configure(self, image: str) -> None:
        values = {"folder": self.folder, "request_timeout": self.request_timeout, "image": image, "runc": parts.runc()}
        (self.folder / "config.toml").write_text(self.config.format(**values))

    def daemon_command(self) -> tuple[Sequence[str], Path]:
        return ["containerd", "--config", str(self.folder / "config.toml")], self.programs()

    def answers(self) -> bool:
        return self._run_ctr("version").returncode == 0

    def load(self, image_tar: Path, image: str) -> None:
        self._ctr("--namespace=k8s.io", "images", "import", str(image_tar))

    def kill_sandbox(self, sandbox: str) -> None:
        self._ctr("--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", sandbox)

    def _ctr(self, *words: str) -> None:
        done = self._run_ctr(*words)
        if done.returncode != 0:
            raise RuntimeError(f"ctr {' '.join(words)} failed: {done.stderr.decode().strip()}")

    def _run_ctr(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        command: list[str | Path] = [self.programs() / "ctr", "--address", self.cri_socket, *words]
        return subprocess.run(command, capture_output=True, timeout=START_TIMEOUT)


class Containerd17(Containerd):
    config = CONFIG_17
    sends_timeout = False
    lists_starting_sandboxes = False

    def programs(self) -> Path:
        return parts.containerd_17_dir()
