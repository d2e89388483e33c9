"""Device: what one node offers, in the words of the resource API.

Attribute values are plain Python values. The API has four kinds of them, and lists of each; ``Version`` marks the one
kind that would otherwise look like a string.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


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


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One allocatable device with its attributes and capacities (quantities as text, such as ``400G``)."""

    name: str
    attributes: Mapping[str, Any] = {}
    capacity: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()

    def to_api(self) -> dict[str, Any]:
        """This device as it stands in a v1 ResourceSlice; keys sorted, so equal devices give equal bytes."""
        out: dict[str, Any] = {"name": self.name}
        if self.attributes:
            out["attributes"] = {key: attribute_to_api(self.attributes[key]) for key in sorted(self.attributes)}
        if self.capacity:
            out["capacity"] = {key: {"value": self.capacity[key]} for key in sorted(self.capacity)}
        if self.taints:
            out["taints"] = [taint.to_api() for taint in self.taints]
        return out

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
        )


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
