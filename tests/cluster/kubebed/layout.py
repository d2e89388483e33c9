"""Where one bed lives: its folder, addresses and the names of what it makes on the machine.

Everything follows from the bed's number, so `down` knows what to remove even when all records are lost, and several
beds can run side by side: each has a /16 of its own, of which the machine sees only the hub's bridge.

    10.96+N.0.0/24     the hub (.1, this machine) and the nodes (.11, .12 ...)
    10.96+N.I.0/24     pods of node I
    10.96+N.128.0/17   services; .128.1 is the API server itself, so clients in pods need no kube-proxy to reach it
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .cache import BedError, cache_root

MOST_BEDS = 10


@dataclass(frozen=True)
class Layout:
    number: int = 0

    @staticmethod
    def from_environment() -> Layout:
        text = os.environ.get("BED", "0")
        if not text.isdigit() or int(text) >= MOST_BEDS:
            raise BedError(f"BED={text!r}: give the bed's number, 0 to {MOST_BEDS - 1}")
        return Layout(int(text))

    @property
    def name(self) -> str:
        return f"bed{self.number}"

    @property
    def folder(self) -> Path:
        return cache_root() / "beds" / self.name

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def kubeconfig(self) -> Path:
        return self.pki / "admin.conf"

    @property
    def discovery(self) -> Path:
        """Where clients keep what they found out about this API server; gone with the bed."""
        return self.folder / "discovery"

    @property
    def bridge(self) -> str:
        return f"{self.name}hub"

    @property
    def network(self) -> str:
        return f"10.{96 + self.number}"

    @property
    def hub_address(self) -> str:
        return f"{self.network}.0.1"

    @property
    def services(self) -> str:
        return f"{self.network}.128.0/17"

    @property
    def api_address(self) -> str:
        return f"{self.network}.128.1"

    @property
    def api_url(self) -> str:
        return f"https://{self.api_address}:443"

    @property
    def etcd_url(self) -> str:
        return f"http://{self.hub_address}:2379"

    @property
    def etcd_peer_url(self) -> str:
        return f"http://{self.hub_address}:2380"


@dataclass(frozen=True)
class NodeLayout:
    """One node of a bed; `index` counts from 1."""

    bed: Layout
    index: int

    @property
    def name(self) -> str:
        return f"n{self.index}"

    @property
    def folder(self) -> Path:
        return self.bed.folder / self.name

    @property
    def address(self) -> str:
        return f"{self.bed.network}.0.{10 + self.index}"

    @property
    def pods(self) -> str:
        return f"{self.bed.network}.{self.index}.0/24"

    @property
    def uplink(self) -> str:
        """The hub's end of the cable to this node; the node's end is `eth0`."""
        return f"{self.bed.name}{self.name}"

    @property
    def cgroup(self) -> str:
        return f"{self.bed.name}-{self.name}"
