"""The interface between the scheduler and its plugins, with the names of kube-scheduler's framework.

Also the result of a scheduling cycle and the messages that kube-scheduler writes into the pod's status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from dranet.scheduler.claims import Claims
from dranet.scheduler.label_selectors import Labels
from dranet.scheduler.nodes import ClusterNodes, EquivalenceClass
from dranet.scheduler.pods import Pod, PodInfo

MAX_NODE_SCORE = 100
NO_NODES = "no nodes available to schedule pods"
NOT_HELPFUL = "Preemption is not helpful for scheduling"


class Status(msgspec.Struct, frozen=True):
    """Why a filter rejects a node, in kube-scheduler's words."""

    reasons: tuple[str, ...]
    resolvable: bool = False
    """Unschedulable if true: preemption may help. UnschedulableAndUnresolvable if false."""


class PreFilterFailure(Exception):
    """A PreFilter rejects the pod on all nodes."""

    def __init__(self, reason: str, plugin: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.plugin = plugin


class SchedulerError(Exception):
    """An error ends the scheduling cycle, even if other nodes would fit."""


class Cycle(msgspec.Struct, frozen=True):
    """The scheduling cycle of one pod: the input of all filters and scores."""

    pod: Pod
    cluster: ClusterNodes
    claims: Claims
    groups: Collection[EquivalenceClass]
    namespaces: Mapping[str, Labels]
    """Labels of namespaces by name."""
    notes: set[str] = msgspec.field(default_factory=set)
    """Inputs that are unknown and were not considered."""

    @property
    def info(self) -> PodInfo:
        return self.pod.info

    def pods(self) -> Iterator[tuple[EquivalenceClass, PodInfo, int]]:
        """All pods on nodes: the nodes, the pod, and the number of such pods on each of the nodes."""
        for group in self.groups:
            for info, count in group.sample.pods.items():
                yield group, info, count

    def namespace_labels(self) -> Labels:
        """Labels of the pod's own namespace."""
        return self.namespaces.get(self.info.namespace, {})

    def knows_label(self, key: str) -> bool:
        """Whether the label is known for all nodes; adds a note if not."""
        known = self.cluster.knows_label(key)
        if not known:
            self.notes.add(f"label {key}: not known of all nodes")
        return known

    def with_groups(self, groups: Collection[EquivalenceClass]) -> Cycle:
        """The same cycle over nodes in another state."""
        return replace(self, groups=groups)


Filter = Callable[[EquivalenceClass], Status | None]
PreFilter = Callable[[Cycle], Filter | None]
"""Prepares a filter for one pod; None (kube-scheduler's Skip) if the plugin does not apply to the pod."""
Score = Callable[[Cycle, list[EquivalenceClass]], list[int] | None]
"""One score from 0 to MAX_NODE_SCORE for each entry; None if the plugin does not apply to the pod."""


class NodeScore(msgspec.Struct, frozen=True):
    """A score that depends on the node and the PodInfo only, so it is cached until the node changes."""

    score: Callable[[Cycle, EquivalenceClass], int]
    normalize: Callable[[list[int]], list[int]] = list
    applies: Callable[[PodInfo], bool] = lambda info: True


def normalize_score(scores: list[int], *, reverse: bool = False) -> list[int]:
    """Scale to 0..MAX_NODE_SCORE in proportion to the highest (kube-scheduler's DefaultNormalizeScore)."""
    highest = max(scores, default=0)
    if not highest:
        return [MAX_NODE_SCORE if reverse else 0] * len(scores)
    scaled = [MAX_NODE_SCORE * score // highest for score in scores]
    return [MAX_NODE_SCORE - score for score in scaled] if reverse else scaled


class ScoredNodes(msgspec.Struct, frozen=True):
    """Nodes that passed all filters, all with the same score."""

    group: EquivalenceClass
    score: int

    @property
    def nodes(self) -> list[str]:
        return list(self.group.names)


class PreemptionCandidate(msgspec.Struct, frozen=True):
    """A node where the pod fits after the victims are evicted."""

    node: str
    victims: tuple[PodInfo, ...]


class ScheduleResult(msgspec.Struct, frozen=True):
    """The result of one scheduling cycle. Its nodes are valid until the next pod is bound."""

    pod: Pod
    feasible: tuple[ScoredNodes, ...] = ()
    rejected: tuple[tuple[EquivalenceClass, Status], ...] = ()
    """The other nodes, each with the status of the first filter that rejected it."""
    message: str = ""
    """The message in the pod's status; empty if the pod gets a node."""
    messages: tuple[str, ...] = ()
    """All possible messages, if the message depends on which node the scheduler checks first."""
    preemptions: tuple[PreemptionCandidate, ...] = ()
    """The scheduler nominates one of these nodes. `message` does not mention it."""
    notes: tuple[str, ...] = ()
    """Inputs that are unknown and were not considered."""

    @property
    def best(self) -> tuple[ScoredNodes, ...]:
        """The highest scores: the scheduler chooses any of these nodes."""
        highest = max((scored.score for scored in self.feasible), default=0)
        return tuple(scored for scored in self.feasible if scored.score == highest)

    @property
    def best_nodes(self) -> list[str]:
        return [name for scored in self.best for name in scored.nodes]


def fit_error(total: int, rejected: Iterable[tuple[EquivalenceClass, Status]]) -> str:
    """kube-scheduler's FitError: the number of nodes for every reason."""
    counts: Counter[str] = Counter()
    for group, status in rejected:
        for reason in status.reasons:
            counts[reason] += len(group)
    return reasons_message(total, counts)


def reasons_message(total: int, counts: Counter[str]) -> str:
    # Sorted as texts, numbers included: "10 ..." comes before "9 ...".
    shown = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items() if count))
    return unavailable(total, shown)


def unavailable(total: int, reason: str) -> str:
    return f"0/{total} nodes are available: {reason}."
