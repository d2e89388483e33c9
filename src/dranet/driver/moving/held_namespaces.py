"""Network namespaces with cards in them, held open.

A runtime may remove a namespace without telling us (containerd forgets to after its own restart, CRI-O tells too late);
held, it lives on until the cards are out. A virtual card would die with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dranet.driver.namespaces import PodNamespace


class HeldNamespaces:
    """Open namespaces by the path the runtime gave."""

    def __init__(self) -> None:
        self._held: dict[str, PodNamespace] = {}

    def hold(self, netns: str) -> PodNamespace:
        """Open it and keep it open; raises NamespaceGone where it is gone."""
        if netns not in self._held:
            self._held[netns] = PodNamespace.open(netns)
        return self._held[netns]

    @contextlib.contextmanager
    def visit(self, netns: str) -> Iterator[PodNamespace]:
        """The one we hold, else by its path, for now."""
        if netns in self._held:
            yield self._held[netns]
        else:
            with PodNamespace.open(netns) as pod:
                yield pod

    def drop(self, netns: str) -> None:
        """Hold it no longer."""
        if netns in self._held:
            self._held.pop(netns).close()

    def close(self) -> None:
        while self._held:
            self._held.popitem()[1].close()
