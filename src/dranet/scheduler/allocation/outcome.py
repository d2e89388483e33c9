"""The three outcomes of an allocation attempt."""

from __future__ import annotations

from typing import Any

import msgspec

NO_FIT = "cannot allocate all claims"
INVALID_POOLS = "invalid resource pools were encountered"


class Allocation(msgspec.Struct, frozen=True):
    """One v1 AllocationResult per claim, in the order of the claims."""

    results: list[dict[str, Any]]
    steps: int

    @property
    def devices(self) -> list[dict[str, Any]]:
        """All device results of all claims, as `AllocatedState.add` takes them."""
        return [device for result in self.results for device in result["devices"].get("results") or ()]


class NoFit(msgspec.Struct, frozen=True):
    """The claims do not fit on this node."""

    steps: int
    message: str = NO_FIT


class AllocationError(msgspec.Struct, frozen=True):
    """The scheduler reports an error. `kind`: "fatal" ends the pod's scheduling cycle, "node" affects this node only,
    "timeout" means that the search exceeds the scheduler's ten seconds."""

    kind: str
    message: str
    steps: int = 0


Outcome = Allocation | NoFit | AllocationError
