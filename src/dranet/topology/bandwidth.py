"""What bus bandwidth a job should reach, before it runs: by collective, algorithm, pods and message size.

For every algorithm NCCL could choose, two limits are worked out for every pod: what its cards move over the network
and what its GPUs move among themselves. The lowest over all pods is the algorithm's rate, because a collective is as
fast as its slowest link; of the algorithms the quickest is taken, unless one is named. An answer is a range with the
algorithm it assumes, or the reason why there is none: a number for pods that cannot reach each other is worse than no
number.

Parameters and their sources are in `bandwidth.toml`, the model in words and its errors in docs/bandwidth.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from dranet.topology.alignment import Alignment, Pair
from dranet.topology.bandwidth_parameters import Parameters, parameters
from dranet.topology.collectives import (
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
    network_share,
    spelled,
    steps,
)
from dranet.topology.distance import Distance
from dranet.topology.pod_rates import (
    Member,
    has_c2c,
    has_nvls,
    inside,
    is_direct,
    links_of,
    on_network,
    slot_rate,
    wire,
)

__all__ = ["SWEEP", "Estimate", "Member", "NoEstimate", "estimate", "in_a_ring", "is_direct", "near", "sweep_average"]

SWEEP = tuple(1 << power for power in range(10, 34))
"""1 KiB to 8 GiB, doubling: what the users' documents ran."""


class Estimate(msgspec.Struct, frozen=True):
    """Bus bandwidth in GB/s, and what it rests on."""

    gbytes: float
    """For large messages."""
    collective: str
    algorithm: str
    ranks: Ranks
    bound: str
    """What sets the limit: network, inside or staged."""
    network: float | None
    """What the cards of the slowest pod would allow; None within one pod."""
    inside: float | None
    """What the GPUs of one pod would allow among themselves; None for one GPU a pod, or where links are unknown."""
    spread: float
    latency: float
    """Seconds a message waits whatever its size."""
    notes: tuple[str, ...] = ()

    @property
    def low(self) -> float:
        """Published results were not below this share of the model."""
        return self.gbytes * (1 - self.spread)

    @property
    def high(self) -> float:
        """Nor above this one."""
        return self.gbytes * (1 + self.spread)

    def at(self, size: int) -> float:
        """Bus bandwidth for messages of this many bytes."""
        volume = bus_factor(self.collective, self.ranks.total) * size
        return volume / (self.latency + volume / (self.gbytes * 1e9)) / 1e9

    def waiting(self, size: int) -> float:
        """How much of a message's time goes into steps rather than into moving data."""
        return 1 - self.at(size) / self.gbytes


class NoEstimate(msgspec.Struct, frozen=True):
    """Why there is no figure."""

    reason: str


def estimate(
    members: Sequence[Member],
    collective: str = ALL_REDUCE,
    *,
    algorithm: str = "",
    size: int | None = None,
    p: Parameters | None = None,
) -> Estimate | NoEstimate:
    """A job of these pods. ``size`` settles which algorithm is quickest; without it messages are large."""
    p, collective = p or parameters(), spelled(collective)
    members = _on_one_network(members)
    if reason := _no_figure(members, collective, p):
        return NoEstimate(reason)
    ranks = Ranks(sum(max(len(member.gpus), 1) for member in members), len(members))
    names = (algorithm,) if algorithm else _algorithms(members, collective, p)
    found = [_estimate(members, collective, name, ranks, p) for name in names]
    return max(found, key=lambda one: one.gbytes if size is None else one.at(size))


def in_a_ring(member: Member, p: Parameters | None = None) -> Estimate | NoEstimate:
    """What a pod lends to a job of pods like itself: a ring, which is as fast for two pods as for a thousand."""
    return estimate([member, member], ALL_GATHER, algorithm=RING, p=p)


def near(member: Member) -> Member:
    """The same GPUs and cards if every pair were near enough."""
    pairs = [Pair(one.gpu, one.nic, min(one.distance, one.nic.direct_over)) for one in member.alignment.pairs]
    return replace(member, alignment=Alignment(tuple(pairs)))


def sweep_average(found: Estimate, sizes: Sequence[int] = SWEEP) -> float:
    """The mean bus bandwidth over a sweep of message sizes, as nccl-tests averages it."""
    return sum(found.at(size) for size in sizes) / len(sizes)


def _on_one_network(members: Sequence[Member]) -> Sequence[Member]:
    """Pods with cards of several fabrics talk over the fastest they have in common, not over cards for storage."""
    names = {nic.network for member in members for nic in member.nics} - {""}
    if len(names) < 2:
        return members
    choices = [[on_network(member, name) for member in members] for name in sorted(names)]
    common = [chosen for chosen in choices if all(member.nics for member in chosen)]
    return max(common, key=lambda chosen: min(_line_sum(member) for member in chosen)) if common else members


