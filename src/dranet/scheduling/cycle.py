"""One pod asked about against all nodes: what filters and scores are given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from dranet.scheduling.claims import Claims
from dranet.scheduling.nodes import Alike, ClusterNodes
from dranet.scheduling.pods import Pod, Traits
from dranet.scheduling.selectors import Labels


class Rejection(msgspec.Struct, frozen=True):
    """Why nodes do not take a pod, in the scheduler's words."""

    reasons: tuple[str, ...]
    preemptible: bool = False
    """Whether the pod might fit there if others left."""


class Refused(Exception):
    """The pod fits nowhere, whatever the nodes are like."""

    def __init__(self, reason: str, plugin: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.plugin = plugin


class SchedulerError(Exception):
    """The scheduler ends its round with an error, although other nodes might fit."""


class Cycle(msgspec.Struct, frozen=True):
    """One pod and everything it is compared with."""

    pod: Pod
    cluster: ClusterNodes
    claims: Claims
    alike: Collection[Alike]
    namespaces: Mapping[str, Labels]
    """Labels of namespaces."""
    only: frozenset[str] | None = None
    """The nodes that the pod names one by one; None for all."""
    notes: set[str] = msgspec.field(default_factory=set)
    """What could not be considered."""

    @property
    def traits(self) -> Traits:
        """The pod's."""
        return self.pod.traits

    def pods(self) -> Iterator[tuple[Alike, Traits, int]]:
        """All pods that are on nodes: where, which, and how many on each of these nodes."""
        for alike in self.alike:
            for traits, count in alike.sample.pods.items():
                yield alike, traits, count

    def namespace_labels(self) -> Labels:
        """Labels of the pod's own namespace."""
        return self.namespaces.get(self.traits.namespace, {})

    def knows(self, key: str) -> bool:
        """Whether a label is known of all nodes; noted where it is not."""
        known = self.cluster.knows(key)
        if not known:
            self.notes.add(f"label {key}: not known of all nodes")
        return known

    def among(self, alike: Collection[Alike]) -> Cycle:
        """The same question about nodes in another state."""
        return replace(self, alike=alike)


Check = Callable[[Alike], Rejection | None]
Prepare = Callable[[Cycle], Check | None]
Score = Callable[[Cycle, list[Alike]], list[int] | None]
"""Points from 0 to 100 for each; None where the plugin has nothing to say."""


class OwnScore(msgspec.Struct, frozen=True):
    """A score that looks at a node and the pod's traits alone: its points hold until the node changes."""

    points: Callable[[Cycle, Alike], int]
    normal: Callable[[list[int]], list[int]] = list
    """Points brought to the range from 0 to 100."""
    asked: Callable[[Traits], bool] = lambda traits: True
