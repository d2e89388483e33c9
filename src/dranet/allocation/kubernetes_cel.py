"""The CEL environment Kubernetes gives to device selectors, per version.

There are two at any time: stored expressions (what the scheduler compiles) may use everything the release knows, new
ones (what the API server accepts) only what the previous minor release knew too, so that a rollback cannot strand them.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from dranet.cel import Environment, Library
from dranet.cel import types as t
from dranet.cel.errors import Err
from dranet.cel.estimate.sizes import Range
from dranet.cel.estimate.standard_prices import Path
from dranet.cel.functions import Function, Overload
from dranet.cel.libraries.formats import AUTHORIZATION, AUTHORIZATION_SELECTORS, NAMED_FORMATS
from dranet.cel.libraries.formatting import validate_formats
from dranet.cel.libraries.lists import KUBERNETES_LISTS, LIST_COSTS, LISTS, SET_COSTS, SETS
from dranet.cel.libraries.literal_checks import LITERAL_VALIDATORS
from dranet.cel.libraries.network import CIDRS, IPS
from dranet.cel.libraries.numbers import QUANTITIES, QUANTITY, semver_library
from dranet.cel.libraries.optional import BINDINGS, OPTIONALS, TWO_VARIABLES
from dranet.cel.libraries.strings import REGEX, strings_library
from dranet.cel.libraries.urls import URLS
from dranet.cel.run.cost import CallCost, RuntimeCosts
from dranet.cel.values import equal
from dranet.model.errors import DranetError

COST_LIMIT = 1_000_000
MAX_LENGTH = 10_240
OLDEST, NEWEST = (1, 32), (1, 37)
_ATTRIBUTES_PER_DEVICE, _DOMAIN, _ID, _DRIVER, _VALUE, _LIST_VALUES = 32, 63, 32, 63, 64, 48


class UnknownVersion(DranetError):
    """A Kubernetes version whose rules are not known."""


def parse_version(text: str) -> tuple[int, int]:
    """`1.36`, `v1.36.4` → (1, 36)."""
    match = re.match(r"v?(\d+)\.(\d+)", text)
    found = (int(match.group(1)), int(match.group(2))) if match else (0, 0)
    if not OLDEST <= found <= NEWEST:
        raise UnknownVersion(
            f"Kubernetes {text!r} is not supported: use a version from"
            f" {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
        )
    return found


class CelFeatures(msgspec.Struct, frozen=True):
    """Feature gates that change the environment."""

    consumable_capacity: bool = True
    list_attributes: bool = False


def _includes(target: object, wanted: object) -> object:
    if target.__class__ is not list:
        return equal(target, wanted) is True
    assert isinstance(target, list)
    for index, item in enumerate(target):
        if index >= _LIST_VALUES:
            return Err(f"'includes' function cannot be applied to lists longer than {_LIST_VALUES} values")
        if equal(item, wanted) is True:
            return True
    return False


_INCLUDES = Library(
    "dra.includes",
    functions=(
        Function("includes", (Overload("dra_includes_dyn_dyn", (t.DYN, t.DYN), t.BOOL, _includes, member=True),)),
    ),
)

# (introduced in, removed in, library)
_LIBRARIES: tuple[tuple[tuple[int, int], tuple[int, int] | None, Library], ...] = (
    ((1, 0), None, URLS),
    ((1, 0), None, REGEX),
    ((1, 0), None, KUBERNETES_LISTS),
    ((1, 27), None, AUTHORIZATION),
    ((1, 28), None, OPTIONALS),
    ((1, 28), None, QUANTITIES),
    ((1, 0), (1, 29), strings_library(0)),
    ((1, 29), None, strings_library(2)),
    ((1, 29), None, SETS),
    ((1, 30), None, IPS),
    ((1, 30), None, CIDRS),
    ((1, 31), None, NAMED_FORMATS),
    ((1, 31), None, AUTHORIZATION_SELECTORS),
    ((1, 31), None, BINDINGS),
    ((1, 31), (1, 33), semver_library(normalize=False)),
    ((1, 32), None, TWO_VARIABLES),
    ((1, 33), None, semver_library(normalize=True)),
    ((1, 34), None, LISTS),
)
_COSTS: tuple[tuple[tuple[int, int], dict[str, CallCost]], ...] = (((1, 29), SET_COSTS), ((1, 34), LIST_COSTS))


def _available(version: tuple[int, int], *, stored: bool) -> tuple[int, int]:
    """The release whose libraries may be used."""
    return version if stored else (version[0], version[1] - 1)


@lru_cache(maxsize=32)
def selector_environment(version: tuple[int, int], features: CelFeatures, *, stored: bool) -> Environment:
    """The environment for device selectors of a Kubernetes release."""
    usable = _available(version, stored=stored)
    libraries = [
        library
        for introduced, removed, library in _LIBRARIES
        if introduced <= usable and (removed is None or usable < removed)
    ]
    if usable >= (1, 36) and (stored or features.list_attributes):
        libraries.append(_INCLUDES)
    fields = {
        "driver": t.STRING,
        "attributes": t.map_of(t.STRING, t.map_of(t.STRING, t.DYN if features.list_attributes else t.ANY)),
        "capacity": t.map_of(t.STRING, t.map_of(t.STRING, QUANTITY)),
    }
    if usable >= (1, 34) and (stored or features.consumable_capacity):
        fields["allowMultipleAllocations"] = t.BOOL
    costs = {name: cost for introduced, table in _COSTS if introduced <= usable for name, cost in table.items()}
    return Environment(
        variables={"device": t.struct("kubernetes.DRADevice")},
        structs={"kubernetes.DRADevice": fields},
        libraries=libraries,
        optional_syntax=True,
        validators=(*LITERAL_VALIDATORS, validate_formats),
        costs=RuntimeCosts(overloads=costs),
        cost_limit=COST_LIMIT,
        fold=True,
    )


class _Declared(msgspec.Struct, frozen=True):
    """The largest a value below `device` can be, and what lies below it."""

    size: int
    key: int | None = None
    element: _Declared | None = None
    fields: tuple[tuple[str, _Declared], ...] = ()

    def child(self, name: str, attribute: _Declared) -> _Declared | None:
        if name in ("@items", "@values"):
            return self.element
        if name == "@keys":
            return _Declared(self.key) if self.key is not None else None
        for field, declared in self.fields:
            if field == name:
                return declared
        return attribute if self.element is attribute else None


def declared_sizes(features: CelFeatures) -> object:
    """A function from a path such as ("device", "driver") to the size the API guarantees, for cost estimates."""
    attribute = _Declared(max(_VALUE, _LIST_VALUES) if features.list_attributes else _VALUE)
    inner = _Declared(_ATTRIBUTES_PER_DEVICE, _ID, attribute)
    capacities = _Declared(_ATTRIBUTES_PER_DEVICE, _ID, _Declared(0))
    device = _Declared(
        0,
        fields=(
            ("driver", _Declared(_DRIVER)),
            ("allowMultipleAllocations", _Declared(1)),
            ("attributes", _Declared(_ATTRIBUTES_PER_DEVICE, _DOMAIN, inner)),
            ("capacity", _Declared(_ATTRIBUTES_PER_DEVICE, _DOMAIN, capacities)),
        ),
    )

    def size_of(path: Path) -> Range | None:
        if not path or path[0] != "device":
            return None
        current: _Declared | None = device
        for name in path[1:]:
            current = current.child(name, attribute) if current is not None else None
        return Range(0, current.size) if current is not None else None

    return size_of
