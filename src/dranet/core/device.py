"""Device: one entry of a node's ResourceSlice, with its attributes, capacities, taints and counters.

Attribute values are plain Python values. The API has four kinds of them, and lists of each; ``Version`` distinguishes
versions from strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

SLOTS = "slots"
"""The name of the only counter in our counter sets."""


class Version(str):
    """A semantic version, which is a kind of its own in the API."""

    __slots__ = ()


_Scalar = bool | int | str | Version
AttributeValue = _Scalar | tuple[_Scalar, ...]

_KINDS: tuple[tuple[type, str], ...] = ((bool, "bool"), (int, "int"), (Version, "version"), (str, "string"))


class FaultKind(StrEnum):
    """Why a device cannot be used now. The value is the last part of the taint's key."""

    LINK_DOWN = "link-down"
    RDMA_PORT_DOWN = "rdma-port-down"
    DRIVER_UNBOUND = "driver-unbound"
    DEVICE_GONE = "device-gone"
    NETDEV_ELSEWHERE = "netdev-elsewhere"
    FOREIGN_LINK = "foreign-link"
    LINK_FLAPPING = "link-flapping"
    SLOW_LINK = "slow-link"
    PCIE_DEGRADED = "pcie-degraded"
    PORT_ERRORS = "port-errors"
    CARD_MISSING = "card-missing"
    MTU_MISMATCH = "mtu-mismatch"
    GID_MISSING = "gid-missing"
    FIRMWARE_MISMATCH = "firmware-mismatch"
    NO_GPUDIRECT = "no-gpudirect"


class Taint(msgspec.Struct, frozen=True, kw_only=True):
    """A reason not to use a device now, and its effect."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def to_api(self) -> dict[str, str]:
        """The API requires the effect; an empty value is omitted."""
        return {"key": self.key, **({"value": self.value} if self.value else {}), "effect": self.effect}


class SharePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The request policy of a shared device's capacity: default amount, and amounts that a claim may request."""

    default: str
    least: str
    step: str = ""
    """Empty if any amount of at least `least` is allowed."""

    def to_api(self) -> dict[str, Any]:
        step = {"step": self.step} if self.step else {}
        return {"default": self.default, "validRange": {"min": self.least, **step}}

    @classmethod
    def from_api(cls, raw: Mapping[str, Any]) -> SharePolicy:
        """Parse a policy that `to_api` wrote."""
        allowed = raw.get("validRange") or {}
        least = str(allowed.get("min", raw["default"]))
        return cls(default=str(raw["default"]), least=least, step=str(allowed.get("step", "")))


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One allocatable device with its attributes and capacities (quantities as text, such as ``400G``)."""

    name: str
    attributes: Mapping[str, Any] = {}
    capacity: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    shares: Mapping[str, SharePolicy] = {}
    """For a device that several claims can share: the policy of each capacity. Empty for an exclusive device."""
    consumes: Mapping[str, int] = {}
    """For a device that excludes others: how many slots it consumes of each counter set of its pool. A set has as many
    slots as its largest consumer needs, so that this consumer excludes all others."""

    def to_api(self) -> dict[str, Any]:
        """The device in the form of a v1 ResourceSlice. Keys are sorted, so equal devices give equal bytes."""
        out: dict[str, Any] = {"name": self.name}
        if self.attributes:
            out["attributes"] = {key: attribute_to_api(self.attributes[key]) for key in sorted(self.attributes)}
        if self.capacity:
            out["capacity"] = {key: self._capacity_to_api(key) for key in sorted(self.capacity)}
        if self.shares:
            out["allowMultipleAllocations"] = True
        if self.consumes:
            out["consumesCounters"] = [
                {"counterSet": name, "counters": {SLOTS: {"value": str(self.consumes[name])}}}
                for name in sorted(self.consumes)
            ]
        if self.taints:
            out["taints"] = [taint.to_api() for taint in self.taints]
        return out

    def _capacity_to_api(self, key: str) -> dict[str, Any]:
        policy = {"requestPolicy": self.shares[key].to_api()} if key in self.shares else {}
        return {"value": self.capacity[key], **policy}

    @classmethod
    def from_api(cls, raw: Mapping[str, Any]) -> Device:
        """Parse a device of a v1 or v1beta1 slice (v1beta1 has the fields under ``basic``)."""
        body = raw.get("basic") or raw
        return cls(
            name=raw["name"],
            attributes={key: attribute_from_api(value) for key, value in (body.get("attributes") or {}).items()},
            capacity={key: str(value["value"]) for key, value in (body.get("capacity") or {}).items()},
            taints=tuple(
                Taint(key=t["key"], value=t.get("value", ""), effect=t["effect"]) for t in body.get("taints") or ()
            ),
            shares=_shares(body.get("capacity") or {}) if body.get("allowMultipleAllocations") else {},
            consumes={
                entry["counterSet"]: int(entry["counters"][SLOTS]["value"])
                for entry in body.get("consumesCounters") or ()
                if SLOTS in entry["counters"]
            },
        )


def _shares(capacity: Mapping[str, Any]) -> dict[str, SharePolicy]:
    policies = {key: value.get("requestPolicy") or {} for key, value in capacity.items()}
    return {key: SharePolicy.from_api(policy) for key, policy in policies.items() if "default" in policy}


def attribute_kind(value: object) -> str:
    """The API's name for the kind of a value: bool, int, version, string, or the plural for a list."""
    if isinstance(value, tuple | list):
        return attribute_kind(value[0]) + "s" if value else "strings"
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    raise TypeError(f"{value!r} cannot be an attribute value: use bool, int, str, Version or a tuple of one of them")


def attribute_to_api(value: object) -> dict[str, Any]:
    """``True`` becomes ``{"bool": True}``, and so on."""
    kind = attribute_kind(value)
    if isinstance(value, tuple | list):
        return {kind: [str(item) if kind == "versions" else item for item in value]}
    return {kind: str(value) if kind == "version" else value}


def attribute_from_api(raw: Mapping[str, Any]) -> AttributeValue:
    """The inverse of :func:`attribute_to_api`."""
    (kind, value), *_ = raw.items()
    if kind == "version":
        return Version(value)
    if kind == "versions":
        return tuple(Version(item) for item in value)
    return tuple(value) if isinstance(value, list) else value
