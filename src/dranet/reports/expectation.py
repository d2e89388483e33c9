"""What a run should have reached: with the devices it had, and with the same number of devices well chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dranet.reports.placing import RunHost
from dranet.reports.runs import Run
from dranet.topology.alignment import Alignment, align
from dranet.topology.bandwidth import SWEEP, best_busbw, job_busbw, parameters, pod_busbw, sweep_average
from dranet.topology.distance import Distance, distance
from dranet.topology.machine import Machine, Part

PERFTEST = ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw")


@dataclass(frozen=True, slots=True)
class Expected:
    """GB/s of bus bandwidth for large messages."""

    allocated: float
    """With the devices of the run."""
    best: float
    """With as many devices, each GPU near its card."""
    cards_known: bool
    alignments: tuple[tuple[RunHost, Alignment], ...] = ()

    @property
    def worst(self) -> Distance:
        """The farthest pair of all pods whose cards are known."""
        return max((alignment.worst for _, alignment in self.alignments if alignment.pairs), default=Distance.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The one figure of a run that is held against the model, and what it should have been."""

    what: str
    measured: float
    allocated: float
    best: float


def expect(run: Run, pods: Sequence[RunHost]) -> Expected | None:
    """None where the pods, their GPUs or the speed of their cards are not known."""
    if not pods:
        return None
    if run.collective in PERFTEST:
        return _one_card(pods)
    alone = len(pods) == 1 and len(run.hosts) == 1
    aligned = [(pod, Alignment() if alone else align(pod.gpus, pod.nics)) for pod in pods]
    rates = [_pod_rate(pod, alignment, alone) for pod, alignment in aligned]
    if any(rate is None for rate in rates):
        return None
    known = [rate for rate in rates if rate is not None]
    return Expected(
        job_busbw([allocated for allocated, _ in known]),
        job_busbw([best for _, best in known]),
        alone or all(pod.cards_known for pod in pods),
        tuple(aligned),
    )


def compare(run: Run, expected: Expected) -> Comparison | None:
    """The best size where there are rows, else the average over the sweep; None for a run without figures."""
    if peak := run.peak:
        return Comparison("at its best size", peak[0], expected.allocated, expected.best)
    if run.average is None:
        return None
    if run.large_messages or run.world is None:
        return Comparison("for large messages", run.average, expected.allocated, expected.best)
    sizes = run.sizes or SWEEP
    at = [sweep_average(rate, run.world, run.collective, sizes) for rate in (expected.allocated, expected.best)]
    return Comparison("on average over its sizes", run.average, *at)


def _pod_rate(pod: RunHost, alignment: Alignment, alone: bool) -> tuple[float, float] | None:
    if not pod.gpus:
        return _lines(pod.nics)
    if not alone and not pod.cards_known:
        alignment = align(pod.gpus, _nearest_cards(pod.machine, pod.gpus))
        if not alignment.pairs:
            return None
    rate, best = pod_busbw(alignment, pod.gpus), best_busbw(alignment, pod.gpus)
    return None if rate is None or best is None else (rate, best)


def _nearest_cards(machine: Machine, gpus: Sequence[Part]) -> list[Part]:
    """A card for each GPU, the nearest there is: what the hardware would give at its best."""
    left = [nic for nic in machine.nics if nic.rdma]
    chosen: list[Part] = []
    for gpu in gpus:
        if left:
            chosen.append(min(left, key=lambda nic: distance(gpu.place, nic.place)))
            left.remove(chosen[-1])
    return chosen


def _one_card(pods: Sequence[RunHost]) -> Expected | None:
    """Point to point: the slower of the named cards, and no GPU in the way."""
    rates = [_lines(pod.nics[:1]) for pod in pods]
    known = [rate[0] for rate in rates if rate is not None]
    return Expected(min(known), min(known), True) if known and len(known) == len(rates) else None


def _lines(nics: Sequence[Part]) -> tuple[float, float] | None:
    """Cards without GPUs: line rate less protocol."""
    if not nics or any(nic.line_gbytes <= 0 for nic in nics):
        return None
    rate = sum(nic.line_gbytes for nic in nics) * parameters().network_efficiency
    return rate, rate
