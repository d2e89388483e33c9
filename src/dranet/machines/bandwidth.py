"""The bus bandwidth that a job should reach, before it runs: by collective, algorithm, pods and message size.

For every algorithm that NCCL could choose, each pod has two limits: what its NICs move over the network, and what its
GPUs move among themselves. The lowest limit of all pods is the algorithm's rate, because a collective is as fast as its
slowest link. The fastest algorithm counts, unless one is named. The answer is a range with the assumed algorithm, or
the reason why there is none, with the physical limit where one is known. Pods of one NVLink domain count as one node.

Parameters and their sources are in `bandwidth.toml`, the model is described in docs/concepts/bandwidth.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from dranet.machines.alignment import Alignment, Pair
from dranet.machines.bandwidth_parameters import Bounds, Parameters, Protocol, parameters
from dranet.machines.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    COLLECTIVES,
    COLLNET,
    DIRECT,
    NVLS,
    NVLS_TREE,
    PAT,
    RING,
    TREE,
    Ranks,
    Steps,
    bus_factor,
    canonical_name,
    network_share,
    steps,
)
from dranet.machines.distance import Distance
from dranet.machines.pod_rates import (
    Domain,
    JobPod,
    domain_links,
    domain_rate,
    domains_of,
    has_c2c,
    has_nvls,
    inside_rate,
    is_direct,
    links_of,
    network_rate,
    on_network,
    slot_is_limit,
    slot_rate,
)

__all__ = [
    "SWEEP_SIZES",
    "Estimate",
    "JobPod",
    "NoEstimate",
    "Transfer",
    "estimate",
    "is_direct",
    "perfectly_aligned",
    "ring_estimate",
    "short_number",
    "sweep_average",
]

SWEEP_SIZES = tuple(1 << power for power in range(10, 34))
"""1 KiB to 8 GiB, doubling: the message sizes of the published runs."""


def short_number(gbytes: float) -> str:
    """Three digits are more than the model is worth; small figures keep one after the point."""
    return f"{gbytes:.0f}" if gbytes >= 100 else f"{gbytes:.1f}"


class Transfer(msgspec.Struct, frozen=True):
    """How one of NCCL's protocols moves a message."""

    latency: float
    """Seconds that a message of any size takes at least."""
    share: float = 1.0
    """Of the rate for large messages."""


class Estimate(msgspec.Struct, frozen=True):
    """Bus bandwidth in GB/s, and what it is computed from."""

    gbytes: float
    """For large messages."""
    collective: str
    algorithm: str
    ranks: Ranks
    """NCCL's nodes: pods, or NVLink domains."""
    bound: str
    """What limits it: network, inside or staged."""
    network: float | None
    """The limit of the NICs of the slowest pod; None within one pod."""
    inside: float | None
    """The limit of the GPUs within one pod; None for one GPU in each pod, or where the links are unknown."""
    spread: Bounds
    transfers: tuple[Transfer, ...]
    notes: tuple[str, ...] = ()

    @property
    def low(self) -> float:
        """At least eight of ten results on machines left out of the fit are between this and `high`."""
        return self.gbytes * self.spread[0]

    @property
    def high(self) -> float:
        """The upper end of the range."""
        return self.gbytes * self.spread[1]

    @property
    def range_text(self) -> str:
        """``240 to 290 GB/s``."""
        return f"{short_number(self.low)} to {short_number(self.high)} GB/s"

    def seconds(self, size: int) -> float:
        """The time of one message of this many bytes, with the protocol that is fastest for it."""
        volume = bus_factor(self.collective, self.ranks.total) * size
        return min(one.latency + volume / (self.gbytes * one.share * 1e9) for one in self.transfers)

    def at(self, size: int) -> float:
        """Bus bandwidth for messages of this many bytes."""
        return bus_factor(self.collective, self.ranks.total) * size / self.seconds(size) / 1e9

    def latency_share(self, size: int) -> float:
        """The share of a message's time that is latency, not data transfer."""
        return 1 - self.at(size) / self.gbytes


class NoEstimate(msgspec.Struct, frozen=True):
    """Why there is no figure."""

    reason: str
    at_most: float | None = None
    """GB/s that the NICs' line rates allow, where they are known."""


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
        return NoEstimate(reason, _line_limit(members, collective))
    counted = domains_of(members)
    several, domains = sum(times for _, times in counted), [domain for domain, _ in counted]
    ranks = Ranks(sum(max(len(member.gpus), 1) for member in members), several)
    names = (algorithm,) if algorithm else _algorithms(domains, collective, several > 1, p)
    found = [_estimate(domains, collective, name, ranks, p) for name in names]
    return max(found, key=lambda one: one.gbytes if size is None else one.at(size))


def _line_limit(members: Sequence[JobPod], collective: str) -> float | None:
    """What no collective exceeds: every pod's NICs at line rate, with the algorithm that sends least."""
    if len(members) < 2 or collective not in COLLECTIVES or not all(member.nics for member in members):
        return None
    if any(nic.line_gbytes <= 0 for member in members for nic in member.nics):
        return None
    ranks = sum(max(len(member.gpus), 1) for member in members)
    return min(map(_line_sum, members)) * max(bus_factor(collective, ranks), 1.0)


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
    domains = domains_of(members)
    alone, everyone, members = sum(times for _, times in domains) == 1, members, _distinct(members)
    if not members:
        return "the job has no pods"
    if collective not in COLLECTIVES:
        known = ", ".join(COLLECTIVES)
        return f"{collective or 'the collective'} is not in the model; known collectives are {known}"
    kinds = {links.architecture for member in members if (links := links_of(member, p)) is not None}
    if len(kinds) > 1:
        return f"the job has GPUs of different architectures ({', '.join(sorted(filter(None, kinds)))})"
    if alone:
        return _inside_unknown(domains[0][0], p)
    without = sum(not member.nics for member in everyone)
    if without:
        return f"{without} of {len(everyone)} pods have no NIC of their own, and the pod network is not modelled"
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


