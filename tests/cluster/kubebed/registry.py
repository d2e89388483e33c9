"""An image registry next to the control plane: Debian's, over TLS with the bed's own certificate, empty with every bed.

Its certificate is the API server's, which names the hub's address. Nodes get the bed's authority as an
administrator would tell them of a private registry's, by a file in the folder that containerd looks into at every pull.
"""

from __future__ import annotations

import json
import socket

from . import parts
from .cluster import Cluster
from .node import Node
from .processes import wait_until

PORT = 5000


def start_registry(bed: Cluster) -> str:
    """The registry's host and port, as nodes and the machine know it."""
    address = f"{bed.layout.hub_address}:{PORT}"
    if not bed.processes.running("registry"):
        settings = bed.layout.folder / "registry.yml"
        settings.write_text(json.dumps(_settings(bed, address)))
        bed.processes.start("registry", [parts.registry(), "serve", settings])
        wait_until(lambda: _listens(bed.layout.hub_address), "the registry to listen", 60)
    for node in bed.nodes:
        _trust(node, address)
    return address


def _settings(bed: Cluster, address: str) -> dict[str, object]:
    pki = bed.layout.pki
    return {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(bed.layout.folder / "registry")}},
        "http": {"addr": address, "tls": {"certificate": f"{pki}/api.crt", "key": f"{pki}/api.key"}},
    }


def _trust(node: Node, address: str) -> None:
    folder = node.registries / address
    folder.mkdir(parents=True, exist_ok=True)
    authority = node.layout.bed.pki / "ca.crt"
    (folder / "hosts.toml").write_text(f"[host.'https://{address}']\n  ca = '{authority}'\n")


def _listens(address: str) -> bool:
    try:
        socket.create_connection((address, PORT), 1).close()
    except OSError:
        return False
    return True
