"""What one pod of a job can move: over its NICs, and among its own GPUs. GB/s in one direction.

- NCCL first looks for channels over near NICs and uses only those, however few: two of four NICs too far from their
  GPUs halve the pod's rate, three of four leave a quarter (document 1). Only a pod without a near NIC is staged through
  host memory.
- NICs that are much slower than the rest are not used, as NCCL does not use storage NICs.
- All ports and planes of a NIC share its PCIe slot.
- Pods of one NVLink domain are one node to NCCL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from dranet.machines.alignment import Alignment, Pair
from dranet.machines.bandwidth_parameters import GpuLinks, Parameters
from dranet.machines.collectives import (
    ALL_REDUCE,
    COLLNET,
    DIRECT,
    NVLS,
    NVLS_TREE,
    PAT,
    RING,
    TREE,
    Ranks,
    bus_factor,
)
from dranet.machines.machine import MachineDevice


class JobPod(msgspec.Struct, frozen=True):
    """One pod of a job: its GPUs, its NICs, and which GPU uses which NIC."""

    gpus: tuple[MachineDevice, ...]
    alignment: Alignment = Alignment()
    unpaired_nics: tuple[MachineDevice, ...] = ()
    """NICs of a pod without GPUs; with GPUs they are in the pairs."""
    domain: str = ""
    """Its NVLink domain, if it uses NVLink to other pods of it; empty otherwise."""

    @property
    def nics(self) -> tuple[MachineDevice, ...]:
        """Every NIC once."""
        return tuple(dict.fromkeys(pair.nic for pair in self.alignment.pairs)) or self.unpaired_nics

    @property
    def near_nics(self) -> tuple[MachineDevice, ...]:
        """NICs with direct access to GPU memory; all NICs of a pod without GPUs."""
        near = dict.fromkeys(pair.nic for pair in self.alignment.pairs if is_direct(pair))
        return tuple(near) if self.gpus else self.unpaired_nics


def on_network(member: JobPod, network: str) -> JobPod:
    """The pod with only its NICs of this fabric or of an unknown one."""
    pairs = tuple(pair for pair in member.alignment.pairs if pair.nic.network in {network, ""})
    unpaired = tuple(nic for nic in member.unpaired_nics if nic.network in {network, ""})
    return replace(member, alignment=Alignment(pairs), unpaired_nics=unpaired)


def is_direct(pair: Pair) -> bool:
    """Whether the NIC of this pair accesses GPU memory without the CPU."""
    return pair.distance <= pair.nic.direct_over


class Domain(msgspec.Struct, frozen=True):
    """Pods whose GPUs reach each other over NVLink: one pod, or those of one NVLink domain. Equal pods are counted."""

    pods: tuple[tuple[JobPod, int], ...]

    @property
    def nodes(self) -> int:
        """How many pods it has."""
        return sum(count for _, count in self.pods)

    @property
    def gpus(self) -> int:
        """How many GPUs all its pods have."""
        return sum(len(pod.gpus) * count for pod, count in self.pods)


def domains_of(members: Sequence[JobPod]) -> list[tuple[Domain, int]]:
    """The NVLink domains of a job, equal ones counted; a pod outside of them is one by itself.

    Pods of one template are one object, so a job of thousands takes no more time than a job of two."""
    found: dict[str | int, Counter[int]] = {}
    for number, member in enumerate(members):
        found.setdefault(member.domain or number, Counter())[id(member)] += 1
    by_id = {id(member): member for member in members}
    counted = Counter(frozenset(pods.items()) for pods in found.values())
    return [(Domain(tuple((by_id[key], n) for key, n in sorted(pods))), times) for pods, times in counted.items()]


def domain_rate(domain: Domain, p: Parameters) -> float:
    """What the NICs of an NVLink domain move; several nodes are limited by NCCL's channels."""
    total = sum(network_rate(pod, p) * count for pod, count in domain.pods)
    return total if domain.nodes == 1 else min(total, p.domain_gbytes * p.network_efficiency)


def network_rate(member: JobPod, p: Parameters) -> float:
    """What the NICs move between this pod's GPUs and the network."""
    near = member.near_nics
    if member.gpus and not near:
        return min(_lines(member.nics, slot_rate(member, p)) * p.network_efficiency, _through_host(member, p))
    several = p.fabric(near[0].network).several_gpus if len(member.gpus) > 1 else 1.0
    slot = slot_rate(member, p)
    slots = len(member.gpus) * slot if member.gpus and not has_c2c(member, p) else float("inf")
    return min(_lines(near, slot), slots) * p.network_efficiency * several


def slot_rate(member: JobPod, p: Parameters) -> float:
    """What one PCIe slot of this machine carries: each generation twice the one before."""
    links = links_of(member, p) or _DEFAULT_LINKS
    return p.pcie_gbytes * 2.0 ** (links.pcie - 5) * links.lanes / 16


def has_c2c(member: JobPod, p: Parameters) -> bool:
    """Whether the GPUs reach memory and NICs other than over PCIe."""
    links = links_of(member, p)
    return links is not None and links.c2c


_DEFAULT_LINKS = GpuLinks()


