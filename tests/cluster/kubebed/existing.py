"""A cluster that is not a bed, seen through its kubeconfig: the part of a bed that needs no node access."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import parts
from .cache import say
from .helm import Helm
from .kubectl import Kubectl


class ExistingCluster:
    def __init__(self, kubeconfig: Path) -> None:
        self.kubectl = Kubectl(parts.kubectl(), kubeconfig)
        self._kubeconfig = kubeconfig

    @property
    def helm(self) -> Helm:
        return Helm(parts.add_on(parts.HELM), self._kubeconfig)

    def node_names(self) -> list[str]:
        return sorted(node["metadata"]["name"] for node in self.kubectl.items("nodes"))

    def load_image(self, tar: Path) -> None:
        """Its nodes are out of reach: images have to be there or be pulled."""
        say(f"not loading {tar}: the cluster is not a bed of ours")

    def install_driver(
        self, release: str, chart: Path, image: Path | None = None, values: Mapping[str, Any] | None = None
    ) -> None:
        self.helm.install(release, chart, values, "kube-system", 180)

    def uninstall_driver(self, release: str) -> None:
        self.helm.uninstall(release, "kube-system")
