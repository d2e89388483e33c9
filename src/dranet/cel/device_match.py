"""CEL over one device, `device.attributes["dra.net"].rdma`, as in the selectors of claims and DeviceClasses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dranet.cel import types as t
from dranet.cel.environment import Environment, Program
from dranet.cel.errors import CelCompileError, CelProgramError, Err
from dranet.cel.libraries.lists import KUBERNETES_LISTS
from dranet.cel.libraries.numbers import parse_semver, semver_library
from dranet.cel.libraries.optional import OPTIONALS
from dranet.cel.libraries.strings import REGEX, strings_library
from dranet.cel.values import MISSING, Map
from dranet.core.device import Version
from dranet.core.errors import InvalidInput
from dranet.core.names import DRIVER_NAME

_COST_LIMIT = 1_000_000
_NO_ATTRIBUTES = Map()


class Domains(Map):
    """Attributes by domain: an unknown domain reads as an empty map, yet is not a member."""

    __slots__ = ()

    def find(self, key: Any) -> Any:
        found = super().find(key)
        return _NO_ATTRIBUTES if found is MISSING else found


def device_matches(expression: str, attributes: Mapping[str, Any], driver: str = DRIVER_NAME) -> bool:
    """Whether the expression is true for a device; raises InvalidInput if it does not compile or has no answer."""
    value, _ = compile_match(expression).run({"device": _device(attributes, driver)})
    if value.__class__ is Err:
        raise InvalidInput(f"the CEL expression {expression!r} failed: {value.message}")
    return value is True


@lru_cache(maxsize=256)
def compile_match(expression: str) -> Program:
    """The compiled expression; raises InvalidInput if it does not compile to true or false."""
    try:
        program = _environment().compile(expression)
    except CelCompileError as error:
        where = f"line {error.line}, column {error.column}"
        raise InvalidInput(f"the CEL expression {expression!r} does not compile: {where}: {error.message}") from error
    except CelProgramError as error:
        raise InvalidInput(f"the CEL expression {expression!r} does not compile: {error.message}") from error
    if program.type not in (t.BOOL, t.DYN):
        raise InvalidInput(f"the CEL expression {expression!r} is of type {program.type}, not true or false")
    return program


@lru_cache(maxsize=1)
def _environment() -> Environment:
    fields = {"driver": t.STRING, "attributes": t.map_of(t.STRING, t.map_of(t.STRING, t.DYN))}
    return Environment(
        variables={"device": t.struct("kubernetes.DRADevice")},
        structs={"kubernetes.DRADevice": fields},
        libraries=[KUBERNETES_LISTS, REGEX, OPTIONALS, semver_library(normalize=True), strings_library(2)],
        optional_syntax=True,
        cost_limit=_COST_LIMIT,
    )


def _device(attributes: Mapping[str, Any], driver: str) -> Map:
    domains: dict[str, dict[str, Any]] = {}
    for key, value in attributes.items():
        domain, _, name = key.rpartition("/")
        domains.setdefault(domain or driver, {})[name] = _cel_value(value)
    found = Domains((domain, Map(values.items())) for domain, values in domains.items())
    return Map([("driver", driver), ("attributes", found)])


def _cel_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_cel_value(item) for item in value]
    return parse_semver(value) if isinstance(value, Version) else value
