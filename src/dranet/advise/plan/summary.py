"""The answer of a plan in one line, and its table: equivalent pods in one row, problems first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from dranet.advise.plan.placement import Refusal
from dranet.advise.plan.planning import Plan, rated_jobs
from dranet.advise.plan.quality import Figure, PlannedPod
from dranet.core.columns import at_most, columns
from dranet.machines.bandwidth import Estimate, short_number
from dranet.machines.distance import Distance

_REASON = 160
"""Characters of a reason in the first line; the details have all of it."""
HEADER = ("pods", "nodes", "gpus", "nics", "worst", "GB/s")


class PodGroup(msgspec.Struct, frozen=True):
    """Pods of one workload with the same figures."""

    pods: tuple[PlannedPod, ...]

    @property
    def first(self) -> PlannedPod:
        """Stands for all of them in the details."""
        return self.pods[0]

    def row(self) -> tuple[object, ...]:
        """One row of the table."""
        names = some([one.pod.name for one in self.pods])
        nodes = list(dict.fromkeys(one.placement.node for one in self.pods))
        return names, some(nodes), *_figures(self.first)[1:]


def _figures(one: PlannedPod) -> tuple[object, ...]:
    quality = one.quality
    member = quality.member
    worst = str(quality.alignment.worst) if quality.alignment.pairs else "-"
    luck = "" if quality.certain else f" ({quality.luckiest} at best)"
    return one.pod.workload, len(member.gpus), len(member.nics), worst + luck, interval(quality.expected) or "-"


def groups(found: Plan) -> list[PodGroup]:
    """Equivalent pods together; misaligned ones first, then the slowest."""
    by_figures: dict[tuple[object, ...], list[PlannedPod]] = {}
    for one in found.pods:
        by_figures.setdefault(_figures(one), []).append(one)
    made = [PodGroup(tuple(pods)) for pods in by_figures.values()]
    return sorted(made, key=lambda group: (not group.first.quality.misaligned, group.first.quality.busbw or 0.0))


def refusals(pods: Iterable[Refusal]) -> list[list[Refusal]]:
    """Pods that are not placed, those of one workload with one reason together."""
    keyed = sorted(pods, key=_refusal_key)
    return [list(group) for _, group in groupby(keyed, _refusal_key)]


def _refusal_key(one: Refusal) -> tuple[str, str, int]:
    return one.pod.workload, one.reason, one.steps


def verdict(found: Plan) -> str:
    """The answer: how many pods fit, how well, how fast, and what does not fit."""
    fits = len(found.pods) + len(found.others)
    total = fits + len(found.unschedulable) + len(found.unknown)
    parts = [f"{fits:,} of {total:,} pod{'s' * (total != 1)} fit{'s' * (total == 1)}"]
    parts += [f"worst pair {worst}"] if (worst := _worst(found)) else []
    parts += [rate] if (rate := _slowest(found)) else []
    missing = (*_by_cause(found), ("unknown", found.unknown))
    return "; ".join([*parts, *(text for name, pods in missing for text in _not_placed(name, pods))])


def _by_cause(found: Plan) -> tuple[tuple[str, list[Refusal]], tuple[str, list[Refusal]]]:
    """Pods that the API server refuses, and pods that the scheduler does not place."""
    refused = [one for one in found.unschedulable if one.refused]
    return ("refused", refused), ("unschedulable", [one for one in found.unschedulable if not one.refused])


def _worst(found: Plan) -> str:
    paired = [one for one in found.pods if one.quality.alignment.pairs]
    if not paired:
        return ""
    one = max(paired, key=lambda one: one.quality.alignment.worst)
    worst = one.quality.alignment.worst
    return f"{worst} ({one.pod.name})" if len(paired) > 1 and worst > Distance.PHB else str(worst)


def _slowest(found: Plan) -> str:
    """The slowest job; without jobs of several pods, the slowest pod."""
    jobs = [(job.figures[-1][0], job.workload) for job in rated_jobs(found)]
    pods = [(one.quality.expected, one.pod.name) for one in found.pods]
    named = [(figure, name) for figure, name in (jobs or pods) if isinstance(figure, Estimate)]
    if not named:
        return ""
    figure, name = min(named, key=lambda pair: pair[0].gbytes)
    return f"{interval(figure)} GB/s {figure.collective}" + (f" ({name})" if len({f for f, _ in named}) > 1 else "")


def _not_placed(verdict: str, pods: Sequence[Refusal]) -> Iterable[str]:
    if pods:
        yield f"{len(pods):,} {verdict}: {some([one.pod.name for one in pods])} ({short_reason(pods[0].reason)})"


def short_reason(reason: str) -> str:
    """Without the scheduler's remark on preemption, and not longer than a line or two."""
    reason = reason.partition(" still not schedulable, preemption:")[0].rstrip(".")
    return reason if len(reason) <= _REASON else reason[:_REASON].rsplit(" ", 1)[0] + " ..."


def interval(figure: Figure) -> str:
    """``240-290``, in GB/s; empty without a figure."""
    return f"{short_number(figure.low)}-{short_number(figure.high)}" if isinstance(figure, Estimate) else ""


def table(found: Plan, limit: int, hint: str) -> list[str]:
    """Unschedulable pods, undecided ones, then misaligned ones, then the others."""
    refused = [
        _bare([one.pod.name for one in group], [name.upper()])
        for name, pods in (*_by_cause(found), ("unknown", found.unknown))
        for group in refusals(pods)
    ]
    rows = [*refused, *(group.row() for group in groups(found))]
    if found.others:
        rows.append(_bare([one.pod.name for one in found.others], [one.node for one in found.others]))
    return at_most(columns(HEADER, rows), limit + 1, hint) if rows else []


def _bare(pods: Sequence[str], nodes: Sequence[str]) -> tuple[object, ...]:
    """A row without figures."""
    return some(pods), some(list(dict.fromkeys(nodes))), "-", "-", "-", "-"


def some(names: Sequence[str]) -> str:
    """One name, or the first and the number of the others."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"
