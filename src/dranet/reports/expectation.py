"""What a run should have reached: with the devices it had, and with the same number of devices well chosen.

The figures are those of `dranet.topology.bandwidth` for the run's own collective, and for the algorithm its log names
where it names one. Every comparison is like with like: a peak against the figure of large messages, an average against
the model's average over the same sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from dranet.reports.placing import RunHost
from dranet.reports.runs import Run
from dranet.topology.alignment import Alignment, align
from dranet.topology.bandwidth import SWEEP, Estimate, Member, NoEstimate, estimate, near, sweep_average
from dranet.topology.collectives import ALL_REDUCE, RING
from dranet.topology.distance import Distance, distance
from dranet.topology.machine import Machine, Part

PERFTEST = ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw")


class Expected(msgspec.Struct, frozen=True):
    """What the devices of a run should give."""

    allocated: Estimate
    """With the devices of the run."""
    best: Estimate
    """With as many devices, each GPU near its card."""
    cards_known: bool
    alignments: tuple[tuple[RunHost, Alignment], ...] = ()

    @property
    def worst(self) -> Distance:
        """The farthest pair of all pods whose cards are known."""
        return max((alignment.worst for _, alignment in self.alignments if alignment.pairs), default=Distance.UNKNOWN)


class Comparison(msgspec.Struct, frozen=True):
    """The one figure of a run that is held against the model, and what it should have been; all in GB/s."""

    what: str
    measured: float
    allocated: float
    best: float


def expect(run: Run, pods: Sequence[RunHost]) -> Expected | NoEstimate:
    """The reason instead, where pods, GPUs or cards are not known well enough."""
    if not pods:
        return NoEstimate("no machine is known for this run: name one with --slices, --shape or --claim")
    if run.collective in PERFTEST:
        return _one_card(pods)
    alone = len(pods) == 1 and len(run.hosts) == 1
    aligned = [(pod, Alignment() if alone else align(pod.gpus, pod.nics)) for pod in pods]
    members = [_member(pod, alignment, alone) for pod, alignment in aligned]
    if len(members) == 1 and not alone:
        ranks = max(len(members[0].gpus), 1)
        members *= max((run.world or 0) // ranks, 2)  # one claim stands for all pods of its template
    known = alone or all(pod.cards_known for pod in pods)
    return _expected(run, members, known, tuple(aligned))


def _expected(
    run: Run, members: list[Member], cards_known: bool, aligned: tuple[tuple[RunHost, Alignment], ...]
) -> Expected | NoEstimate:
    collective, algorithm = run.collective or ALL_REDUCE, run.evidence.algorithm
    size = run.peak[1] if run.peak else None
    found = estimate(members, collective, algorithm=algorithm, size=size)
    best = estimate([near(member) for member in members], collective, algorithm=algorithm, size=size)
    if isinstance(found, NoEstimate):
        return found
    return best if isinstance(best, NoEstimate) else Expected(found, best, cards_known, aligned)


def compare(run: Run, expected: Expected) -> Comparison | None:
    """The best size where there are rows, else the average over the sweep; None for a run without figures."""
    allocated, best = expected.allocated, expected.best
    if peak := run.peak:
        return Comparison("at its best size", peak[0], allocated.gbytes, best.gbytes)
    if run.average is None:
        return None
    if run.large_messages or run.world is None:
        return Comparison("for large messages", run.average, allocated.gbytes, best.gbytes)
    sizes = run.sizes or SWEEP
    at = [sweep_average(found, sizes) for found in (allocated, best)]
    return Comparison("on average over its sizes", run.average, *at)


def _member(pod: RunHost, alignment: Alignment, alone: bool) -> Member:
    if not pod.gpus:
        return Member((), cards=pod.nics)
    if not alone and not pod.cards_known:
        alignment = align(pod.gpus, _nearest_cards(pod.machine, pod.gpus))
    return Member(pod.gpus, alignment)


def _nearest_cards(machine: Machine, gpus: Sequence[Part]) -> list[Part]:
    """A card for each GPU, the nearest there is: what the hardware would give at its best."""
    left = [nic for nic in machine.nics if nic.rdma]
    chosen: list[Part] = []
    for gpu in gpus:
        if left:
            chosen.append(min(left, key=lambda nic: distance(gpu.place, nic.place)))
            left.remove(chosen[-1])
    return chosen


def _one_card(pods: Sequence[RunHost]) -> Expected | NoEstimate:
    """Point to point: the slower of the named cards, and no GPU in the way."""
    members = [Member((), cards=pod.nics[:1]) for pod in pods]
    found = estimate(members * (2 if len(members) == 1 else 1), "send_recv", algorithm=RING)
    if isinstance(found, NoEstimate):
        return found
    straight = replace(found, latency=0.0)  # perftest keeps many messages under way
    return Expected(straight, straight, True)
