"""Strict parser of NetworkConfig that reports all problems at once.

With one error per attempt, a user would need a pod restart for each. So the parser does not stop at the first problem,
gives the JSON path of each, and suggests the nearest name for a misspelt one.
"""

from __future__ import annotations

import ipaddress
import json
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from dranet.core.errors import InvalidInput, Problem, nearest
from dranet.core.netconfig import (
    CHILD_TYPES,
    DHCP,
    IPV6_MINIMUM_MTU,
    IPVLAN,
    MACVLAN,
    PASSTHROUGH,
    SCOPE_LINK,
    SLAAC,
    UNNUMBERED,
    Field,
    Interface,
    NetworkConfig,
    PerDevice,
    Route,
    Rule,
)

_NAMES = {str: "a string", int: "a whole number", bool: "true or false", dict: "an object", list: "a list"}


_NOT_BY_DEVICE = ("perDevice", "rails", "profile")
"""Fields that are not allowed inside perDevice: they do not differ by device."""
WORDS = ("rail", "ifName", "numaNode", "rdmaDevice", "ordinal")
"""Words in the texts of perDevice, besides the names of attributes such as {dra.net/mtu}."""
WORD = re.compile(r"\{([^{}]*)\}")


class FilledText(str):
    """Text in which words were replaced: it may also be a number."""

    __slots__ = ()


