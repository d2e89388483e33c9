"""Device selectors: compiled once, evaluated on devices, with the results and error texts of Kubernetes.

A selector that does not compile is a `DeviceSelector` with an `error`, not an exception: the scheduler reports it only
when the search reaches a device.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from dranet.cel import CelCompileError, CelProgramError, Environment, Err, Program
from dranet.cel import types as t
from dranet.cel.device_match import Domains
from dranet.cel.errors import Issue
from dranet.cel.estimate.worst_case import estimate
from dranet.cel.libraries.numbers import SEMVER, QuantityValue, Semver, SemverError, parse_semver
from dranet.cel.syntax.ast import Call, Comprehension, Ident, Literal, Node, Select
from dranet.cel.values import MISSING, Duration, Map, Timestamp, Uint, type_name
from dranet.core.quantity import Quantity, QuantityError, parse_quantity
from dranet.scheduler.allocation.kubernetes_cel import (
    CelFeatures,
    call_estimates,
    cel_features,
    declared_sizes,
    reads_lists,
    result_types,
    selector_environment,
)
from dranet.scheduler.releases import Release, Version, as_release

Read = tuple[str, ...]
"""``("driver",)``, or ``("attributes", domain, name)``."""
_DEVICE_VARIABLE = "device"
_SINGLE = ("driver", "allowMultipleAllocations")
_MAPS = ("attributes", "capacity")
_INDEXING = ("_[_]", "_[?_]", "_?._")
_UNSUPPORTED = "unsupported attribute value"
_COMPARABLE = (str, int, bool)
_DERIVED_TYPES = (t.BOOL, t.INT, t.STRING, t.ANY, t.DYN, SEMVER)
_SELECTOR_RESULT = "must evaluate to bool or the unknown type"
_DERIVED_RESULT = "must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of these scalars"
_MAX_CACHED_RESULTS = 64
"""Results that a selector caches, one for each combination of the values it reads."""
_CONVERSION_ERRORS = {
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


class DeviceInput(msgspec.Struct, frozen=True):
    """A device as selectors see it; `problem` is set when its attributes cannot be represented, `list_problem` when a
    release without list attributes cannot represent them."""

    variables: dict[str, Any]
    problem: str | None = None
    list_problem: str | None = None

    def key(self, reads: tuple[Read, ...]) -> tuple[Any, ...] | None:
        """Equal for devices that agree in these values; None where one of them cannot be compared by itself."""
        device, found = self.variables["device"], []
        for read in reads:
            value = device
            for step in read:
                value = value.find(step)
            if value.__class__ not in _COMPARABLE and value is not MISSING:
                return None
            found += [value.__class__, value]  # the class too, since true is 1 in a dictionary
        return tuple(found)


class DerivedValue(NamedTuple):
    """The value of a derived attribute: the type of its elements, and one element or those of a list."""

    kind: str
    elements: tuple[Any, ...]
    is_list: bool


_ELEMENTS: dict[type, tuple[str, str]] = {bool: ("bool", "bool"), int: ("int", "int"), str: ("string", "string")}
"""By class of a value, the type of an attribute and its name in errors."""
_ELEMENTS[Semver] = ("version", "semver")
_GO_TYPES: dict[type, str] = {
    bool: "bool", int: "int64", str: "string", float: "float64", Uint: "uint64", bytes: "[]uint8",
    Semver: "semver.Version", Duration: "time.Duration", Timestamp: "time.Time", list: "[]ref.Val",
}  # fmt: skip


def _derived_value(value: Any) -> DerivedValue | Err:
    """As Kubernetes converts the result of an expression to an attribute."""
    if value.__class__ is not list:
        if value.__class__ not in _ELEMENTS:
            return Err(f"unsupported CEL return type: {_go_type(value)}")
        return DerivedValue(_ELEMENTS[value.__class__][0], (_element(value),), False)
    if not value:
        return DerivedValue("string", (), True)
    first = value[0].__class__
    if first not in _ELEMENTS:
        return Err(f"unsupported list element type: {_go_type(value[0])}")
    kind, shown = _ELEMENTS[first]
    for index, one in enumerate(value):
        if one.__class__ is not first:
            return Err(f"expected list element at index {index} to be {shown}, got {_go_type(one)}")
    return DerivedValue(kind, tuple(map(_element, value)), True)


def _element(value: Any) -> Any:
    return value.text if value.__class__ is Semver else value


def _go_type(value: Any) -> str:
    return _GO_TYPES.get(value.__class__, type_name(value))


class SelectorResult(msgspec.Struct, frozen=True):
    """A selector's result on a device: `matches`, or None with `error`; `cost` is None if nothing was evaluated."""

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


def _attribute_value(attribute: Mapping[str, Any]) -> Any:
    for kind in ("ints", "bools", "strings"):
        if attribute.get(kind) is not None:
            return list(attribute[kind])
    if attribute.get("versions") is not None:
        versions = [_version(text) for text in attribute["versions"]]
        return next((one for one in versions if one.__class__ is Err), versions)
    for kind in ("int", "bool", "string"):
        if attribute.get(kind) is not None:
            return attribute[kind]
    if attribute.get("version") is not None:
        return _version(attribute["version"])
    return Err(_UNSUPPORTED)


