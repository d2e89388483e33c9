"""How good a placement is: every GPU-card pair of a pod, the worst of them, and the bandwidth to expect.

A pod's own figure is what it lends to a job of pods like itself, in a ring; `jobs.rates` has the figure of a whole job.
GPUs of a device plugin are not known beforehand: the kubelet may hand out any that are free. Then the worst of all
possible choices is given, and said to be one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from dranet.topology.alignment import Alignment, align, possible_gpus
from dranet.topology.bandwidth import Estimate, Member, NoEstimate, estimate, in_a_ring, is_direct, near
from dranet.topology.distance import Distance
from dranet.topology.machine import Part

Figure = Estimate | NoEstimate
NOTHING = NoEstimate("no GPU and no card")
ADMIN = NoEstimate("admin access: it looks at devices that others use and has none of its own")


class Quality(msgspec.Struct, frozen=True):
    """Pairs and bandwidth of one pod."""

    member: Member = Member(())
    expected: Figure = NOTHING
    best: Figure = NOTHING
    """The same devices if every pair were near enough."""
    certain: bool = True
    """False where GPUs come from a device plugin and other choices are possible."""
    luckiest: Distance = Distance.UNKNOWN
    """With `certain` false: the worst pair of the best possible choice."""

    @property
    def alignment(self) -> Alignment:
        """Its pairs."""
        return self.member.alignment

    @property
    def busbw(self) -> float | None:
        """GB/s for large messages; None where there is no figure."""
        return self.expected.gbytes if isinstance(self.expected, Estimate) else None

    @property
    def misaligned(self) -> bool:
        """Whether a card is too far from its GPU to read its memory itself."""
        return any(p.distance is not Distance.UNKNOWN and not is_direct(p) for p in self.alignment.pairs)

    @property
    def of_best(self) -> float | None:
        """Share of the best that is to be expected."""
        return share(self.expected, self.best)

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
        return {"alignment": alignment, "busbw": figure_json(self.expected, self.best)}


def share(expected: Figure, best: Figure) -> float | None:
    """Of the best that is expected; None where either is unknown."""
    if isinstance(expected, NoEstimate) or isinstance(best, NoEstimate):
        return None
    return expected.gbytes / best.gbytes


def figure_json(expected: Figure, best: Figure) -> dict[str, Any]:
    """A bandwidth for programs: GB/s with its range and what it assumes, or null with the reason."""
    if isinstance(expected, NoEstimate):
        return {"gbytes_per_second": None, "reason": expected.reason}
    of_best = share(expected, best)
    return {
        "gbytes_per_second": round(expected.gbytes, 1),
        "low": round(expected.low, 1),
        "high": round(expected.high, 1),
        "collective": expected.collective,
        "algorithm": expected.algorithm,
        "limited_by": expected.bound,
        "network": _rounded(expected.network, 1),
        "inside": _rounded(expected.inside, 1),
        "of_best": _rounded(of_best, 3),
        "notes": list(expected.notes),
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def quality(gpus: Sequence[Part], nics: Sequence[Part]) -> Quality:
    """Of a pod whose GPUs and cards are known."""
    return _quality(tuple(gpus), tuple(nics))


@lru_cache(maxsize=4096)
def _quality(gpus: tuple[Part, ...], nics: tuple[Part, ...]) -> Quality:
    """Parts know nothing of their node: what was worked out for one node holds for all that are alike."""
    if not gpus:
        return Quality(Member((), cards=nics), NoEstimate("no GPU") if nics else NOTHING)
    member = Member(gpus, align(gpus, nics))
    expected = in_a_ring(member) if nics else estimate([member])
    best = in_a_ring(near(member)) if nics else expected
    return Quality(member, expected, best, True, member.alignment.worst)


def quality_with_plugin(gpus: Sequence[Part], nics: Sequence[Part], free: Sequence[Part], count: int) -> Quality:
    """Of a pod that gets ``count`` more GPUs, any of ``free``, from a device plugin: the worst that can happen."""
    options = [quality([*gpus, *choice], nics) for choice in possible_gpus(free, count, nics)]
    if not options:
        return quality(gpus, nics)
    worst = max(options, key=lambda q: (q.alignment.worst, -(q.busbw or 0)))
    luckiest = min(option.alignment.worst for option in options)
    certain = len(free) == count
    return Quality(worst.member, worst.expected, worst.best, certain, luckiest)
