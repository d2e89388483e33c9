"""Whether a run is as good as it should be, and if not, the likely reasons, most likely first.

A reason always quotes its evidence: a line of the log, a count, a pair of the claim. Without evidence there is no
reason, only a hint at what would give some.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from dranet.reports.expectation import PERFTEST, Comparison, Expected, compare, expect
from dranet.reports.placing import Held, RunHost, place
from dranet.reports.runs import Run
from dranet.topology.bandwidth import NoEstimate, is_direct
from dranet.topology.machine import Machine

TOLERANCE = 0.15
"""The model is off by no more than this on published results."""

SMALL = 1 << 20
"""Bytes; where nobody knows what to expect, a message below this is taken to show latency."""

POD_NETWORK = ("lo", "eth0")
"""Links every pod has."""

GOOD = "as expected"
ALLOCATION = "held back by the allocation"
SHORT = "falls short"
WRONG = "wrong results"
STOPPED = "stopped early"
NOTHING = "no result"
NO_FIGURES = "no figures"
UNKNOWN = "nothing to compare with"


class Judged(msgspec.Struct, frozen=True):
    """A run and what is to be said of it."""

    run: Run
    verdict: str
    reasons: tuple[str, ...]
    expected: Expected | None = None
    comparison: Comparison | None = None
    pods: tuple[RunHost, ...] = ()


def judge(run: Run, machines: Mapping[str, Machine], held: Sequence[Held] = (), text: str = "") -> Judged:
    """Hold a run against what its devices should give."""
    pods = tuple(place(run, machines, held, text))
    figure = expect(run, pods) if run.ranks or run.average is not None else NoEstimate("nothing was measured")
    expected = figure if isinstance(figure, Expected) else None
    comparison = compare(run, expected) if expected else None
    reasons = tuple(_reasons(run, pods, expected))
    verdict = _verdict(run, comparison, reasons)
    if verdict in {GOOD, NO_FIGURES}:
        reasons = ()
    hints = _hints(verdict, figure)
    return Judged(run, verdict, (*reasons, *hints), expected, comparison, pods)


def _hints(verdict: str, figure: Expected | NoEstimate) -> Iterator[str]:
    """What to give next time for a better answer."""
    if isinstance(figure, NoEstimate):
        if verdict == UNKNOWN:
            yield figure.reason
    elif verdict == SHORT and not figure.cards_known:
        yield "the log does not name the pods' cards: --claim shows which are far from their GPUs"


def _verdict(run: Run, comparison: Comparison | None, reasons: tuple[str, ...]) -> str:
    if run.wrong:
        return WRONG
    if run.average is None:
        return NOTHING if run.ranks else NO_FIGURES if not reasons else SHORT
    if run.stopped_early:
        return STOPPED
    if comparison is None:
        return SHORT if reasons else UNKNOWN
    enough = 1 - TOLERANCE
    if comparison.measured >= enough * comparison.best:
        return GOOD
    return ALLOCATION if comparison.measured >= enough * comparison.allocated else SHORT


def _reasons(run: Run, pods: Sequence[RunHost], expected: Expected | None) -> Iterator[str]:
    if run.wrong:
        yield f"{run.wrong} values were wrong: a faulty card, GPU or cable, not a slow one"
    yield from _ended(run)
    yield from _distance(run, expected)
    yield from _fewer_cards(run, pods)
    yield from _staged(run)
    yield from _wrong_interface(run, pods)
    yield from _small_messages(run, expected)
    for warning in run.evidence.warnings:
        yield f"NCCL warned: {warning}"


def _ended(run: Run) -> Iterator[str]:
    if run.stopped_early:
        yield f"the run ended after {len(run.rows)} of {len(run.sizes)} sizes"
    for said in run.evidence.ended:
        yield f"a rank was lost: {said}"


def _distance(run: Run, expected: Expected | None) -> Iterator[str]:
    far = []
    for pod, alignment in expected.alignments if expected else ():
        pairs = [f"{p.gpu.title} to {p.nic.title} is {p.distance}" for p in alignment.pairs if not is_direct(p)]
        if pairs:
            far.append(f"{pod.host + ': ' if pod.host else ''}{', '.join(pairs)}")
    if far:
        yield f"distance: {'; '.join(far)}, too far for GPUDirect"
    elif expected and not expected.cards_known and run.average is not None:
        yield from _straddling(expected)
    elif expected is None and run.evidence.distance == "SYS":
        yield "distance: GPU and card are SYS apart, on different NUMA nodes"


def _straddling(expected: Expected) -> Iterator[str]:
    """GPUs of both sides are well served only by cards of both sides, which few claims ask for."""
    pods = [pod for pod, _ in expected.alignments if len({gpu.place.numa for gpu in pod.gpus}) > 1]
    if pods:
        first = ", ".join(f"{gpu.title} on {gpu.place.numa}" for gpu in pods[0].gpus)
        yield (
            f"distance: {len(pods)} of {len(expected.alignments)} pods have GPUs of several NUMA nodes "
            f"({pods[0].host}: {first}); cards of one node are SYS apart from the GPUs of the other"
        )


def _fewer_cards(run: Run, pods: Sequence[RunHost]) -> Iterator[str]:
    if len(pods) < 2 and len(run.hosts) < 2:
        return
    used, evidence = len(run.evidence.used), run.evidence
    claimed = max((len(pod.nics) for pod in pods if pod.cards_known), default=0)
    listed = max((len(cards) for host, cards in evidence.cards.items() if host), default=0)
    if used and claimed > used:
        yield f"fewer cards used than claimed: channels go through {used} of {claimed}"
    elif used and len(evidence.cards) > 1 and listed > used:
        yield f"fewer cards used than there are: channels go through {used} of {listed}"
    idle = [f"{host}: {', '.join(names)}" for host, links in evidence.traffic.items() if (names := _silent(links))]
    if idle:
        yield f"cards that carried nothing: {'; '.join(idle)}"


def _silent(links: Mapping[str, int]) -> list[str]:
    return [name for name, count in links.items() if name not in POD_NETWORK and not count]


def _staged(run: Run) -> Iterator[str]:
    evidence = run.evidence
    if evidence.staged:
        share = f"{len(evidence.staged)} of {len(evidence.staged) + len(evidence.direct)} lines"
        yield f"GPUDirect RDMA is off ({share}): {evidence.staged[0]}"
    elif (level := evidence.environment.get("NCCL_NET_GDR_LEVEL", "")) in {"LOC", "0"}:
        yield f"GPUDirect RDMA is off: NCCL_NET_GDR_LEVEL is {level}"


def _wrong_interface(run: Run, pods: Sequence[RunHost]) -> Iterator[str]:
    evidence = run.evidence
    if "Socket" in evidence.networks:
        through = f" over {', '.join(evidence.interfaces)}" if evidence.interfaces else ""
        yield f"wrong interface: NCCL used sockets{through} and no RDMA card"
    if evidence.environment.get("NCCL_IB_DISABLE") == "1":
        yield "wrong interface: NCCL_IB_DISABLE=1 keeps NCCL from every RDMA card"
    for host, links in evidence.traffic.items():
        total, through_pod = sum(links.values()), links.get("eth0", 0)
        if total and through_pod / total > 0.01:
            yield f"wrong interface: {through_pod / total:.0%} of {host}'s bytes went through eth0"
    if (
        run.average is None
        and evidence.pod_links
        and set(evidence.pod_links) <= set(POD_NETWORK)
        and len(run.hosts) > 1
    ):
        yield "no card in the pod: ip addr shows only lo and eth0, so ranks on other hosts are out of reach"


def _small_messages(run: Run, expected: Expected | None) -> Iterator[str]:
    """Where the ring's latency takes a good part of the time even for the largest message."""
    if not run.rows or run.stopped_early or not run.world or run.world < 2 or run.collective in PERFTEST:
        return
    largest = max(row.size for row in run.rows)
    waiting = expected.allocated.waiting(largest) if expected else 1.0 if largest < SMALL else 0.0
    if waiting > TOLERANCE:
        yield f"small messages only: none above {largest} bytes, so latency is measured, not bandwidth"
