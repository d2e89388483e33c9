"""Compares a run with its expectation and lists the likely reasons of a difference, most likely first.

A reason quotes its evidence: a line of the log, a count, or a pair of devices. Without evidence there is only a hint on
how to get some.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from dranet.advise.report import nixl
from dranet.advise.report.expectation import (
    PERFTEST,
    AllocatedClaim,
    Comparison,
    Expected,
    Host,
    compare,
    expect,
    find_hosts,
    not_comparable,
)
from dranet.advise.report.runs import Run
from dranet.machines.bandwidth import NoEstimate, is_direct
from dranet.machines.machine import Machine

LATENCY = 0.15
"""Share of latency in the largest message from which on a run is one of small messages."""

SMALL = 1 << 20
"""Bytes: without an expectation, smaller messages are assumed to measure latency."""

POD_NETWORK = ("lo", "eth0")
"""Links of every pod."""

GOOD = "as expected"
ALLOCATION = "held back by the allocation"
SHORT = "falls short"
WRONG = "wrong results"
STOPPED = "incomplete"
NOTHING = "no result"
NO_FIGURES = "no figures"
UNKNOWN = "nothing to compare with"


class Judged(msgspec.Struct, frozen=True):
    """A run with its verdict and reasons."""

    run: Run
    verdict: str
    reasons: tuple[str, ...]
    expected: Expected | None = None
    comparison: Comparison | None = None
    pods: tuple[Host, ...] = ()


def judge(run: Run, machines: Mapping[str, Machine], claims: Sequence[AllocatedClaim] = (), text: str = "") -> Judged:
    """Compare a run with what its devices should reach."""
    pods = tuple(find_hosts(run, machines, claims, text))
    figure = expect(run, pods) if run.ranks or run.average is not None else NoEstimate("nothing was measured")
    expected = figure if isinstance(figure, Expected) else None
    comparison = compare(run, expected) if expected else None
    reasons = tuple(_reasons(run, pods, expected))
    verdict = _verdict(run, expected, comparison, reasons)
    if verdict in {GOOD, NO_FIGURES}:
        reasons = ()
    hints = _hints(run, verdict, figure)
    return Judged(run, verdict, (*reasons, *hints), expected, comparison, pods)


def _hints(run: Run, verdict: str, figure: Expected | NoEstimate) -> Iterator[str]:
    """What input would give a better answer."""
    if isinstance(figure, NoEstimate):
        if verdict == UNKNOWN:
            yield figure.reason
        elif verdict == NOTHING and run.ran_alone:
            yield not_comparable(run)
    elif verdict == SHORT and not figure.nics_known:
        yield "the log does not name the NICs of the pods: add --claim to find NICs that are far from their GPUs"


def _verdict(run: Run, expected: Expected | None, comparison: Comparison | None, reasons: tuple[str, ...]) -> str:
    if run.wrong:
        return WRONG
    if run.average is None:
        return NOTHING if run.ranks else NO_FIGURES if not reasons else SHORT
    if run.stopped_early:
        return STOPPED
    if comparison is None or expected is None:
        return SHORT if reasons else UNKNOWN
    # What is inside the printed range does not fall short.
    if comparison.measured >= expected.best.spread[0] * comparison.best:
        return GOOD
    enough = expected.allocated.spread[0] * comparison.allocated
    return ALLOCATION if comparison.measured >= enough else SHORT


def _reasons(run: Run, pods: Sequence[Host], expected: Expected | None) -> Iterator[str]:
    if run.wrong:
        yield f"{run.wrong} wrong values: a NIC, GPU or cable is faulty"
    yield from _ended(run)
    yield from _distance(run, expected)
    yield from _fewer_nics(run, pods)
    yield from _staged(run)
    yield from _wrong_interface(run, pods)
    yield from _small_messages(run, expected)
    for warning in run.evidence.warnings:
        yield f"NCCL warned: {warning}"


def _ended(run: Run) -> Iterator[str]:
    if run.stopped_early:
        yield f"the log ends after {len(run.rows)} of {len(run.sizes)} sizes"
    for message in run.evidence.ended:
        yield f"lost a rank: {message}"


def _distance(run: Run, expected: Expected | None) -> Iterator[str]:
    far = []
    for pod, alignment in expected.alignments if expected else ():
        pairs = [f"{p.gpu.title} to {p.nic.title} is {p.distance}" for p in alignment.pairs if not is_direct(p)]
        if pairs:
            far.append(f"{pod.host + ': ' if pod.host else ''}{', '.join(pairs)}")
    if far:
        yield f"distance: {'; '.join(far)}, too far for GPUDirect"
    elif expected and not expected.nics_known and run.average is not None:
        yield from _several_numa_nodes(expected)
    elif expected is None and run.evidence.distance == "SYS":
        yield "distance: GPU and NIC are on different NUMA nodes (SYS)"


def _several_numa_nodes(expected: Expected) -> Iterator[str]:
    """GPUs of several NUMA nodes need NICs of the same NUMA nodes, which few claims request."""
    pods = [pod for pod, _ in expected.alignments if len({gpu.position.numa for gpu in pod.gpus}) > 1]
    if pods:
        first = ", ".join(f"{gpu.title} on {gpu.position.numa}" for gpu in pods[0].gpus)
        yield (
            f"distance: {len(pods)} of {len(expected.alignments)} pods have GPUs of several NUMA nodes "
            f"({pods[0].host}: {first}); NICs of one NUMA node are far (SYS) from GPUs of the other"
        )


def _fewer_nics(run: Run, pods: Sequence[Host]) -> Iterator[str]:
    if len(pods) < 2 and len(run.hosts) < 2:
        return
    used, evidence = len(run.evidence.used), run.evidence
    claimed = max((len(pod.nics) for pod in pods if pod.nics_known), default=0)
    listed = max((len(nics) for host, nics in evidence.nics.items() if host), default=0)
    if used and claimed > used:
        yield f"fewer NICs used than allocated: channels use {used} of {claimed}"
    elif used and len(evidence.nics) > 1 and listed > used:
        yield f"fewer NICs used than available: channels use {used} of {listed}"
    idle = [f"{host}: {', '.join(names)}" for host, links in evidence.traffic.items() if (names := _idle_links(links))]
    if idle:
        yield f"NICs without traffic: {'; '.join(idle)}"


def _idle_links(links: Mapping[str, int]) -> list[str]:
    return [name for name, count in links.items() if name not in POD_NETWORK and not count]


def _staged(run: Run) -> Iterator[str]:
    evidence = run.evidence
    if evidence.staged:
        share = f"{len(evidence.staged)} of {len(evidence.staged) + len(evidence.direct)} lines"
        yield f"GPUDirect RDMA is off ({share}): {evidence.staged[0]}"
    elif (level := evidence.environment.get("NCCL_NET_GDR_LEVEL", "")) in {"LOC", "0"}:
        yield f"GPUDirect RDMA is off: NCCL_NET_GDR_LEVEL is {level}"


def _wrong_interface(run: Run, pods: Sequence[Host]) -> Iterator[str]:
    evidence = run.evidence
    if "Socket" in evidence.networks:
        through = f" over {', '.join(evidence.interfaces)}" if evidence.interfaces else ""
        yield f"wrong interface: NCCL used sockets{through} instead of RDMA"
    if evidence.environment.get("NCCL_IB_DISABLE") == "1":
        yield "wrong interface: NCCL_IB_DISABLE=1 disables RDMA in NCCL"
    for host, links in evidence.traffic.items():
        total, through_pod = sum(links.values()), links.get("eth0", 0)
        if total and through_pod / total > 0.01:
            yield f"wrong interface: {through_pod / total:.0%} of the bytes of {host} went through eth0"
    if (
        run.average is None
        and evidence.pod_links
        and set(evidence.pod_links) <= set(POD_NETWORK)
        and len(run.hosts) > 1
    ):
        yield "no NIC in the pod: ip addr shows only lo and eth0, so ranks on other hosts cannot be reached"


def _small_messages(run: Run, expected: Expected | None) -> Iterator[str]:
    """Whether latency dominates even for the largest message."""
    if (
        not run.rows
        or run.stopped_early
        or not run.world
        or run.world < 2
        or run.collective in {*PERFTEST, nixl.PROGRAM}
    ):
        return
    largest = max(row.size for row in run.rows)
    waiting = expected.allocated.latency_share(largest) if expected else 1.0 if largest < SMALL else 0.0
    if waiting > LATENCY:
        yield f"only small messages, up to {largest} bytes: they measure latency, not bandwidth"
