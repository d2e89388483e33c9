"""etcd, API server, controller manager and scheduler: processes of this machine that listen on the hub only."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from . import config, parts
from .cache import BedError
from .layout import Layout
from .nics import ip
from .processes import Processes, wait_until

STORE = ("etcd", "kube-apiserver")
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")


class ControlPlane:
    def __init__(self, layout: Layout, processes: Processes, version: str, gates: str, etcd_quota: int = 0) -> None:
        self._layout = layout
        self._processes = processes
        self._version = version
        self._gates = gates
        self._etcd_quota = etcd_quota

    def make_hub(self) -> None:
        layout = self._layout
        _refuse_taken_network(layout)
        ip(f"link add {layout.bridge} type bridge")
        # Packets of the nodes end here, even on a machine that forwards for others.
        Path(f"/proc/sys/net/ipv4/conf/{layout.bridge}/forwarding").write_text("0")
        ip(f"addr add {layout.hub_address}/24 dev {layout.bridge}")
        ip(f"addr add {layout.api_address}/32 dev {layout.bridge}")
        ip(f"link set {layout.bridge} up")

    def remove_hub(self) -> None:
        ip(f"link del {self._layout.bridge}", accept="Cannot find device")

    def start_etcd(self) -> None:
        self._processes.start("etcd", [parts.etcd(), *config.etcd_arguments(self._layout, self._etcd_quota)])

    def start_api_server(self) -> None:
        arguments = config.api_server_arguments(self._layout, self._version, self._gates)
        self._start("kube-apiserver", arguments)

    def start_controllers(self) -> None:
        self._start("kube-controller-manager", config.controller_manager_arguments(self._layout, self._gates))
        self.start_scheduler()

    def start_scheduler(self) -> None:
        self._start("kube-scheduler", config.scheduler_arguments(self._layout, self._gates))

    def restart_controllers(self) -> None:
        self._processes.stop(*CONTROLLERS)
        self.start_controllers()

    def kill_api_server(self) -> None:
        """At once: asked politely it would serve its open watches for many seconds."""
        self._processes.stop("kube-apiserver", patience=0)

    def wait_api_server(self, seconds: float = 60) -> None:
        wait_until(self._api_ready, "the API server to be ready", seconds)

    def api_ready(self) -> bool:
        """Whether the API server says it is ready; a bed that is not there is simply not ready."""
        return self._layout.kubeconfig.exists() and self._asked_ready()

    def _start(self, name: str, arguments: list[str]) -> None:
        self._processes.start(name, [parts.kubernetes(name, self._version), *arguments])

    def _api_ready(self) -> bool:
        if not self._processes.find("kube-apiserver").alive():
            raise BedError(f"the API server ended; {self._processes.explain('kube-apiserver')}")
        return self._asked_ready()

    def _asked_ready(self) -> bool:
        token = json.loads(self._layout.kubeconfig.read_text())["users"][0]["user"]["token"]
        trust = ssl.create_default_context(cafile=str(self._layout.pki / "ca.crt"))
        request = urllib.request.Request(f"{self._layout.api_url}/readyz", headers={"Authorization": f"Bearer {token}"})
        direct = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        )
        try:
            with direct.open(request, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def _refuse_taken_network(layout: Layout) -> None:
    network = f"{layout.network}.0.0/16"
    taken = json.loads(ip(f"-j route show root {network}") or "[]")
    if taken:
        devices = ", ".join(sorted({route.get("dev", "?") for route in taken}))
        raise BedError(
            f"this machine already has routes in {network} (by {devices}): choose another bed with BED=1 to 9"
        )