def _version(text: str) -> Any:
    try:
        return parse_semver(text)
    except SemverError as error:
        return Err(f"parse semantic version: {error}")


def device_input(driver: str, device: Mapping[str, Any]) -> DeviceInput:
    """The `device` variable for one device of a slice, in v1 shape."""
    attributes: dict[str, dict[str, Any]] = {}
    list_problem: str | None = None
    for name, attribute in sorted((device.get("attributes") or {}).items()):
        value = _attribute_value(attribute)
        if value.__class__ is Err:
            return DeviceInput({}, f"attribute {name}: {value.message}")
        if value.__class__ is list:
            list_problem = list_problem or f"attribute {name}: {_UNSUPPORTED}"
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
                    ("attributes", Domains((domain, Map(values.items())) for domain, values in attributes.items())),
                    ("capacity", Domains((domain, Map(values.items())) for domain, values in capacity.items())),
                ]
            )
        },
        list_problem=list_problem,
    )


class DeviceSelector:
    """One compiled selector expression."""

    __slots__ = (
        "_program", "_results", "_template", "error", "expression", "issues", "output_type",
    )  # fmt: skip

    def __init__(
        self,
        expression: str,
        program: Program | None,
        error: str | None = None,
        issues: tuple[Issue, ...] = (),
        template: _Template | None = None,
    ) -> None:
        self.expression = expression
        self.error = error
        self.issues = issues
        self.output_type = program.type if program else None
        self._program = program
        self._template = template
        self._results: dict[tuple[Any, ...], SelectorResult] = {}

    @property
    def reads(self) -> tuple[Read, ...] | None:
        """The values it reads; None if these are more than single values, or if it does not compile."""
        return self._template.reads if self._template is not None else None

    def evaluate(self, device: DeviceInput) -> SelectorResult:
        """Whether the device matches. An invalid selector or device gives an error, as in the scheduler."""
        if self._program is None or self._template is None:
            return SelectorResult(None, self.error)
        problem = device.problem or (None if self._template.reads_lists else device.list_problem)
        if problem is not None:
            return SelectorResult(None, problem)
        reads = self._template.reads
        key = device.key(reads) if reads is not None else None
        if key is None:
            return self._run(self._program, device)
        found = self._results.get(key)
        if found is None:
            found = self._run(self._program, device)
            if len(self._results) < _MAX_CACHED_RESULTS:
                self._results[key] = found
        return found

    def derive(self, device: DeviceInput) -> DerivedValue | Err:
        """The value of a derived attribute for a device, or the error."""
        assert self._program is not None
        if device.problem is not None:
            return Err(device.problem)
        value = self._program.run(device.variables)[0]
        return value if isinstance(value, Err) else _derived_value(value)

    def _run(self, program: Program, device: DeviceInput) -> SelectorResult:
        value, cost = program.run(device.variables)
        if value is True or value is False:
            return SelectorResult(value, None, cost)
        if value.__class__ is Err:
            return SelectorResult(None, value.message, cost)
        name = type_name(value)
        detail = _CONVERSION_ERRORS.get(name, f"type conversion error from '{name}' to 'bool'")
        return SelectorResult(None, f"CEL result of type {name} could not be converted to bool: {detail}", cost)

    def cost_estimate(self) -> int | None:
        """The worst-case cost; None if the expression does not compile."""
        if self._program is None or self._template is None:
            return None
        return self._template.cost(self.expression, self._program)


class _Template:
    """What all selectors have in common that differ in literals only."""

    __slots__ = ("_costs", "_environment", "_features", "_version", "reads", "reads_lists")

    def __init__(self, root: Node, environment: Environment, version: tuple[int, int], features: CelFeatures) -> None:
        self.reads = _reads_of(root)
        self.reads_lists = reads_lists(version, features)
        self._environment = environment
        self._version = version
        self._features = features
        self._costs: dict[tuple[int, ...], int | None] = {}

    def cost(self, expression: str, program: Program) -> int | None:
        """The worst-case cost. Of the literals it depends on the lengths only."""
        sizes = _sizes(program.literals)
        if sizes not in self._costs:
            own = sizes == _sizes(program.first)
            root = program.root if own else self._environment.checked(expression)
            declared = declared_sizes(self._features)
            self._costs[sizes] = estimate(root, declared, call_estimates(self._version)).max
        return self._costs[sizes]


