"""Requests of a claim as the search uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dranet.core.quantity import Quantity, parse_quantity
from dranet.scheduler.allocation.devices import in_v1_shape

MAX_RESULTS = 32


class Fatal(Exception):
    """Ends the search with the scheduler's message: the pod is not scheduled in this cycle on any node."""


def claim_name(claim: Mapping[str, Any]) -> str:
    """`namespace/name`, as the scheduler writes it in errors."""
    meta = claim.get("metadata") or {}
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta.get("name", ""))


class Request:
    """A request, or one alternative of a `firstAvailable` request (then `parent` is its name)."""

    __slots__ = (
        "admin", "all", "all_devices", "capacity", "capacity_key", "claim", "class_", "class_name", "count",
        "derived", "has_admin", "index", "mode", "name", "parent", "selectors", "selectors_key", "tolerations",
    )  # fmt: skip

    def __init__(
        self, claim: int, index: tuple[int, int], raw: Mapping[str, Any], name: str, parent: str | None
    ) -> None:
        self.claim = claim
        self.index = index
        self.name = name
        self.parent = parent
        self.class_name: str = raw.get("deviceClassName") or ""
        self.mode: str = raw.get("allocationMode") or "ExactCount"
        self.all = self.mode == "All"
        self.count: int = raw.get("count") or (1 if self.mode == "ExactCount" else 0)
        self.has_admin = parent is None and raw.get("adminAccess") is not None
        self.derived = {one["name"]: one["expression"] for one in raw.get("derivedAttributes") or ()}
        """Expressions of derived attributes by name."""
        self.admin = parent is None and bool(raw.get("adminAccess"))
        self.selectors: Sequence[Mapping[str, Any]] = raw.get("selectors") or ()
        self.tolerations: Sequence[Mapping[str, Any]] = raw.get("tolerations") or ()
        self.capacity = _capacity(raw)
        self.capacity_key = tuple(sorted((name, str(value)) for name, value in (self.capacity or {}).items()))
        self.class_: Mapping[str, Any] | None = None
        self.selectors_key: Any = None
        self.all_devices: list[int] = []

    @property
    def base(self) -> str:
        """The request's name without a subrequest, as constraints refer to it."""
        return self.name if self.parent is None else self.parent

    @property
    def alternative(self) -> str:
        return "" if self.parent is None else self.name

    @property
    def full_name(self) -> str:
        return self.name if self.parent is None else f"{self.parent}/{self.name}"


def _capacity(raw: Mapping[str, Any]) -> dict[str, Quantity] | None:
    capacity = raw.get("capacity")
    if capacity is None:
        return None
    return {name: parse_quantity(str(value)) for name, value in (capacity.get("requests") or {}).items()}


def read_requests(claim_index: int, claim: Mapping[str, Any]) -> list[list[Request]]:
    """For each request its alternatives; a plain request has one. Raises InvalidInput if it is not in v1 shape."""
    with in_v1_shape("ResourceClaim", claim):
        return _read_requests(claim_index, claim)


def _read_requests(claim_index: int, claim: Mapping[str, Any]) -> list[list[Request]]:
    found: list[list[Request]] = []
    for index, raw in enumerate((claim.get("spec") or {}).get("devices", {}).get("requests") or ()):
        parent, alternatives = raw["name"], raw.get("firstAvailable") or ()
        found.append(
            [Request(claim_index, (index, sub), one, one["name"], parent) for sub, one in enumerate(alternatives)]
            or [Request(claim_index, (index, 0), raw.get("exactly") or {}, parent, None)]
        )
    return found
