"""Device selectors: compiled once, evaluated on devices, with the outcomes and words of Kubernetes.

A selector that cannot be compiled is not an exception here but a `Selector` with an `error`: the scheduler only
stumbles over it when it reaches a device, and so do we.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from dranet.allocation.kubernetes_cel import CelFeatures, declared_sizes, parse_version, selector_environment
from dranet.allocation.selector_reads import Read, reads_of
from dranet.cel import CelCompileError, CelProgramError, Environment, Err, Program
from dranet.cel import types as t
from dranet.cel.errors import Issue
from dranet.cel.estimate.extension_prices import price
from dranet.cel.estimate.worst_case import estimate
from dranet.cel.libraries.numbers import QuantityValue, SemverError, parse_semver
from dranet.cel.syntax.ast import Node
from dranet.cel.values import MISSING, Map, type_name
from dranet.model.quantity import Quantity, QuantityError, parse_quantity

_EMPTY = Map()
_COMPARED = (str, int, bool)
_KINDS_KEPT = 64
"""Kinds of devices whose verdict a selector remembers."""
_SHOWN = {
    "string": "unsupported native conversion from string to 'bool'",
    "int": "unsupported type conversion from 'int' to bool",
    "uint": "unsupported type conversion from 'uint' to bool",
    "double": "type conversion error from Double to 'bool'",
    "bytes": "type conversion error from Bytes to 'bool'",
    "list": "type conversion error from list to 'bool'",
    "map": "type conversion error from map to 'bool'",
    "null_type": "type conversion error from 'null_type' to 'bool'",
    "kubernetes.Semver": "type conversion error from 'Semver' to 'bool'",
    "kubernetes.Quantity": "type conversion error from 'Quantity' to 'bool'",
}


class _Domains(Map):
    """Attributes by domain: an unknown domain reads as an empty map, yet is not a member."""

    __slots__ = ()

    def find(self, key: Any) -> Any:
        found = super().find(key)
        return _EMPTY if found is MISSING else found


class DeviceInput(msgspec.Struct, frozen=True):
    """A device as selectors see it; `problem` is set when its attributes cannot be represented."""

    variables: dict[str, Any]
    problem: str | None = None

    def key(self, reads: tuple[Read, ...]) -> tuple[Any, ...] | None:
        """Equal for devices that agree in these values; None where one of them cannot be compared by itself."""
        device, found = self.variables["device"], []
        for read in reads:
            value = device
            for step in read:
                value = value.find(step)
            if value.__class__ not in _COMPARED and value is not MISSING:
                return None
            found += [value.__class__, value]  # the class too, since true is 1 in a dictionary
        return tuple(found)


class Verdict(msgspec.Struct, frozen=True):
    """What a selector says of a device: `matches`, or None with `error`; `cost` is None when nothing was evaluated."""

    matches: bool | None
    error: str | None = None
    cost: int | None = None


def split_name(name: str, driver: str) -> tuple[str, str]:
    """Domain and identifier of an attribute or capacity; a bare name belongs to its driver."""
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def capacity_value(capacity: Any) -> Quantity:
    """`{"value": "40Gi"}` or a plain quantity."""
    raw = capacity.get("value", "0") if isinstance(capacity, Mapping) else capacity
    return parse_quantity(str(raw))


def _attribute_value(attribute: Mapping[str, Any], lists: bool) -> Any:
    if lists:
        for kind in ("ints", "bools", "strings"):
            if attribute.get(kind) is not None:
                return list(attribute[kind])
        if attribute.get("versions") is not None:
            return [_version(text) for text in attribute["versions"]]
    for kind in ("int", "bool", "string"):
        if attribute.get(kind) is not None:
            return attribute[kind]
    if attribute.get("version") is not None:
        return _version(attribute["version"])
    return Err("unsupported attribute value")


def _version(text: str) -> Any:
    try:
        return parse_semver(text)
    except SemverError as error:
        return Err(f"parse semantic version: {error}")


def device_input(driver: str, device: Mapping[str, Any], *, list_attributes: bool = False) -> DeviceInput:
    """The `device` variable for one device of a slice, in v1 shape."""
    attributes: dict[str, dict[str, Any]] = {}
    for name, attribute in sorted((device.get("attributes") or {}).items()):
        value = _attribute_value(attribute, list_attributes)
        if value.__class__ is Err:
            return DeviceInput({}, f"attribute {name}: {value.message}")
        domain, identifier = split_name(name, driver)
        attributes.setdefault(domain, {})[identifier] = value
    capacity: dict[str, dict[str, Any]] = {}
    for name, entry in sorted((device.get("capacity") or {}).items()):
        domain, identifier = split_name(name, driver)
        try:
            capacity.setdefault(domain, {})[identifier] = QuantityValue(capacity_value(entry))
        except QuantityError as error:
            return DeviceInput({}, f"capacity {name}: {error}")
    return DeviceInput(
        {
            "device": Map(
                [
                    ("driver", driver),
                    ("allowMultipleAllocations", bool(device.get("allowMultipleAllocations"))),
                    ("attributes", _Domains((domain, Map(values.items())) for domain, values in attributes.items())),
                    ("capacity", _Domains((domain, Map(values.items())) for domain, values in capacity.items())),
                ]
            )
        }
    )


class Selector:
    """One compiled selector expression."""

    __slots__ = (
        "_program", "_verdicts", "_words", "error", "expression", "issues", "output_type",
    )  # fmt: skip

    def __init__(
        self,
        expression: str,
        program: Program | None,
        error: str | None = None,
        issues: tuple[Issue, ...] = (),
        words: Words | None = None,
    ) -> None:
        self.expression = expression
        self.error = error
        self.issues = issues
        self.output_type = program.type if program else None
        self._program = program
        self._words = words
        self._verdicts: dict[tuple[Any, ...], Verdict] = {}

    @property
    def reads(self) -> tuple[Read, ...] | None:
        """What it looks at; None where that is more than single values, or where it does not compile."""
        return self._words.reads if self._words is not None else None

    def evaluate(self, device: DeviceInput) -> Verdict:
        """Whether the device matches; a broken selector or device gives an error, no verdict, as in the scheduler."""
        if self._program is None or self._words is None:
            return Verdict(None, self.error)
        if device.problem is not None:
            return Verdict(None, device.problem)
        reads = self._words.reads
        key = device.key(reads) if reads is not None else None
        if key is None:
            return self._run(self._program, device)
        found = self._verdicts.get(key)
        if found is None:
            found = self._run(self._program, device)
            if len(self._verdicts) < _KINDS_KEPT:
                self._verdicts[key] = found
        return found

    def _run(self, program: Program, device: DeviceInput) -> Verdict:
        value, cost = program.run(device.variables)
        if value is True or value is False:
            return Verdict(value, None, cost)
        if value.__class__ is Err:
            return Verdict(None, value.message, cost)
        name = type_name(value)
        detail = _SHOWN.get(name, f"type conversion error from '{name}' to 'bool'")
        return Verdict(None, f"CEL result of type {name} could not be converted to bool: {detail}", cost)

    def cost_estimate(self) -> int | None:
        """The worst-case cost; None if the expression does not compile."""
        if self._program is None or self._words is None:
            return None
        return self._words.cost(self.expression, self._program)


class Words:
    """What holds for all selectors that differ in literals only."""

    __slots__ = ("_costs", "_environment", "_features", "reads")

    def __init__(self, root: Node, environment: Environment, features: CelFeatures) -> None:
        self.reads = reads_of(root)
        self._environment = environment
        self._features = features
        self._costs: dict[tuple[int, ...], int | None] = {}

    def cost(self, expression: str, program: Program) -> int | None:
        """The worst case; it depends on how long literals are, and on nothing else about them."""
        sizes = _sizes(program.literals)
        if sizes not in self._costs:
            own = sizes == _sizes(program.first)
            root = program.root if own else self._environment.checked(expression)
            self._costs[sizes] = estimate(root, declared_sizes(self._features), price).max  # type: ignore[arg-type]
        return self._costs[sizes]


def _sizes(literals: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(len(value) if isinstance(value, str) else 0 for value in literals)


MOST_KEPT = 50_000
"""Expressions kept before all are forgotten: a server that lives long meets new ones every day."""


@lru_cache(maxsize=16)
def _shared_compiler(version: tuple[int, int], features: CelFeatures, stored: bool) -> SelectorCompiler:
    return SelectorCompiler(".".join(map(str, version)), stored=stored, features=features)


def shared_compiler(version: str, features: CelFeatures | None = None) -> SelectorCompiler:
    """The scheduler's compiler that all who ask for the same release share: a claim is linted, checked and then
    allocated, and its selector is compiled once."""
    return _shared_compiler(parse_version(version), features or CelFeatures(), True)


def compile_new(version: str, expression: str) -> Selector:
    """As the API server compiles the selector of a new object. Where nothing in the text has changed with the release,
    it is the scheduler's answer, which is needed anyway."""
    release = parse_version(version)
    unchanged = not any(name in expression for name in _changed_names(release))
    return _shared_compiler(release, CelFeatures(), unchanged).compile(expression)