def _line_sum(member: Member) -> float:
    return sum(nic.line_gbytes for nic in member.nics)


def _no_figure(members: Sequence[Member], collective: str, p: Parameters) -> str:
    """The reason, or an empty string."""
    if not members:
        return "no pod takes part"
    if collective not in COLLECTIVES:
        return f"{collective or 'an unknown collective'} is not in the model, which knows {', '.join(COLLECTIVES)}"
    kinds = {links.architecture for member in members if (links := links_of(member, p)) is not None}
    if len(kinds) > 1:
        return f"GPUs of different kinds ({', '.join(sorted(filter(None, kinds)))}) in one job"
    if len(members) == 1:
        return _inside_unknown(members[0], p)
    without = sum(not member.nics for member in members)
    if without:
        return (
            f"{without} of {len(members)} pods have no card of their own, only the pod network, which is not modelled"
        )
    nics = [nic for member in members for nic in member.nics]
    fabrics = sorted({nic.network for nic in nics if nic.network})
    if len(fabrics) > 1:
        return f"pods on different fabrics ({', '.join(fabrics)}), which do not reach each other"
    if slow := next((nic for nic in nics if nic.line_gbytes <= 0), None):
        return f"the speed of {slow.title or slow.device} is not known"
    if plain := next(
        (nic for member in members if member.gpus for nic in member.nics if nic.network == "ethernet"), None
    ):
        return f"{plain.title or plain.device} has no RDMA: sockets are not modelled"
    pairs = [pair for member in members for pair in member.alignment.pairs if pair.distance is Distance.UNKNOWN]
    return f"how far {pairs[0].gpu.title} is from {pairs[0].nic.title} is not known" if pairs else ""


def _inside_unknown(member: Member, p: Parameters) -> str:
    if len(member.gpus) < 2:
        return "one GPU alone has nobody to talk to"
    product = member.gpus[0].product or "these GPUs"
    return "" if links_of(member, p) else f"how {product} are linked to each other is not known"


def _algorithms(members: Sequence[Member], collective: str, p: Parameters) -> tuple[str, ...]:
    """Those NCCL would consider."""
    if collective in {"all_to_all", "send_recv"}:
        return (DIRECT,)
    if collective != ALL_REDUCE:
        return (RING,)
    found = [(links_of(member, p), len(member.gpus)) for member in members]
    switched = all(has_nvls(links, gpus, p) for links, gpus in found)
    if len(members) == 1:
        return (RING, NVLS) if switched else (RING,)
    # Where GPUs have no links NCCL stays with Ring, though Tree, forced, is quicker (r30, r31).
    # So does RCCL on xGMI (r29).
    linked = all(gpus < 2 or links is None or links.nvlink for links, gpus in found)
    return (RING, TREE, NVLS_TREE) if switched else (RING, TREE) if linked else (RING,)


def _estimate(members: Sequence[Member], collective: str, algorithm: str, ranks: Ranks, p: Parameters) -> Estimate:
    several = ranks.pods > 1
    wires = [wire(member, p) for member in members] if several else []
    share = network_share(algorithm, collective, ranks) if several else 1.0
    share *= p.tree_share if algorithm in {TREE, NVLS_TREE} else 1.0
    network = min(wires) * share if several else None
    limits = [inside(member, algorithm, collective, ranks, p) for member in members]
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


def _notes(members: Sequence[Member], slowest: Member, p: Parameters) -> Iterator[str]:
    idle = len(slowest.nics) - len(slowest.near_nics)
    if slowest.gpus and slowest.near_nics and idle:
        yield f"{idle} of {len(slowest.nics)} cards of a pod are too far from their GPUs and left out"
    slot = slot_rate(slowest, p)
    if has_c2c(slowest, p) and any(nic.line_gbytes > slot for nic in slowest.near_nics):
        yield f"cards at {slot:.0f} GB/s each, without Data Direct; with it they may reach their line rate"
    if any(len(member.gpus) > 1 and links_of(member, p) is None for member in members):
        yield "how these GPUs are linked inside their machine is not known: only the network counts"


def _latency(member: Member, algorithm: str, collective: str, ranks: Ranks, p: Parameters) -> float:
    taken = steps(algorithm, collective, ranks)
    own = p.fabric(member.nics[0].network).step if member.nics and ranks.pods > 1 else None
    if own is not None:
        return own * (taken.network + taken.inside + taken.nvls)
    waiting = p.latency
    return taken.network * waiting.network_step + taken.inside * waiting.inside_step + taken.nvls * waiting.nvls_step
