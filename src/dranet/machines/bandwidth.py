"""The bus bandwidth that a job should reach, before it runs: by collective, algorithm, pods and message size.

For every algorithm that NCCL could choose, each pod has two limits: what its NICs move over the network, and what its
GPUs move among themselves. The lowest limit of all pods is the algorithm's rate, because a collective is as fast as its
slowest link. The fastest algorithm counts, unless one is named. The answer is a range with the assumed algorithm, or
the reason why there is none: a figure for pods that cannot reach each other would be wrong.

Parameters and their sources are in `bandwidth.toml`, the model and its errors in docs/bandwidth.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from dranet.machines.alignment import Alignment, Pair
from dranet.machines.bandwidth_parameters import Parameters, parameters
from dranet.machines.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    COLLECTIVES,
    DIRECT,
    NVLS,
    NVLS_TREE,
    RING,
    TREE,
    Ranks,
    bus_factor,
    canonical_name,
    network_share,
    steps,
)
from dranet.machines.distance import Distance
from dranet.machines.pod_rates import (
    JobPod,
    has_c2c,
    has_nvls,
    inside_rate,
    is_direct,
    links_of,
    network_rate,
    on_network,
    slot_rate,
)

__all__ = [
    "SWEEP_SIZES",
    "Estimate",
    "JobPod",
    "NoEstimate",
    "estimate",
    "is_direct",
    "perfectly_aligned",
    "ring_estimate",
    "sweep_average",
]

SWEEP_SIZES = tuple(1 << power for power in range(10, 34))
"""1 KiB to 8 GiB, doubling: the message sizes of the published runs."""


class Estimate(msgspec.Struct, frozen=True):
    """Bus bandwidth in GB/s, and what it is computed from."""

    gbytes: float
    """For large messages."""
    collective: str
    algorithm: str
    ranks: Ranks
    bound: str
    """What limits it: network, inside or staged."""
    network: float | None
    """The limit of the NICs of the slowest pod; None within one pod."""
    inside: float | None
    """The limit of the GPUs within one pod; None for one GPU in each pod, or where the links are unknown."""
    spread: float
    latency: float
    """Seconds that a message of any size takes at least."""
    notes: tuple[str, ...] = ()

    @property
    def low(self) -> float:
        """No published result was lower."""
        return self.gbytes * (1 - self.spread)

    @property
    def high(self) -> float:
        """No published result was higher."""
        return self.gbytes * (1 + self.spread)

    def at(self, size: int) -> float:
        """Bus bandwidth for messages of this many bytes."""
        volume = bus_factor(self.collective, self.ranks.total) * size
        return volume / (self.latency + volume / (self.gbytes * 1e9)) / 1e9

    def latency_share(self, size: int) -> float:
        """The share of a message's time that is latency, not data transfer."""
        return 1 - self.at(size) / self.gbytes


class NoEstimate(msgspec.Struct, frozen=True):
    """Why there is no figure."""

    reason: str


def estimate(
    members: Sequence[JobPod],
    collective: str = ALL_REDUCE,
    *,
    algorithm: str = "",
    size: int | None = None,
    p: Parameters | None = None,
) -> Estimate | NoEstimate:
    """The estimate for a job. ``size`` decides which algorithm is fastest; without it messages are large."""
    p, collective = p or parameters(), canonical_name(collective)
    members = _on_one_network(members)
    if reason := _no_figure(members, collective, p):
        return NoEstimate(reason)
    ranks = Ranks(sum(max(len(member.gpus), 1) for member in members), len(members))
    names = (algorithm,) if algorithm else _algorithms(members, collective, p)
    found = [_estimate(members, collective, name, ranks, p) for name in names]
    return max(found, key=lambda one: one.gbytes if size is None else one.at(size))


def ring_estimate(member: JobPod, p: Parameters | None = None) -> Estimate | NoEstimate:
    """The rate of a job of equal pods: a ring, which is as fast for two pods as for a thousand."""
    return estimate([member, member], ALL_GATHER, algorithm=RING, p=p)


def perfectly_aligned(member: JobPod) -> JobPod:
    """The same GPUs and NICs, as if every pair were near enough for direct access."""
    pairs = [Pair(one.gpu, one.nic, min(one.distance, one.nic.direct_over)) for one in member.alignment.pairs]
    return replace(member, alignment=Alignment(tuple(pairs)))


def sweep_average(found: Estimate, sizes: Sequence[int] = SWEEP_SIZES) -> float:
    """The mean bus bandwidth over a sweep of message sizes, as nccl-tests averages it."""
    return sum(found.at(size) for size in sizes) / len(sizes)


def _on_one_network(members: Sequence[JobPod]) -> Sequence[JobPod]:
    """Pods with NICs of several fabrics use the fastest common one, not the storage network."""
    names = {nic.network for member in members for nic in member.nics} - {""}
    if len(names) < 2:
        return members
    choices = [[on_network(member, name) for member in members] for name in sorted(names)]
    common = [chosen for chosen in choices if all(member.nics for member in chosen)]
    return max(common, key=lambda chosen: min(_line_sum(member) for member in chosen)) if common else members