@lru_cache(maxsize=16)
def _changed_names(version: tuple[int, int]) -> frozenset[str]:
    """What the scheduler of a release compiles otherwise than its API server."""
    environments = [selector_environment(version, CelFeatures(), stored=stored) for stored in (True, False)]
    return environments[0].differs_from(environments[1])


class SelectorCompiler:
    """Compiles selectors for one Kubernetes release and keeps them.

    `stored=True` is the scheduler's view, `stored=False` the API server's for new objects.
    """

    def __init__(self, version: str = "1.36", *, stored: bool = True, features: CelFeatures | None = None) -> None:
        self.features = features or CelFeatures()
        self._environment = selector_environment(parse_version(version), self.features, stored=stored)
        self._known: dict[str, Selector] = {}
        self._words: dict[Node, Words] = {}

    def compile(self, expression: str) -> Selector:
        """Compiled once for all requests with the same text; what does not compile is kept too, with its error."""
        found = self._known.get(expression)
        if found is None:
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
                self._words.clear()
            found = self._known[expression] = self._compile(expression)
        return found

    def _compile(self, expression: str) -> Selector:
        try:
            program = self._environment.compile(expression)
        except CelCompileError as error:
            return Selector(expression, None, f"compilation failed: {error}", error.issues)
        except CelProgramError as error:
            return self._after_check(expression, error)
        allowed = program.type == t.BOOL or program.type == t.ANY
        if not (allowed or (self.features.list_attributes and program.type == t.DYN)):
            return self._wrong_result(expression, program.type)
        words = self._words.get(program.root)
        if words is None:
            words = self._words[program.root] = Words(program.root, self._environment, self.features)
        return Selector(expression, program, words=words)

    def _after_check(self, expression: str, error: CelProgramError) -> Selector:
        """The type of the result is judged before constants are folded."""
        checked = self._environment.result_type(expression)
        if checked not in (t.BOOL, t.ANY):
            return self._wrong_result(expression, checked)
        return Selector(expression, None, f"program instantiation failed: {error}")

    def _wrong_result(self, expression: str, type_: t.Type) -> Selector:
        shown = runtime_type_name(type_)
        message = f"must evaluate to bool or the unknown type, not {shown}"
        return Selector(expression, None, message, (Issue(1, 0, message),))


def runtime_type_name(type_: t.Type) -> str:
    """A type as Kubernetes prints result types: run-time names, parameters in parentheses."""
    if not type_.params:
        return type_.name
    return f"{type_.name}({', '.join(runtime_type_name(inner) for inner in type_.params)})"
