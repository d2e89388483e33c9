"""Read the state of the cluster: interfaces of pods and hosts, rails between pods, alignment of devices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dranet.advise.plan.quality import device_quality
from dranet.linux import addresses, links, routes
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.machines.alignment import Alignment
from dranet.machines.bandwidth import Estimate
from dranet.testing.cluster import ClusterNode
from dranet.testing.fabric import rail_subnet
from dranet.testing.running import RunningPod
from dranet.testing.traffic import End, Lane


@dataclass(frozen=True, slots=True)
class Interface:
    """The state of an interface that must be restored after a detach."""

    name: str
    mac: str
    mtu: int
    up: bool
    addresses: tuple[str, ...]
    routes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """How well the GPUs and NICs of a pod are aligned."""

    alignment: Alignment
    busbw: float | None
    """Expected bus bandwidth in GB/s."""
    best: float | None
    """The same if every pair were as near as possible."""

    @property
    def worst(self) -> str | None:
        """The worst distance; None for a pod without pairs."""
        return str(self.alignment.worst) if self.alignment.pairs else None


def interfaces(namespace: Namespace) -> dict[str, Interface]:
    """All interfaces of a namespace except loopback, by name."""
    with NetlinkSocket(namespace_fd=namespace.fd) as route:
        found = [link for link in links.list_links(route) if not link.is_loopback]
        own, ways = addresses.list_addresses(route), routes.list_routes(route, table=routes.TABLE_MAIN)
    return {
        link.name: Interface(
            link.name,
            link.mac,
            link.mtu,
            link.is_up,
            tuple(sorted(a.cidr for a in own if a.index == link.index and a.scope == addresses.SCOPE_UNIVERSE)),
            tuple(
                sorted(w.destination for w in ways if w.leaves_by(link.index) and not w.destination.startswith("fe80"))
            ),
        )
        for link in found
    }


def pod_interfaces(pod: RunningPod) -> dict[str, Interface]:
    """What ``ip addr`` would show in the pod."""
    return interfaces(pod.sandbox.netns) if pod.sandbox.netns is not None else {}


def host_interfaces(nodes: Mapping[str, ClusterNode]) -> dict[str, dict[str, Interface]]:
    """The interfaces in each machine's host network namespace."""
    return {name: interfaces(node.node.namespace) for name, node in nodes.items()}


def fit(pod: RunningPod) -> Fit:
    """Alignment and expected bandwidth of the pod's GPUs and NICs."""
    held = [(item.driver, item.device) for item in pod.devices]
    gpus = [part for part in pod.node.machine.gpus if part.id in held]
    nics = [part for part in pod.node.machine.nics if part.id in held]
    found = device_quality(gpus, nics)
    return Fit(found.alignment, found.busbw, found.best.gbytes if isinstance(found.best, Estimate) else None)


def lanes(pods: Sequence[RunningPod]) -> Iterator[tuple[RunningPod, RunningPod, list[Lane]]]:
    """Pairs of pods on different machines with NICs on the same rails, each pod once."""
    left = list(pods)
    for near, far in itertools.combinations(pods, 2):
        if near in left and far in left and near.node is not far.node and (shared := _shared(near, far)):
            left.remove(near)
            left.remove(far)
            yield near, far, shared


def _shared(near: RunningPod, far: RunningPod) -> list[Lane]:
    mine, theirs = _ends(near), _ends(far)
    return [Lane(mine[rail], theirs[rail]) for rail in sorted(mine) if rail in theirs]


def _ends(pod: RunningPod) -> dict[str, End]:
    """The pod's addresses by rail."""
    found: dict[str, End] = {}
    for interface in pod_interfaces(pod).values():
        for cidr in interface.addresses:
            rail = rail_subnet(cidr)
            if rail is not None and pod.sandbox.netns is not None:
                found[rail] = End(pod.sandbox.netns, cidr.partition("/")[0])
    return found