class _Template(str):
    """Text with words that have no value yet; only the words are checked."""

    __slots__ = ()


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its duplicate keys."""


class _FieldInfo(typing.NamedTuple):
    """One field of the schema, resolved from its annotation."""

    wire_name: str
    kind: Any
    field: Field


@cache
def schema(struct: type[msgspec.Struct]) -> dict[str, _FieldInfo]:
    """The fields of a struct by attribute name."""
    hints = typing.get_type_hints(struct, include_extras=True)
    wire = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
    return {name: _field_info(wire[name], hints[name]) for name in wire}


def _field_info(wire_name: str, hint: Any) -> _FieldInfo:
    inner, *extras = typing.get_args(hint)
    (field,) = (extra for extra in extras if isinstance(extra, Field))
    if typing.get_origin(inner) in (types.UnionType, typing.Union):
        (inner,) = (part for part in typing.get_args(inner) if part is not UnsetType)
    return _FieldInfo(wire_name, inner, field)


def parse(raw: bytes | str | Mapping[str, Any] | None) -> NetworkConfig:
    """Parse and validate; raises InvalidInput with all problems. Empty input is an empty config."""
    config, problems = parse_leniently(raw)
    if problems:
        raise InvalidInput(problems)
    return config


def parse_leniently(raw: bytes | str | Mapping[str, Any] | None) -> tuple[NetworkConfig, list[Problem]]:
    """Like :func:`parse`, but returns the valid fields together with the problems, for lint."""
    if raw is None or raw == b"" or raw == "":
        return NetworkConfig(), []
    try:
        value = json.loads(raw, object_pairs_hook=_Pairs) if isinstance(raw, bytes | str) else raw
    except (ValueError, RecursionError) as error:
        return NetworkConfig(), [Problem("", f"not valid JSON: {error}")]
    problems: list[Problem] = []
    read = _struct(NetworkConfig, value, "", problems)
    config = read if isinstance(read, NetworkConfig) else NetworkConfig()
    wrong = {problem.path.partition("[")[0] for problem in problems}
    return config, problems + list(_cross_checks(config, wrong))


def _value(kind: Any, field: Field, value: Any, path: str, problems: list[Problem]) -> Any:
    origin = typing.get_origin(kind)
    if origin is list:
        return _list(typing.get_args(kind)[0], field, value, path, problems)
    if origin is dict:
        lists = typing.get_args(kind)[1] is not bool
        return _networks(field, value, path, problems) if lists else _flags(value, path, problems)
    if kind is PerDevice:
        return _per_device(value, path, problems)
    if issubclass(kind, msgspec.Struct):
        return _struct(kind, value, path, problems)
    if isinstance(value, _Template):
        return UNSET
    if isinstance(value, FilledText):
        value = int(value) if kind is int and value.isdecimal() else str(value)
    if type(value) is not kind:
        problems.append(Problem(path, f"must be {_NAMES[kind]}, not {_shown(value)}"))
        return UNSET
    problem = field.check(value) if field.check else None
    if problem:
        problems.append(Problem(path, problem))
        return UNSET
    return value


def _list(kind: Any, field: Field, value: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(value, list) or isinstance(value, _Pairs):
        problems.append(Problem(path, f"must be a list, not {_shown(value)}"))
        return UNSET
    read = [_value(kind, field, item, f"{path}[{i}]", problems) for i, item in enumerate(value)]
    return [item for item in read if item is not UNSET]


def _flags(value: Any, path: str, problems: list[Problem]) -> Any:
    pairs = _pairs(value, path, problems)
    if pairs is None:
        return UNSET
    for name, flag in pairs.items():
        if not isinstance(flag, bool):
            problems.append(Problem(f"{path}.{name}", f"must be true or false, not {_shown(flag)}"))
    return {name: flag for name, flag in pairs.items() if isinstance(flag, bool)}


def _networks(field: Field, value: Any, path: str, problems: list[Problem]) -> Any:
    pairs = _pairs(value, path, problems)
    if pairs is None:
        return UNSET
    return {name: _list(str, field, item, f"{path}.{name}", problems) or [] for name, item in pairs.items()}


def _per_device(value: Any, path: str, problems: list[Problem]) -> Any:
    """An entry as it was written, after a check of everything that does not depend on the device."""
    pairs = _pairs(value, path, problems)
    if pairs is None:
        return UNSET
    match = pairs.pop("match", "")
    if not isinstance(match, str):
        problems.append(Problem(f"{path}.match", f"must be a CEL expression, not {_shown(match)}"))
        match = ""
    refused = [name for name in _NOT_BY_DEVICE if name in pairs]
    problems += [
        Problem(f"{path}.{name}", "cannot be set in perDevice; write it next to perDevice") for name in refused
    ]
    values = {name: plain(item) for name, item in pairs.items() if name not in refused}
    problems += _word_problems(values, path)
    _struct(NetworkConfig, _with_templates(values), path, problems)
    return PerDevice(match, values)


def plain(value: Any) -> Any:
    """Parsed JSON as dictionaries and lists."""
    if isinstance(value, _Pairs | Mapping):
        return {key: plain(item) for key, item in (value.items() if isinstance(value, Mapping) else value)}
    return [plain(item) for item in value] if isinstance(value, list) else value


def _with_templates(value: Any) -> Any:
    return map_texts(value, lambda text: _Template(text) if WORD.search(text) else text)


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """The same value with every text changed; keys stay."""
    if isinstance(value, dict):
        return {key: map_texts(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [map_texts(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def _word_problems(value: Any, path: str) -> Iterator[Problem]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _word_problems(item, f"{path}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _word_problems(item, f"{path}[{i}]")
    elif isinstance(value, str):
        for word in WORD.findall(value):
            if word not in WORDS and "/" not in word:
                near = nearest(word, WORDS)
                hint = f"did you mean {{{near}}}?" if near else f"known words: {', '.join(WORDS)}, {{DOMAIN/NAME}}"
                yield Problem(path, f"unknown word {{{word}}}; {hint}")


def _struct(struct: type[msgspec.Struct], value: Any, path: str, problems: list[Problem]) -> Any:
    pairs = _pairs(value, path, problems)
    if pairs is None:
        return UNSET
    by_wire = {info.wire_name: (name, info) for name, info in schema(struct).items()}
    read: dict[str, Any] = {}
    for key, item in pairs.items():
        where = f"{path}.{key}" if path else key
        if key not in by_wire:
            problems.append(Problem(where, _unknown(key, by_wire)))
            continue
        name, info = by_wire[key]
        # The reference driver is written in Go, where an empty string means that a field is absent.
        if item is not None and not (item == "" and info.kind is str):
            read[name] = _value(info.kind, info.field, item, where, problems)
    missing = [i.wire_name for n, i in schema(struct).items() if i.field.required and n not in read]
    problems += [Problem(f"{path}.{name}" if path else name, "is required") for name in missing]
    problems += _ITEM_CHECKS.get(struct, _no_checks)(path, read)
    if missing or any(i.field.required and read[n] is UNSET for n, i in schema(struct).items()):
        return UNSET
    return struct(**read)


def _pairs(value: Any, path: str, problems: list[Problem]) -> dict[str, Any] | None:
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, _Pairs):
        problems.append(Problem(path, f"must be an object, not {_shown(value)}"))
        return None
    seen: dict[str, Any] = {}
    for key, item in value:
        if key in seen:
            problems.append(Problem(f"{path}.{key}" if path else key, "is given twice"))
        seen[key] = item
    return seen


def _unknown(key: str, known: Mapping[str, Any]) -> str:
    near = nearest(key, known)
    hint = f"did you mean {near!r}?" if near else f"known fields: {', '.join(sorted(known))}"
    return f"unknown field; {hint}"


def _shown(value: Any) -> str:
    if isinstance(value, _Pairs | Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return json.dumps(value) if isinstance(value, str | int | float | bool) or value is None else repr(value)


def administrator_fields(config: msgspec.Struct, path: str = "") -> Iterator[str]:
    """The paths of the present fields that a claim may not set. A marked block is reported by its own path."""
    for name, info in schema(type(config)).items():
        value = getattr(config, name)
        if value is UNSET:
            continue
        if info.field.administrator:
            yield f"{path}{info.wire_name}"
        elif isinstance(value, msgspec.Struct):
            yield from administrator_fields(value, f"{path}{info.wire_name}.")


def check_merged(config: NetworkConfig) -> Iterator[Problem]:
    """Checks across fields, for a merged config whose layers were each valid alone."""
    for name, items in (("routes", config.routes or []), ("rules", config.rules or [])):
        for i, item in enumerate(items):
            fields = ((field, getattr(item, field)) for field in item.__struct_fields__)
            present = {field: value for field, value in fields if value is not UNSET}
            yield from _ITEM_CHECKS[type(item)](f"{name}[{i}]", present)
    yield from _cross_checks(config, set())


def _cross_checks(config: NetworkConfig, wrong: set[str]) -> Iterator[Problem]:
    """``wrong`` are paths of invalid values, which count as present."""
    link = config.link
    yield from _addressing_checks(link, bool(link.addresses) or "interface.addresses" in wrong)
    yield from _type_checks(link)
    yield from _function_checks(config)
    if config.rail_routing is not UNSET and (link.uses_dhcp or link.addressing in (SLAAC, UNNUMBERED)):
        yield Problem("railRouting", "needs addresses that are known before the pod starts: use addressing: Static")
    vrf = link.vrf is not UNSET or not wrong.isdisjoint(("interface.vrf", "interface.vrf.name", "interface.vrf.table"))
    if vrf and (config.rules or "rules" in wrong):
        yield Problem("rules", "cannot be used with interface.vrf: the kernel adds the rule of a VRF itself")


def _addressing_checks(link: Interface, has_addresses: bool) -> Iterator[Problem]:
    how = "interface.dhcp" if link.dhcp is True else "interface.addressing"
    if link.dhcp is True and link.addressing not in (UNSET, DHCP):
        yield Problem("interface.dhcp", f"is the older form of addressing: DHCP and conflicts with {link.addressing}")
    elif link.uses_dhcp and has_addresses:
        yield Problem(how, "DHCP cannot be used together with interface.addresses; choose one")
    if link.addressing == UNNUMBERED and not link.is_child:
        yield Problem("interface.addressing", f"Unnumbered is only for children: type {' or '.join(CHILD_TYPES)}")
    if link.addressing == UNNUMBERED and has_addresses:
        yield Problem("interface.addressing", "Unnumbered cannot be used together with interface.addresses; choose one")
    if link.addressing == SLAAC and link.accept_ra == 0:
        yield Problem("interface.acceptRA", "0 ignores router advertisements, which addressing: SLAAC needs")
    if link.addressing == SLAAC and any(":" in address for address in link.addresses or ()):
        yield Problem("interface.addresses", "has IPv6 addresses, which the router assigns with addressing: SLAAC")
    needs_ipv6 = link.addressing == SLAAC or link.accept_ra is not UNSET
    if needs_ipv6 and link.mtu is not UNSET and link.mtu < IPV6_MINIMUM_MTU:
        yield Problem("interface.mtu", f"IPv6 needs an MTU of at least {IPV6_MINIMUM_MTU}, not {link.mtu}")


def _type_checks(link: Interface) -> Iterator[Problem]:
    for block, kind in (("ipvlan", IPVLAN), ("macvlan", MACVLAN)):
        if getattr(link, block) is not UNSET and link.type != kind:
            yield Problem(f"interface.{block}", f"requires type: {kind}, not {link.type or PASSTHROUGH}")
    if link.type != IPVLAN:
        return
    if link.hardware_addr is not UNSET:
        yield Problem("interface.hardwareAddr", "an IPVLAN child has its parent's address; use Macvlan")
    if link.uses_dhcp:
        how = "interface.dhcp" if link.dhcp is True else "interface.addressing"
        yield Problem(how, "DHCP is not supported for IPVLAN children, which share one hardware address; use Macvlan")


def _function_checks(config: NetworkConfig) -> Iterator[Problem]:
    if config.vf is UNSET:
        return
    low, high = config.vf.min_rate or 0, config.vf.max_rate or 0
    if high and low > high:
        yield Problem("vf.minRate", f"{low} is more than vf.maxRate, which is {high}")
    if config.vf.vlan_priority and not config.vf.vlan:
        yield Problem("vf.vlanPriority", "requires vf.vlan")


def _route_checks(path: str, present: Mapping[str, Any]) -> Iterator[Problem]:
    """``present`` contains an invalid field as UNSET."""
    if "gateway" not in present and present.get("scope", 0) not in (SCOPE_LINK, UNSET):
        yield Problem(f"{path}.gateway", "is required unless scope is 253 (link)")
    destination = present.get("destination", UNSET)
    for name in ("gateway", "source"):
        value = present.get(name, UNSET)
        if UNSET not in (value, destination) and _family(value) != _family(destination):
            yield Problem(f"{path}.{name}", f"{value} is not of the same family as {destination}")


def _rule_checks(path: str, present: Mapping[str, Any]) -> Iterator[Problem]:
    families = {_family(present[name]) for name in ("source", "destination") if present.get(name, UNSET) is not UNSET}
    if len(families) > 1:
        yield Problem(path, "source and destination must be of one family, IPv4 or IPv6")


def _no_checks(_path: str, _present: Mapping[str, Any]) -> Iterator[Problem]:
    return iter(())


_ITEM_CHECKS: Mapping[type[msgspec.Struct], Callable[[str, Mapping[str, Any]], Iterator[Problem]]] = {
    Route: _route_checks,
    Rule: _rule_checks,
}


def _family(text: str) -> int:
    return ipaddress.ip_interface(text).version
