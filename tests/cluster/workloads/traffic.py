"""Which way a job's bytes went, as the kernel counted them.

NICs are counted at the other end of their cables, in the fabric, where no pod and no driver can touch the counters.
A pod's own link to the pod network starts at zero with the pod and is read in the pod.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from tests.cluster.kubebed import Cluster, Kubectl
from tests.cluster.kubebed.nics import in_namespace

Port = tuple[str, str]
"""A node and the name its NIC has there."""


@dataclass(frozen=True)
class Traffic:
    """Bytes in both directions."""

    by_nic: dict[Port, int]
    elsewhere: int
    """Through the pods' links to the pod network."""

    @property
    def over_nics(self) -> int:
        return sum(self.by_nic.values())

    @property
    def share(self) -> float:
        return self.over_nics / ((self.over_nics + self.elsewhere) or 1)


class Meter:
    """Counts from its making on."""

    def __init__(self, bed: Cluster) -> None:
        self._bed = bed
        self._before = self._ports()

    def read(self, kubectl: Kubectl, pods: Iterable[str], nics: Iterable[Port]) -> Traffic:
        now = self._ports()
        numbers = {node.name: node.layout.index for node in self._bed.nodes}
        by_nic = {}
        for node, nic in nics:
            port = f"n{numbers[node]}-{nic}"
            by_nic[(node, nic)] = now[port] - self._before[port]
        return Traffic(by_nic, elsewhere(kubectl, pods))

    def _ports(self) -> dict[str, int]:
        listed = json.loads(in_namespace(self._bed.processes.find("fabric").pid, "-s -j link show"))
        return {link["ifname"]: _bytes(link) for link in listed}


def elsewhere(kubectl: Kubectl, pods: Iterable[str]) -> int:
    """Bytes through the pods' links to the pod network, since the pods began."""
    return sum(_pod_network(kubectl, pod) for pod in pods)


def _pod_network(kubectl: Kubectl, pod: str) -> int:
    (link,) = json.loads(kubectl.exec(pod, "ip", "-s", "-j", "link", "show", "eth0"))
    return _bytes(link)


def _bytes(link: dict[str, dict[str, dict[str, int]]]) -> int:
    counted = link["stats64"]
    return counted["rx"]["bytes"] + counted["tx"]["bytes"]


def claimed_nics(kubectl: Kubectl) -> dict[str, list[Port]]:
    """By pod, the NICs its claims hold, in the namespace of the test. Device names are those of the links on a bed."""
    found: dict[str, list[Port]] = {}
    for claim in kubectl.items("resourceclaims"):
        results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results") or []
        for user in claim.get("status", {}).get("reservedFor") or []:
            found.setdefault(user["name"], []).extend(
                (result["pool"], result["device"]) for result in results if result["driver"] == "dra.net"
            )
    return found