def _lines(nics: Sequence[MachineDevice], slot: float) -> float:
    """The line rates of ports, those in one slot together at most the slot's."""
    slots: dict[str, list[MachineDevice]] = {}
    for number, nic in enumerate(nics):
        slots.setdefault(nic.address.rpartition(".")[0] or str(number), []).append(nic)
    return _together([(nic.line_gbytes, slot / len(ports)) for ports in slots.values() for nic in ports])


def slot_is_limit(member: JobPod, p: Parameters) -> bool:
    """Whether a slot carries less than the ports in it."""
    return _lines(member.near_nics, slot_rate(member, p)) < _lines(member.near_nics, float("inf"))


def _through_host(member: JobPod, p: Parameters) -> float:
    """The rate of copies through host memory: as measured on this machine, or by sockets."""
    if measured := sum(nic.staged_gbytes for nic in member.nics):
        return measured
    if has_c2c(member, p):
        return _lines(member.nics, slot_rate(member, p)) * p.network_efficiency * p.staged_c2c_share
    # Some machines have several NUMA nodes in a socket, none has more than two sockets.
    return p.staged_gbytes * min(len({nic.position.numa for nic in member.nics}), 2)


def _together(ports: Iterable[tuple[float, float]]) -> float:
    """Ports with their share of a slot. NICs far slower than the rest are not used: the best product of "number of
    ports at least this fast" and speed counts."""
    fastest_first = sorted((min(port) for port in ports), reverse=True)
    return max(count * rate for count, rate in enumerate(fastest_first, 1))


def inside_rate(domain: Domain, algorithm: str, collective: str, ranks: Ranks, p: Parameters) -> float | None:
    """The limit of traffic among the domain's own GPUs; None where there is no limit or it is unknown."""
    links, own = domain_links(domain, p), domain.gpus
    if own < 2 or links is None:
        return None
    around = ring_rate(links, own, p)
    alone = ranks.pods == 1
    if algorithm == DIRECT:
        return around if alone or collective == "send_recv" else around * (ranks.total - 1) / (own - 1)
    if algorithm == NVLS:
        return nvls_rate(links, own, p)
    if algorithm == NVLS_TREE:
        factor = bus_factor(ALL_REDUCE, ranks.total) / bus_factor(ALL_REDUCE, own)
        return nvls_rate(links, own, p) * factor * p.tree_share
    if algorithm in {TREE, COLLNET}:
        return _tree_rate(links, around, own, ranks, p)
    assert algorithm in {RING, PAT}
    # Of a ring through several pods each GPU has one hop in `own` on the network instead of NVLink.
    return around if alone or not (links.nvlink or links.xgmi) else around * own / (own - 1)


def ring_rate(links: GpuLinks, gpus: int, p: Parameters) -> float:
    """A ring through this many GPUs of one machine."""
    if links.xgmi:
        return p.xgmi_share * links.xgmi * (gpus - 1)
    if not links.nvlink:
        return p.pcie_exchange_gbytes
    known = p.architectures.get(links.architecture)
    pair = known.pair_share if known and gpus == 2 else None
    return links.nvlink * (pair if pair is not None else p.ring_share)


def nvls_rate(links: GpuLinks, gpus: int, p: Parameters) -> float:
    """All-reduce in the switch: each GPU sends its data and 1/n of the result, so links carry 1 + 1/n of the size.
    From some number of GPUs on it is the GPUs that limit it, not the links."""
    efficiency, gpus = p.architectures[links.architecture].nvls_efficiency, min(gpus, p.nvls_gpus)
    return p.nvls_share * efficiency * links.nvlink * 2 * (gpus - 1) / (gpus + 1)


def has_nvls(links: GpuLinks | None, gpus: int, p: Parameters) -> bool:
    """NVLS needs switches, a GPU that supports it, and more than two GPUs."""
    if links is None or not links.nvswitch or gpus < 3:
        return False
    known = p.architectures.get(links.architecture)
    return bool(known and known.nvls_efficiency)


def _tree_rate(links: GpuLinks, around: float, own: int, ranks: Ranks, p: Parameters) -> float:
    """A chain through the pod's GPUs: every byte goes up and down once, and each GPU reduces."""
    by_link = bus_factor(ALL_REDUCE, ranks.total) * around * p.tree_share
    known = p.architectures.get(links.architecture)
    if known is None:
        return by_link
    channel = known.tree_channel[min(ranks.pods, 3) - 1]
    return min(by_link, own * channel * bus_factor(ALL_REDUCE, ranks.total) / 2)


def links_of(member: JobPod, p: Parameters) -> GpuLinks | None:
    """The links that all GPUs of the pod have: those of the slowest."""
    return _common([p.links(gpu) for gpu in {(gpu.product, gpu.nvlink_gbytes): gpu for gpu in member.gpus}.values()])


def domain_links(domain: Domain, p: Parameters) -> GpuLinks | None:
    """The links that all GPUs of the domain have."""
    return _common([links_of(pod, p) for pod, _ in domain.pods])


def _common(found: Sequence[GpuLinks | None]) -> GpuLinks | None:
    known = [links for links in found if links is not None]
    return min(known, key=lambda links: (links.nvlink, links.xgmi)) if known and len(known) == len(found) else None
