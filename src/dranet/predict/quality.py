"""How good a placement is: every GPU-card pair of a pod, the worst of them, and the bandwidth to expect.

GPUs of a device plugin are not known beforehand: the kubelet may hand out any that are free. Then the worst of all
possible choices is given, and said to be one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dranet.topology.alignment import Alignment, align, possible_gpus
from dranet.topology.bandwidth import best_busbw, pod_busbw
from dranet.topology.distance import Distance
from dranet.topology.machine import Part


@dataclass(frozen=True, slots=True)
class Quality:
    """Pairs and bandwidth of one pod."""

    alignment: Alignment = Alignment()
    busbw: float | None = None
    best: float | None = None
    """The same devices if every pair were near enough."""
    certain: bool = True
    """False where GPUs come from a device plugin and other choices are possible."""
    luckiest: Distance = Distance.UNKNOWN
    """With `certain` false: the worst pair of the best possible choice."""

    @property
    def of_best(self) -> float | None:
        """Share of the best that is to be expected."""
        return self.busbw / self.best if self.busbw and self.best else None

    def to_json(self) -> dict[str, Any]:
        """The fields ``alignment`` and ``busbw`` of a planned pod."""
        alignment: dict[str, Any] = {
            "worst": str(self.alignment.worst),
            "pairs": [
                {"gpu": p.gpu.device, "nic": p.nic.device, "nic_name": p.nic.title, "distance": str(p.distance)}
                for p in self.alignment.pairs
            ],
            "distances": self.alignment.distances(),
            "certain": self.certain,
        }
        if not self.certain:
            alignment["luckiest"] = str(self.luckiest)
        busbw = {"expected_gbps": _rounded(self.busbw, 1), "of_best": _rounded(self.of_best, 3)}
        return {"alignment": alignment, "busbw": busbw}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def quality(gpus: Sequence[Part], nics: Sequence[Part]) -> Quality:
    """Of a pod whose GPUs and cards are known."""
    return _quality(tuple(gpus), tuple(nics))


@lru_cache(maxsize=4096)
def _quality(gpus: tuple[Part, ...], nics: tuple[Part, ...]) -> Quality:
    """Parts know nothing of their node: what was worked out for one node holds for all that are alike."""
    alignment = align(gpus, nics)
    return Quality(alignment, pod_busbw(alignment, gpus), best_busbw(alignment, gpus), True, alignment.worst)


def quality_with_plugin(gpus: Sequence[Part], nics: Sequence[Part], free: Sequence[Part], count: int) -> Quality:
    """Of a pod that gets ``count`` more GPUs, any of ``free``, from a device plugin: the worst that can happen."""
    options = [quality([*gpus, *choice], nics) for choice in possible_gpus(free, count, nics)]
    if not options:
        return quality(gpus, nics)
    worst = max(options, key=lambda q: (q.alignment.worst, -(q.busbw or 0)))
    luckiest = min(option.alignment.worst for option in options)
    certain = len(free) == count
    return Quality(worst.alignment, worst.busbw, worst.best, certain, luckiest)
