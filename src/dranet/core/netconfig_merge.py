"""Merging of NetworkConfigs. The claim overrides the class, the class the cloud provider, and that the profile.

The rule holds field by field; ``false``, ``0`` and an empty list are values that override. Collections with a natural
key (routes, neighbours, ethtool names) are merged by that key; a list of addresses is one field. Addressing modes
exclude each other, so a higher layer's mode removes a lower layer's. The ipvlan and macvlan blocks are dropped unless
they fit the merged type.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from dranet.core.names import DRIVER_NAME
from dranet.core.netconfig import (
    DHCP,
    IPVLAN,
    MACVLAN,
    UNNUMBERED,
    NetworkConfig,
)
from dranet.core.netconfig_parse import parse_leniently

_T = TypeVar("_T")

_KEYS: dict[str, Callable[[Any], Hashable]] = {
    "routes": lambda route: (route.destination, route.table or 0),
    "neighbors": lambda neighbor: neighbor.destination,
    "rules": lambda rule: (rule.priority, rule.source, rule.destination, rule.table),
}


def merge(*layers: NetworkConfig) -> NetworkConfig:
    """Merge configs; the first has the highest precedence."""
    result = NetworkConfig()
    for layer in layers:
        result = _overlay(result, _without_conflict(result, layer))
    return _without_other_types(result)


def _without_conflict(high: NetworkConfig, low: NetworkConfig) -> NetworkConfig:
    if low.interface is UNSET or high.interface is UNSET:
        return low
    changes: dict[str, Any] = {}
    if high.interface.addresses:
        changes["dhcp"] = UNSET
        if low.interface.addressing in (DHCP, UNNUMBERED):
            changes["addressing"] = UNSET
    if high.interface.uses_dhcp or high.interface.addressing == UNNUMBERED:
        changes["addresses"] = UNSET
    if high.interface.addressing is not UNSET:
        changes["dhcp"] = UNSET
    if high.interface.dhcp is True:
        changes["addressing"] = UNSET
    return msgspec.structs.replace(low, interface=msgspec.structs.replace(low.interface, **changes))


def _without_other_types(config: NetworkConfig) -> NetworkConfig:
    """Drop the block of a child type that a higher layer replaced by another type."""
    if config.interface is UNSET:
        return config
    blocks = (("ipvlan", IPVLAN), ("macvlan", MACVLAN))
    dropped = {block: UNSET for block, kind in blocks if config.interface.type != kind}
    return msgspec.structs.replace(config, interface=msgspec.structs.replace(config.interface, **dropped))


def _overlay(high: Any, low: Any) -> Any:
    """``high``, and the fields that only ``low`` sets."""
    values = {name: _field(name, getattr(high, name), getattr(low, name)) for name in high.__struct_fields__}
    return type(high)(**values)


def _field(name: str, high: Any, low: Any) -> Any:
    if high is UNSET or low is UNSET:
        return low if high is UNSET else high
    if isinstance(high, msgspec.Struct):
        return _overlay(high, low)
    if isinstance(high, dict):
        return {**low, **high}
    if name in _KEYS:
        return _by_key(_KEYS[name], high, low) if high else high
    return high


def _by_key(key: Callable[[_T], Hashable], high: Iterable[_T], low: Iterable[_T]) -> list[_T]:
    return list({**{key(item): item for item in low}, **{key(item): item for item in high}}.values())


def supports_multiple_pods(entries: Iterable[Mapping[str, Any]]) -> bool:
    """Whether several pods can use a claim with these config entries (the claim's first, then the class's) at once.

    Entries for single requests are ignored: the answer is no then, even if the driver would accept the pods.
    """
    config = NetworkConfig()
    for entry in entries:
        opaque = entry.get("opaque") or {}
        if opaque.get("driver") == DRIVER_NAME and not entry.get("requests"):
            config = merge(config, parse_leniently(opaque.get("parameters") or None)[0])
    return config.link.supports_multiple_pods and not config.profile
