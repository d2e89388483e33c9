"""The one precedence rule: what was said nearest to the user wins, field by field.

Claim over class, class over cloud provider, cloud provider over profile. Saying ``false``, ``0`` or an empty list is
saying something. Collections with a natural key (routes, neighbours, ethtool names) are merged by that key; a list of
addresses is one field. Ways to get an address exclude each other, so the nearer one silences the farther ones; settings
of a kind of child are dropped where the type that was settled on is another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from dranet.model.netconfig import (
    DHCP,
    IPVLAN,
    MACVLAN,
    UNNUMBERED,
    Ethtool,
    Interface,
    Ipvlan,
    Macvlan,
    NetworkConfig,
    VirtualFunction,
    Vrf,
)

T = TypeVar("T")

_KEYS: dict[str, Callable[[Any], Hashable]] = {
    "routes": lambda route: (route.destination, route.table or 0),
    "neighbors": lambda neighbor: neighbor.destination,
    "rules": lambda rule: (rule.priority, rule.source, rule.destination, rule.table),
}


def merge(*layers: NetworkConfig) -> NetworkConfig:
    """Merge configs, the nearest to the user first."""
    result = NetworkConfig()
    for layer in layers:
        result = _overlay(result, _without_conflict(result, layer))
    return _without_other_types(result)


def _without_conflict(near: NetworkConfig, far: NetworkConfig) -> NetworkConfig:
    if far.interface is UNSET or near.interface is UNSET:
        return far
    changes: dict[str, Any] = {}
    if near.interface.addresses:
        changes["dhcp"] = UNSET
        if far.interface.addressing in (DHCP, UNNUMBERED):
            changes["addressing"] = UNSET
    if near.interface.uses_dhcp or near.interface.addressing == UNNUMBERED:
        changes["addresses"] = UNSET
    if near.interface.addressing is not UNSET:
        changes["dhcp"] = UNSET
    if near.interface.dhcp is True:
        changes["addressing"] = UNSET
    return msgspec.structs.replace(far, interface=msgspec.structs.replace(far.interface, **changes))


def _without_other_types(config: NetworkConfig) -> NetworkConfig:
    """A farther layer may have described a child of a kind that a nearer one did not want."""
    if config.interface is UNSET:
        return config
    blocks = (("ipvlan", IPVLAN), ("macvlan", MACVLAN))
    gone = {block: UNSET for block, kind in blocks if config.interface.type != kind}
    return msgspec.structs.replace(config, interface=msgspec.structs.replace(config.interface, **gone))


def _overlay(near: Any, far: Any) -> Any:
    """``near`` with what only ``far`` says."""
    values = {name: _field(name, getattr(near, name), getattr(far, name)) for name in near.__struct_fields__}
    return type(near)(**values)


def _field(name: str, near: Any, far: Any) -> Any:
    if near is UNSET or far is UNSET:
        return far if near is UNSET else near
    if isinstance(near, Interface | Ethtool | Vrf | Ipvlan | Macvlan | VirtualFunction):
        return _overlay(near, far)
    if isinstance(near, dict):
        return {**far, **near}
    if name in _KEYS:
        return _by_key(_KEYS[name], near, far) if near else near
    return near


def _by_key(key: Callable[[T], Hashable], near: Iterable[T], far: Iterable[T]) -> list[T]:
    return list({**{key(item): item for item in far}, **{key(item): item for item in near}}.values())