def _line_sum(member: JobPod) -> float:
    return sum(nic.line_gbytes for nic in member.nics)


def _no_figure(members: Sequence[JobPod], collective: str, p: Parameters) -> str:
    """Why there is no figure, or an empty string."""
    if not members:
        return "the job has no pods"
    if collective not in COLLECTIVES:
        known = ", ".join(COLLECTIVES)
        return f"{collective or 'the collective'} is not in the model; known collectives are {known}"
    kinds = {links.architecture for member in members if (links := links_of(member, p)) is not None}
    if len(kinds) > 1:
        return f"the job has GPUs of different architectures ({', '.join(sorted(filter(None, kinds)))})"
    if len(members) == 1:
        return _inside_unknown(members[0], p)
    without = sum(not member.nics for member in members)
    if without:
        return f"{without} of {len(members)} pods have no NIC of their own, and the pod network is not modelled"
    nics = [nic for member in members for nic in member.nics]
    fabrics = sorted({nic.network for nic in nics if nic.network})
    if len(fabrics) > 1:
        return f"pods on different fabrics ({', '.join(fabrics)}), which do not reach each other"
    if slow := next((nic for nic in nics if nic.line_gbytes <= 0), None):
        return f"the speed of {slow.title or slow.device} is unknown"
    if plain := next(
        (nic for member in members if member.gpus for nic in member.nics if nic.network == "ethernet"), None
    ):
        return f"{plain.title or plain.device} has no RDMA, and sockets are not modelled"
    pairs = [pair for member in members for pair in member.alignment.pairs if pair.distance is Distance.UNKNOWN]
    return f"the distance from {pairs[0].gpu.title} to {pairs[0].nic.title} is unknown" if pairs else ""


def _inside_unknown(member: JobPod, p: Parameters) -> str:
    if len(member.gpus) < 2:
        return "a single GPU has no peers"
    product = member.gpus[0].product or "these GPUs"
    return "" if links_of(member, p) else f"the links between {product} are unknown"


def _algorithms(members: Sequence[JobPod], collective: str, p: Parameters) -> tuple[str, ...]:
    """The algorithms that NCCL would consider."""
    if collective in {"all_to_all", "send_recv"}:
        return (DIRECT,)
    if collective != ALL_REDUCE:
        return (RING,)
    found = [(links_of(member, p), len(member.gpus)) for member in members]
    switched = all(has_nvls(links, gpus, p) for links, gpus in found)
    if len(members) == 1:
        return (RING, NVLS) if switched else (RING,)
    # Without links between GPUs NCCL stays with Ring, although Tree, if forced, is faster (r30, r31).
    # So does RCCL on xGMI (r29).
    linked = all(gpus < 2 or links is None or links.nvlink for links, gpus in found)
    return (RING, TREE, NVLS_TREE) if switched else (RING, TREE) if linked else (RING,)


def _estimate(members: Sequence[JobPod], collective: str, algorithm: str, ranks: Ranks, p: Parameters) -> Estimate:
    several = ranks.pods > 1
    wires = [network_rate(member, p) for member in members] if several else []
    share = network_share(algorithm, collective, ranks) if several else 1.0
    share *= p.tree_share if algorithm in {TREE, NVLS_TREE} else 1.0
    network = min(wires) * share if several else None
    limits = [inside_rate(member, algorithm, collective, ranks, p) for member in members]
    within = min((limit for limit in limits if limit is not None), default=None)
    rate = min(limit for limit in (network, within) if limit is not None)
    slowest = members[wires.index(min(wires))] if several else members[0]
    staged = bool(slowest.gpus and not slowest.near_nics)
    bound = "inside" if network is None or rate < network else "staged" if staged else "network"
    waiting = _latency(members[0], algorithm, collective, ranks, p)
    notes = tuple(_notes(members, slowest, p)) if several else ()
    return Estimate(
        rate, collective, algorithm, ranks, bound, network, within, getattr(p.spread, bound), waiting, notes
    )


def _notes(members: Sequence[JobPod], slowest: JobPod, p: Parameters) -> Iterator[str]:
    idle = len(slowest.nics) - len(slowest.near_nics)
    if slowest.gpus and slowest.near_nics and idle:
        yield f"{idle} of {len(slowest.nics)} NICs of a pod are too far from their GPUs and not used"
    slot = slot_rate(slowest, p)
    if has_c2c(slowest, p) and any(nic.line_gbytes > slot for nic in slowest.near_nics):
        yield f"NICs at {slot:.0f} GB/s each without Data Direct; with it they may reach their line rate"
    if any(len(member.gpus) > 1 and links_of(member, p) is None for member in members):
        yield "the links between these GPUs are unknown: only the network counts"


def _latency(member: JobPod, algorithm: str, collective: str, ranks: Ranks, p: Parameters) -> float:
    taken = steps(algorithm, collective, ranks)
    own = p.fabric(member.nics[0].network).step if member.nics and ranks.pods > 1 else None
    if own is not None:
        return own * (taken.network + taken.inside + taken.nvls)
    waiting = p.latency
    return taken.network * waiting.network_step + taken.inside * waiting.inside_step + taken.nvls * waiting.nvls_step