def _distinct(members: Sequence[JobPod]) -> list[JobPod]:
    """Pods of one template are one object."""
    return list({id(member): member for member in members}.values())


def _inside_unknown(domain: Domain, p: Parameters) -> str:
    if domain.gpus < 2:
        return "a single GPU has no peers"
    product = domain.pods[0][0].gpus[0].product or "these GPUs"
    return "" if domain_links(domain, p) else f"the links between {product} are unknown"


def _algorithms(domains: Sequence[Domain], collective: str, several: bool, p: Parameters) -> tuple[str, ...]:
    """The algorithms that NCCL would consider."""
    if collective in {"all_to_all", "send_recv"}:
        return (DIRECT,)
    if collective != ALL_REDUCE:
        alone = several and max(domain.gpus for domain in domains) < 2 and collective in {ALL_GATHER, "reduce_scatter"}
        return (RING, PAT) if alone else (RING,)
    if several and (only := _only_algorithms(domains, p)):
        return only
    found = [(domain_links(domain, p), domain.gpus) for domain in domains]
    switched = all(has_nvls(links, gpus, p) for links, gpus in found)
    if not several:
        return (RING, NVLS) if switched else (RING,)
    # Without links between GPUs NCCL stays with Ring, although Tree, if forced, is faster (r30, r31).
    # So does RCCL on xGMI (r29).
    linked = all(gpus < 2 or links is None or links.nvlink for links, gpus in found)
    return (RING, TREE, NVLS_TREE) if switched else (RING, TREE) if linked else (RING,)


def _only_algorithms(domains: Sequence[Domain], p: Parameters) -> tuple[str, ...]:
    nics = domains[0].pods[0][0].nics
    return p.fabric(nics[0].network).algorithms if nics else ()


def _estimate(domains: Sequence[Domain], collective: str, algorithm: str, ranks: Ranks, p: Parameters) -> Estimate:
    several = ranks.pods > 1
    wires = [domain_rate(domain, p) for domain in domains] if several else []
    share = network_share(algorithm, collective, ranks) * _algorithm_share(algorithm, p) if several else 1.0
    network = min(wires) * share if several else None
    limits = [inside_rate(domain, algorithm, collective, ranks, p) for domain in domains]
    within = min((limit for limit in limits if limit is not None), default=None)
    rate = min(limit for limit in (network, within) if limit is not None)
    slow = domains[wires.index(min(wires))] if several else domains[0]
    slowest = min((pod for pod, _ in slow.pods), key=lambda pod: _network(pod, p))
    staged = bool(slowest.gpus and not slowest.near_nics)
    bound = "inside" if network is None or rate < network else "staged" if staged else "network"
    moved = _transfers(domains[0].pods[0][0], algorithm, collective, ranks, p)
    notes = tuple(_notes(domains, slowest, ranks, p)) if several else ()
    return Estimate(rate, collective, algorithm, ranks, bound, network, within, getattr(p.spread, bound), moved, notes)


def _algorithm_share(algorithm: str, p: Parameters) -> float:
    return {TREE: p.tree_share, NVLS_TREE: p.tree_share, COLLNET: p.tree_share, PAT: p.pat_share}.get(algorithm, 1.0)


def _network(member: JobPod, p: Parameters) -> float:
    """What a pod's NICs move; 0 without NICs, which a pod alone does not need."""
    return network_rate(member, p) if member.nics else 0.0


def _notes(domains: Sequence[Domain], slowest: JobPod, ranks: Ranks, p: Parameters) -> Iterator[str]:
    idle = len(slowest.nics) - len(slowest.near_nics)
    if slowest.gpus and slowest.near_nics and idle:
        yield f"{idle} of {len(slowest.nics)} NICs of a pod are too far from their GPUs and not used"
    if has_c2c(slowest, p) and slowest.near_nics and slot_is_limit(slowest, p):
        slot = slot_rate(slowest, p)
        yield f"NICs at {slot:.0f} GB/s each without Data Direct; with it they may reach their line rate"
    if any(len(pod.gpus) > 1 and links_of(pod, p) is None for domain in domains for pod, _ in domain.pods):
        yield "the links between these GPUs are unknown: only the network counts"
    if any(domain.nodes > 1 for domain in domains):
        yield f"NVLink inside {ranks.pods} NVLink domains, the network between them"


def _transfers(member: JobPod, algorithm: str, collective: str, ranks: Ranks, p: Parameters) -> tuple[Transfer, ...]:
    taken = steps(algorithm, collective, ranks)
    own = p.fabric(member.nics[0].network).step if member.nics and ranks.pods > 1 else None
    if own is not None:
        return (Transfer(own * (taken.network + taken.inside + taken.nvls)),)
    if taken.nvls:
        return (Transfer(p.nvls.base * taken.nvls + p.nvls.step * taken.network),)
    tree = algorithm in {TREE, COLLNET, PAT}
    return tuple(_transfer(protocol, taken, tree) for protocol in p.protocols.values())


def _transfer(protocol: Protocol, taken: Steps, tree: bool) -> Transfer:
    network = taken.network * protocol.network_step[tree]
    return Transfer(protocol.base + network + taken.inside * protocol.inside_step, protocol.share)
