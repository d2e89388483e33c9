"""What the scheduler makes of a pod: the nodes that could take it and the best of them, or why there is none."""

from __future__ import annotations

import msgspec

from dranet.scheduling.cycle import Rejection
from dranet.scheduling.nodes import Alike
from dranet.scheduling.pods import Pod, Traits


class Place(msgspec.Struct, frozen=True):
    """Nodes that could take the pod, all with the same points."""

    alike: Alike
    points: int

    @property
    def nodes(self) -> list[str]:
        """Their names."""
        return list(self.alike.names)


class Preemption(msgspec.Struct, frozen=True):
    """A node that the pod would fit on if others left, and which."""

    node: str
    victims: tuple[Traits, ...]


class Verdict(msgspec.Struct, frozen=True):
    """The whole answer about one pod; its nodes are those of the moment, until the next pod is placed."""

    pod: Pod
    places: tuple[Place, ...] = ()
    rejected: tuple[tuple[Alike, Rejection], ...] = ()
    """Why the other nodes do not take it, each by the first reason found."""
    message: str = ""
    """What the scheduler writes into the pod's status; empty where the pod gets a node."""
    messages: tuple[str, ...] = ()
    """All that it may write, where that depends on which node it happens to look at first."""
    preemptions: tuple[Preemption, ...] = ()
    """Where others would have to leave; it takes one of these nodes, and the message says nothing of it."""
    notes: tuple[str, ...] = ()
    """What was not considered."""

    @property
    def best(self) -> tuple[Place, ...]:
        """The places with the most points: the scheduler takes any of these nodes."""
        most = max((place.points for place in self.places), default=0)
        return tuple(place for place in self.places if place.points == most)

    @property
    def best_nodes(self) -> list[str]:
        """Names of all best nodes."""
        return [name for place in self.best for name in place.nodes]
