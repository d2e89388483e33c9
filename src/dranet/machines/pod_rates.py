"""What one pod of a job can move: over its NICs, and among its own GPUs. GB/s in one direction.

- NCCL first looks for channels over near NICs and uses only those, however few: two of four NICs too far from their
  GPUs halve the pod's rate, three of four leave a quarter (document 1). Only a pod without a near NIC is staged through
  host memory.
- NICs that are much slower than the rest are not used, as NCCL does not use storage NICs: the best product of "number
  of NICs at least this fast" and speed counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dranet.machines.alignment import Alignment, Pair
from dranet.machines.bandwidth_parameters import GpuLinks, Parameters
from dranet.machines.collectives import ALL_REDUCE, DIRECT, NVLS, NVLS_TREE, RING, TREE, Ranks, bus_factor
from dranet.machines.machine import MachineDevice


class JobPod(msgspec.Struct, frozen=True):
    """One pod of a job: its GPUs, its NICs, and which GPU uses which NIC."""

    gpus: tuple[MachineDevice, ...]
    alignment: Alignment = Alignment()
    unpaired_nics: tuple[MachineDevice, ...] = ()
    """NICs of a pod without GPUs; with GPUs they are in the pairs."""

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
    return JobPod(member.gpus, Alignment(pairs), unpaired)


def is_direct(pair: Pair) -> bool:
    """Whether the NIC of this pair accesses GPU memory without the CPU."""
    return pair.distance <= pair.nic.direct_over


def network_rate(member: JobPod, p: Parameters) -> float:
    """What the NICs move between this pod's GPUs and the network."""
    near = member.near_nics
    if member.gpus and not near:
        return min(_lines(member.nics, p.pcie_gbytes) * p.network_efficiency, _through_host(member, p))
    several = p.fabric(near[0].network).several_gpus if len(member.gpus) > 1 else 1.0
    slot = slot_rate(member, p)
    slots = len(member.gpus) * slot if member.gpus and not has_c2c(member, p) else float("inf")
    return min(_lines(near, slot), slots) * p.network_efficiency * several


def slot_rate(member: JobPod, p: Parameters) -> float:
    """What one PCIe slot of this machine carries."""
    links = links_of(member, p)
    return p.pcie_gbytes if links is None or links.pcie is None else links.pcie


def has_c2c(member: JobPod, p: Parameters) -> bool:
    """Whether the GPUs reach memory and NICs other than over PCIe."""
    links = links_of(member, p)
    return links is not None and links.c2c


def _lines(nics: Sequence[MachineDevice], slot: float) -> float:
    return _together(min(nic.line_gbytes, slot) for nic in nics)


def _through_host(member: JobPod, p: Parameters) -> float:
    return p.staged_c2c_gbytes if has_c2c(member, p) else p.staged_gbytes


def _together(rates: Iterable[float]) -> float:
    fastest_first = sorted(rates, reverse=True)
    return max(count * rate for count, rate in enumerate(fastest_first, 1))


def inside_rate(member: JobPod, algorithm: str, collective: str, ranks: Ranks, p: Parameters) -> float | None:
    """The limit of traffic among the pod's own GPUs; None where there is no limit or it is unknown."""
    links = links_of(member, p)
    own = len(member.gpus)
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
    if algorithm == TREE:
        return _tree_rate(links, around, own, ranks, p)
    assert algorithm == RING
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
    """All-reduce in the switch: each GPU sends its data and 1/n of the result, so links carry 1 + 1/n of the size."""
    efficiency = p.architectures[links.architecture].nvls_efficiency
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
    found = [p.links(gpu) for gpu in member.gpus]
    known = [links for links in found if links is not None]
    return min(known, key=lambda links: (links.nvlink, links.xgmi)) if known and len(known) == len(found) else None
