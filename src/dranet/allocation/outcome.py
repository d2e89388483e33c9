"""What an attempt to allocate comes to."""

from __future__ import annotations

from typing import Any

import msgspec

NO_FIT = "cannot allocate all claims"
INVALID_POOLS = "invalid resource pools were encountered"


class Allocation(msgspec.Struct, frozen=True):
    """An answer: one v1 AllocationResult per claim, in the order of the claims."""

    results: list[dict[str, Any]]
    steps: int

    @property
    def devices(self) -> list[dict[str, Any]]:
        """All device results of all claims, as `AllocatedState.add` takes them."""
        return [device for result in self.results for device in result["devices"].get("results") or ()]


class NoFit(msgspec.Struct, frozen=True):
    """The node has no answer; other nodes may."""

    steps: int
    message: str = NO_FIT


class AllocationError(msgspec.Struct, frozen=True):
    """The scheduler reports an error. `kind`: "fatal" ends the pod's round on all nodes, "node" only this node's,
    "timeout" means the search has no end within the scheduler's ten seconds."""

    kind: str
    message: str
    steps: int = 0


Outcome = Allocation | NoFit | AllocationError
