"""What bus bandwidth to expect, before the job runs.

A small model, its parameters in `bandwidth.toml`, its error printed by `bench/bandwidth.py`:

- A card that can read GPU memory itself moves its line rate, less protocol, and never more than PCIe carries.
- A pair too far apart for that is staged through host memory, which one pod shares.
- A pod's traffic is spread evenly over its cards, so it needs the longer of two times: its cards at full speed, or the
  staged share through host memory.
- A collective visits every pod in turn: a job's time per byte is the mean over its pods.

Bus bandwidth is nccl-tests' ``busbw``, in GB/s, for large messages. `sweep_average` is what nccl-tests prints as
"Avg bus bandwidth", where small messages weigh as much as large ones.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources

import msgspec

from dranet.topology.alignment import Alignment, Pair
from dranet.topology.distance import Distance
from dranet.topology.machine import Part

SWEEP = tuple(1 << power for power in range(10, 34))
"""1 KiB to 8 GiB, doubling: what the users' documents ran."""


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See `bandwidth.toml` for what each one means and where it comes from."""

    network_efficiency: float
    pcie_gbytes: float
    several_gpus_share: float
    staged_gbytes: float
    staged_share: float
    nvlink_efficiency: float
    step_seconds: float


@cache
def parameters() -> Parameters:
    """The parameters that ship with the package."""
    text = (resources.files(__package__) / "bandwidth.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), Parameters)


def is_direct(pair: Pair) -> bool:
    """Whether the card of this pair reads GPU memory without the CPU's help."""
    return pair.distance <= pair.nic.direct_over


def pod_busbw(alignment: Alignment, gpus: Sequence[Part], p: Parameters | None = None) -> float | None:
    """What one pod contributes, GB/s; None where nothing is known to compute it from."""
    p = p or parameters()
    cards = {pair.nic.id: pair for pair in sorted(alignment.pairs, key=lambda pair: pair.distance)}
    if not cards:
        return _inside_pod(gpus, p)
    if any(pair.nic.line_gbytes <= 0 or pair.distance is Distance.UNKNOWN for pair in cards.values()):
        return None
    staged = [pair.nic.line_gbytes for pair in cards.values() if not is_direct(pair)]
    lines = [pair.nic.line_gbytes for pair in cards.values()]
    direct = sum(min(line, p.pcie_gbytes) for line in lines) * p.network_efficiency
    seconds = 1 / (direct * (p.several_gpus_share if len(gpus) > 1 else 1.0))
    if staged:
        through_host = min(p.staged_gbytes, p.staged_share * sum(staged))
        seconds = max(seconds, len(staged) / len(lines) / through_host)
    return 1 / seconds


def best_busbw(alignment: Alignment, gpus: Sequence[Part], p: Parameters | None = None) -> float | None:
    """The same cards and GPUs if every pair were near enough."""
    near = Alignment(tuple(_near(pair) for pair in alignment.pairs))
    return pod_busbw(near, gpus, p)


def job_busbw(pods: Sequence[float]) -> float:
    """A job over these pods: times per byte are averaged, so the slow ones count most."""
    return len(pods) / sum(1 / rate for rate in pods)


def sweep_average(
    rate: float,
    ranks: int,
    collective: str,
    sizes: Sequence[int] = SWEEP,
    p: Parameters | None = None,
) -> float:
    """The mean bus bandwidth over a sweep of message sizes, as nccl-tests averages it."""
    times = [_ring(size, rate, ranks, collective, p) for size in sizes]
    return sum(volume / (fixed + moving) / 1e9 for fixed, moving, volume in times) / len(times)


def latency_share(size: int, rate: float, ranks: int, collective: str, p: Parameters | None = None) -> float:
    """How much of a message's time goes into the steps of the ring rather than into moving data."""
    fixed, moving, _ = _ring(size, rate, ranks, collective, p)
    return fixed / (fixed + moving)


def _ring(size: int, rate: float, ranks: int, collective: str, p: Parameters | None) -> tuple[float, float, float]:
    """Seconds of latency, seconds of moving, and the bytes that count as bus traffic."""
    rounds = 2 if collective == "all_reduce" else 1
    volume = rounds * (ranks - 1) / ranks * size
    return rounds * (ranks - 1) * (p or parameters()).step_seconds, volume / (rate * 1e9), volume


def _inside_pod(gpus: Sequence[Part], p: Parameters) -> float | None:
    if len(gpus) < 2 or any(not gpu.nvlink_gbytes for gpu in gpus):
        return None
    return min(gpu.nvlink_gbytes for gpu in gpus) * p.nvlink_efficiency


def _near(pair: Pair) -> Pair:
    return Pair(pair.gpu, pair.nic, min(pair.distance, pair.nic.direct_over))
