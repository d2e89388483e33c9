"""Device: what one node offers, in the words of the resource API.

Attribute values are plain Python values. The API has four kinds of them, and lists of each; ``Version`` marks the one
kind that would otherwise look like a string.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

SLOTS = "slots"
"""The one counter of our counter sets."""


class Version(str):
    """A semantic version, which the API keeps apart from strings."""

    __slots__ = ()


Scalar = bool | int | str | Version
AttributeValue = Scalar | tuple[Scalar, ...]

_KINDS: tuple[tuple[type, str], ...] = ((bool, "bool"), (int, "int"), (Version, "version"), (str, "string"))


class Taint(msgspec.Struct, frozen=True, kw_only=True):
    """Why a device should not be used now, and how strongly."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def to_api(self) -> dict[str, str]:
        """The API demands the effect even where it is our default; an empty value is left out."""
        return {"key": self.key, **({"value": self.value} if self.value else {}), "effect": self.effect}


class SharePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How a capacity of a shared device is given out: what a claim gets that names none, and what it may ask for."""

    default: str
    least: str
    step: str = ""
    """Empty: any amount from `least` on."""

    def to_api(self) -> dict[str, Any]:
        """The policy as a slice has it."""
        step = {"step": self.step} if self.step else {}
        return {"default": self.default, "validRange": {"min": self.least, **step}}

    @classmethod
    def from_api(cls, raw: Mapping[str, Any]) -> SharePolicy:
        """Of a policy of ours."""
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
    """For a device that several claims may have a share of: the policy of each of its capacities. Empty: exclusive."""
    consumes: Mapping[str, int] = {}
    """For a device that excludes others: how many slots it takes of each counter set of its pool. A set has as many as
    its largest consumer takes, so that one has all of it or none."""

    def to_api(self) -> dict[str, Any]:
        """This device as it stands in a v1 ResourceSlice; keys sorted, so equal devices give equal bytes."""
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
        """Read a device of a v1 slice, or of a v1beta1 one (fields under ``basic``)."""
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
