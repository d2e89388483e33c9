"""The CEL environment Kubernetes gives to device selectors, per version.

There are two at any time: stored expressions (what the scheduler compiles) may use everything the release knows, new
ones (what the API server accepts) only what the previous minor release knew too, so that a rollback cannot strand them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import msgspec

from dranet.cel import Environment, Library
from dranet.cel import types as t
from dranet.cel.errors import Err
from dranet.cel.estimate.extension_costs import cel_go_0_29_cost, extension_cost
from dranet.cel.estimate.standard_costs import Path, Range
from dranet.cel.estimate.worst_case import Extension, SizeOf
from dranet.cel.functions import functions
from dranet.cel.libraries.formats import AUTHORIZATION, AUTHORIZATION_SELECTORS, NAMED_FORMATS
from dranet.cel.libraries.formatting import validate_formats
from dranet.cel.libraries.lists import CEL_GO_0_29_LISTS, KUBERNETES_LISTS, LIST_COSTS, LISTS, SET_COSTS, SETS
from dranet.cel.libraries.literal_checks import LITERAL_VALIDATORS
from dranet.cel.libraries.network import CIDRS, IPS
from dranet.cel.libraries.numbers import QUANTITIES, QUANTITY, semver_library
from dranet.cel.libraries.optional import BINDINGS, OPTIONALS, TWO_VARIABLES
from dranet.cel.libraries.strings import REGEX, strings_library
from dranet.cel.libraries.urls import URLS
from dranet.cel.run.cost import CEL_GO_0_29_COSTS, CallCost, RuntimeCosts
from dranet.cel.values import equal
from dranet.scheduler.releases import Gate, Release

COST_LIMIT = 1_000_000
MAX_LENGTH = 10_240
_ATTRIBUTES_PER_DEVICE, _DOMAIN, _ID, _DRIVER, _VALUE, _LIST_VALUES = 32, 63, 32, 63, 64, 48


class CelFeatures(msgspec.Struct, frozen=True):
    """Feature gates that change the environment."""

    consumable_capacity: bool = True
    list_attributes: bool = False


def cel_features(release: Release) -> CelFeatures:
    """The features of selectors in a release with its gates."""
    return CelFeatures(Gate.CONSUMABLE_CAPACITY in release.gates, Gate.LIST_ATTRIBUTES in release.gates)


def _includes(target: object, wanted: object) -> object:
    if not isinstance(target, list):
        return equal(target, wanted) is True
    return any(equal(item, wanted) is True for item in target)


def _includes_up_to_limit(target: object, wanted: object) -> object:
    if not isinstance(target, list) or len(target) <= _LIST_VALUES or _includes(target[:_LIST_VALUES], wanted):
        return _includes(target, wanted)
    return Err(f"'includes' function cannot be applied to lists longer than {_LIST_VALUES} values")


def _includes_library(overload: str, call: Callable[[object, object], object]) -> Library:
    return Library(overload, functions=functions(("includes", overload, "dyn.(dyn) -> bool", call)))


_INCLUDES_1_36 = _includes_library("dra_includes_dyn_dyn", _includes_up_to_limit)
_INCLUDES = _includes_library("list_includes_dyn_dyn", _includes)

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


def attribute_type(version: tuple[int, int], features: CelFeatures, *, stored: bool) -> t.Type:
    """The declared type of an attribute: `dyn` where it may be a list.

    From 1.37 the scheduler declares `dyn` whatever the gate is.
    """
    lists = features.list_attributes or (stored and version >= (1, 37))
    return t.DYN if lists else t.ANY


def result_types(version: tuple[int, int], features: CelFeatures, *, stored: bool) -> tuple[t.Type, ...]:
    """What a selector may evaluate to; up to 1.36 `any` was allowed with list attributes too."""
    declared = attribute_type(version, features, stored=stored)
    return (t.BOOL, declared) if version >= (1, 37) else (t.BOOL, t.ANY, declared)


def reads_lists(version: tuple[int, int], features: CelFeatures) -> bool:
    """Whether devices with list attributes can be evaluated; up to 1.36 they are an error while the gate is off."""
    return features.list_attributes or version >= (1, 37)


def call_estimates(version: tuple[int, int]) -> Extension:
    """Worst-case costs of calls."""
    return cel_go_0_29_cost if version >= (1, 37) else extension_cost


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
        libraries.append(_INCLUDES if version >= (1, 37) else _INCLUDES_1_36)
    fields = {
        "driver": t.STRING,
        "attributes": t.map_of(t.STRING, t.map_of(t.STRING, attribute_type(version, features, stored=stored))),
        "capacity": t.map_of(t.STRING, t.map_of(t.STRING, QUANTITY)),
    }
    if usable >= (1, 34) and (stored or features.consumable_capacity):
        fields["allowMultipleAllocations"] = t.BOOL
    costs = {name: cost for introduced, table in _COSTS if introduced <= usable for name, cost in table.items()}
    if version >= (1, 37):
        costs |= CEL_GO_0_29_COSTS
        libraries = [CEL_GO_0_29_LISTS if library is LISTS else library for library in libraries]
    return Environment(
        variables={"device": t.struct("kubernetes.DRADevice")},
        structs={"kubernetes.DRADevice": fields},
        libraries=libraries,
        optional_syntax=True,
        validators=(*LITERAL_VALIDATORS, validate_formats),
        costs=RuntimeCosts(costs),
        cost_limit=COST_LIMIT,
        fold=True,
    )


def declared_sizes(features: CelFeatures) -> SizeOf:
    """A function from a path such as ("device", "driver") to the size the API guarantees, for cost estimates."""
    attribute = max(_VALUE, _LIST_VALUES) if features.list_attributes else _VALUE
    sizes = {(): 0, ("driver",): _DRIVER, ("allowMultipleAllocations",): 1}
    for name, value in (("attributes", attribute), ("capacity", 0)):
        sizes |= {
            (name,): _ATTRIBUTES_PER_DEVICE,
            (name, "@keys"): _DOMAIN,
            (name, "@values"): _ATTRIBUTES_PER_DEVICE,
            (name, "@values", "@keys"): _ID,
            (name, "@values", "@values"): value,
        }

    def size_of(path: Path) -> Range | None:
        below = tuple("@values" if step == "@items" else step for step in path[1:])
        # Of what is below a domain, only attributes have a size when they are selected by name.
        by_name = attribute if len(below) == 3 and below[:2] == ("attributes", "@values") else None
        found = sizes.get(below, by_name) if path[:1] == ("device",) else None
        return Range(0, found) if found is not None else None

    return size_of
