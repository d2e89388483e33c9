"""Rolling updates: new pods take the place of running ones, as far as surge and availability allow.

Every pod that gets a node counts as ready. A pod that does not fit stays pending, and the update waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dranet.advise.manifests import Manifests
from dranet.advise.plan.pending_pods import PendingPod
from dranet.advise.plan.placement import Placement, Refusal, Simulator

Answer = Placement | Refusal


class Applied(msgspec.Struct, frozen=True):
    """What applying a workload does to its pods that run."""

    workload: str
    namespace: str
    keeps: int
    adds: int
    replaces: int
    removes: int

    def __str__(self) -> str:
        counts = [("keeps", self.keeps), ("adds", self.adds), ("replaces", self.replaces), ("removes", self.removes)]
        return f"{self.workload}: {', '.join(f'{word} {count}' for word, count in counts if count)}"


def applied_changes(manifests: Manifests, pods: Iterable[PendingPod]) -> tuple[Applied, ...]:
    """For every workload of the question with pods that run: how many it keeps, adds, replaces and removes."""
    created: dict[tuple[str, str], int] = {}
    for pod in pods:
        created[pod.namespace, pod.workload] = created.get((pod.namespace, pod.workload), 0) + 1
    counts: dict[tuple[str, str], list[int]] = {}
    for spec in manifests.pods:
        if spec.kept or spec.replaced or spec.removed:
            found = counts.setdefault((spec.namespace, f"{spec.owner.kind}/{spec.owner.name}"), [0, 0, 0])
            for i, names in enumerate((spec.kept, spec.replaced, spec.removed)):
                found[i] += len(names)
    return tuple(
        Applied(workload, space, keeps, max(created.get((space, workload), 0) - replaces, 0), replaces, removes)
        for (space, workload), (keeps, replaces, removes) in counts.items()
    )


def place_rollout(simulator: Simulator, pods: Sequence[PendingPod]) -> list[Answer]:
    """Place the new pods of a Deployment in the order in which its controller creates them."""
    rollout, old = pods[0].rollout, list(pods[0].old)
    assert rollout is not None
    if rollout.at_once:
        _evict(simulator, pods[0].namespace, old)
        old = []
    answers: list[Answer] = []
    while True:
        created = max(min(len(pods) + rollout.surge - len(old), len(pods)) - len(answers), 0)
        answers += [simulator.place(pod) for pod in pods[len(answers) : len(answers) + created]]
        pending = sum(isinstance(one, Refusal) for one in answers)
        spare = len(old) + len(answers) - (len(pods) - rollout.unavailable) - pending
        victims = old[: max(spare, 0)]
        if not victims and not created:
            break
        _evict(simulator, pods[0].namespace, victims)
        old = old[len(victims) :]
        if victims:
            answers = [simulator.place(one.pod) if isinstance(one, Refusal) else one for one in answers]
    waits = f"not created yet: the rolling update waits, with {len(old)} of the running pods left"
    return [*answers, *(Refusal(pod, waits) for pod in pods[len(answers) :])]


def _evict(simulator: Simulator, namespace: str, names: Iterable[str]) -> None:
    for name in names:
        simulator.evict(namespace, name)