def _sizes(literals: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(len(value) if isinstance(value, str) else 0 for value in literals)


_MAX_CACHED_SELECTORS = 50_000
"""The cache is cleared at this size: a long-running server meets new expressions every day."""


@lru_cache(maxsize=16)
def _shared_compiler(version: Version, features: CelFeatures, stored: bool) -> SelectorCompiler:
    return SelectorCompiler(version, stored=stored, features=features)


def shared_compiler(version: str | Version | Release) -> SelectorCompiler:
    """The scheduler's compiler of a release, shared: linting, checks and allocation compile a selector once."""
    release = as_release(version)
    return _shared_compiler(release.modelled, cel_features(release), True)


def compile_new(version: str | Version | Release, expression: str) -> DeviceSelector:
    """As the API server compiles the selector of a new object. Reuses the scheduler's result if the expression uses
    nothing that the release changed."""
    release = as_release(version)
    features = cel_features(release)
    unchanged = not any(name in expression for name in _changed_names(release.modelled, features))
    return _shared_compiler(release.modelled, features, unchanged).compile(expression)


@lru_cache(maxsize=16)
def _changed_names(version: Version, features: CelFeatures) -> frozenset[str]:
    """Names that the scheduler of a release compiles differently from its API server."""
    environments = [selector_environment(version, features, stored=stored) for stored in (True, False)]
    return environments[0].differs_from(environments[1])


class SelectorCompiler:
    """Compiles selectors for one Kubernetes release and keeps them.

    `stored=True` is the scheduler's view, `stored=False` the API server's for new objects.
    """

    def __init__(
        self, version: str | Version = "1.36", *, stored: bool = True, features: CelFeatures | None = None
    ) -> None:
        self.features = features or CelFeatures()
        self._version = as_release(version).modelled
        self._environment = selector_environment(self._version, self.features, stored=stored)
        self._result_types = result_types(self._version, self.features, stored=stored)
        self._known: dict[str, DeviceSelector] = {}
        self._derived: dict[str, DeviceSelector] = {}
        self._templates: dict[Node, _Template] = {}

    def compile(self, expression: str) -> DeviceSelector:
        """Compiled once for each text; a selector that does not compile is cached too, with its error."""
        found = self._known.get(expression)
        if found is None:
            if len(self._known) >= _MAX_CACHED_SELECTORS:
                self._known.clear()
                self._templates.clear()
            found = self._known[expression] = self._compile(expression)
        return found

    def compile_derived(self, expression: str) -> DeviceSelector:
        """The expression of a derived attribute, for `derive`."""
        if expression not in self._derived:
            self._derived[expression] = self._compile(expression, derived=True)
        return self._derived[expression]

    def _compile(self, expression: str, *, derived: bool = False) -> DeviceSelector:
        try:
            program = self._environment.compile(expression)
        except CelCompileError as error:
            return DeviceSelector(expression, None, f"compilation failed: {error}", error.issues)
        except CelProgramError as error:
            return self._after_check(expression, error, derived)
        if wrong := self._wrong_result(expression, program.type, derived):
            return wrong
        template = self._templates.get(program.root)
        if template is None:
            template = _Template(program.root, self._environment, self._version, self.features)
            self._templates[program.root] = template
        return DeviceSelector(expression, program, template=template)

    def _after_check(self, expression: str, error: CelProgramError, derived: bool) -> DeviceSelector:
        """Kubernetes checks the result type before it folds constants."""
        wrong = self._wrong_result(expression, self._environment.result_type(expression), derived)
        return wrong or DeviceSelector(expression, None, f"program instantiation failed: {error}")

    def _wrong_result(self, expression: str, type_: t.Type, derived: bool) -> DeviceSelector | None:
        element = type_.params[0] if type_.kind == "list" else type_
        if element in _DERIVED_TYPES if derived else type_ in self._result_types:
            return None
        message = f"{_DERIVED_RESULT if derived else _SELECTOR_RESULT}, not {runtime_type_name(type_)}"
        return DeviceSelector(expression, None, message, (Issue(1, 0, message),))


def runtime_type_name(type_: t.Type) -> str:
    """A type as Kubernetes prints result types: run-time names, parameters in parentheses."""
    if not type_.params:
        return type_.name
    return f"{type_.name}({', '.join(runtime_type_name(inner) for inner in type_.params)})"


def _reads_of(root: Node) -> tuple[Read, ...] | None:
    """Every value below `device` that an expression reads; None if it reads more than single values.

    Devices that agree in these values get the same result. Eight NICs of a machine differ in their addresses, which
    few selectors read, so one evaluation serves all of them.
    """
    found: dict[Read, None] = {}
    return tuple(found) if _collect(root, found) else None


def _collect(node: Node, found: dict[Read, None]) -> bool:
    path = _path(node)
    if path is not None and len(path) <= 3:
        found[path] = None
        return (len(path) == 1 and path[0] in _SINGLE) or (len(path) == 3 and path[0] in _MAPS)
    if isinstance(node, Comprehension) and _DEVICE_VARIABLE in (node.var, node.var2):
        return False  # a variable of the macro hides `device`
    return all(_collect(child, found) for child in node.children())


def _path(node: Node) -> Read | None:
    """The literal field names from `device` to this node; None if one is computed."""
    if isinstance(node, Ident):
        return () if node.name.removeprefix(".") == _DEVICE_VARIABLE else None
    if isinstance(node, Select):
        before = _path(node.operand)
        return None if before is None else (*before, node.field)
    if isinstance(node, Call) and node.function in _INDEXING and node.target is None:
        before, key = _path(node.args[0]), node.args[1]
        if before is not None and isinstance(key, Literal) and isinstance(key.value, str):
            return (*before, key.value)
    return None
