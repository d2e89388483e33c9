"""CEL selectors: valid, with known attributes, and with a useful result on the given machines."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from functools import partial

import msgspec

from dranet.advise.lint.known_attributes import WITHOUT_CLOUD, all_known
from dranet.advise.lint.rules.base import (
    ERROR,
    INFO,
    WARNING,
    Context,
    Finding,
    finding,
    request_example,
    rule,
    selectors_example,
    template_example,
)
from dranet.advise.manifests import Mark, Request, Selector
from dranet.advise.plan.hardware import Hardware, PublishedDevice
from dranet.advise.plan.selectors import REFUSALS, attributes_read
from dranet.advise.suggest import cel_attribute
from dranet.core.attributes import RDMA


def _selector_example(expression: str) -> str:
    return template_example(request_example(selectors=selectors_example(expression)))


_GOOD_EXAMPLE = _selector_example("device.attributes[\"dra.net\"].ifName == 'gpu2rdma0'")


def _position(selector: Selector, offset: int) -> Mark:
    before = selector.text[:offset]
    return selector.owner.inside(selector.path, before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def _compile_findings(context: Context, syntax: bool) -> Iterator[Finding]:
    for selector in context.manifests.selectors:
        error, issues = context.tester.problems(selector.text)
        if not error or syntax != any(issue.message.startswith("Syntax error") for issue in issues):
            continue
        for issue in issues[:1]:
            mark = selector.owner.inside(selector.path, issue.line, issue.column + 1)
            where = f"(line {issue.line}, column {issue.column + 1} of the expression)"
            yield finding(selector.owner, mark, f"{issue.message} {where}", _compile_fix(issue.message))
        if not issues and error not in REFUSALS:
            yield finding(selector.owner, selector.path, error, "correct the constant")


def _compile_fix(message: str) -> str:
    if missing := re.search(r"missing '(.)'", message):
        return f"add the missing {missing[1]}"
    if unknown := re.search(r"undeclared reference to '(\w+)'|undefined field '(\w+)'", message):
        near = difflib.get_close_matches(unknown[1] or unknown[2], _CEL_NAMES, 1, 0.7)
        return f"did you mean {near[0]}?" if near else f"CEL for devices has no {unknown[1] or unknown[2]}"
    return next((fix for part, fix in _FIXES if part in message), "correct the expression here")


_FIXES = (
    ("token recognition error at: '=", "write == to compare"),
    ("kubernetes.Quantity", 'compare with .compareTo(quantity("400G")) or .isGreaterThan(quantity("400G"))'),
    ("kubernetes.Semver", 'compare with .compareTo(semver("1.2.3")) or .isGreaterThan(semver("1.2.3"))'),
    ("must evaluate to bool", "compare it with a value, so that the result is true or false"),
)
_CEL_NAMES = (
    "device", "driver", "attributes", "capacity", "allowMultipleAllocations", "startsWith", "endsWith", "contains",
    "matches", "size", "has", "all", "exists", "exists_one", "map", "filter", "int", "uint", "double", "string", "bool",
    "quantity", "semver", "isQuantity", "isSemver", "isGreaterThan", "isLessThan", "compareTo", "lowerAscii",
    "upperAscii", "substring", "split", "join", "replace", "trim", "indexOf", "lastIndexOf", "charAt", "orValue",
    "optMap", "hasValue", "find", "findAll", "sets", "bind",
)  # fmt: skip


@rule(
    "cel-syntax",
    ERROR,
    "A selector that is not valid CEL",
    why="The API server rejects the object.",
    bad=_selector_example('(device.attributes["dra.net"].rdma == true'),
    good=_GOOD_EXAMPLE,
)
def cel_syntax(context: Context) -> Iterator[Finding]:
    yield from _compile_findings(context, syntax=True)


@rule(
    "cel-type",
    ERROR,
    "A selector with a wrong type or name",
    why="The API server rejects the object: a field or function does not exist, or the result is not a bool.",
    bad=_selector_example("device.name == 'gpu2rdma0'"),
    good=_GOOD_EXAMPLE,
)
def cel_type(context: Context) -> Iterator[Finding]:
    yield from _compile_findings(context, syntax=False)


@rule(
    "cel-limits",
    ERROR,
    "A selector that is too long or too costly",
    why="The API server rejects a selector of more than 10240 bytes, or with an estimated cost above 1000000. Nested "
    "loops over attributes reach that quickly.",
    bad=_selector_example(
        "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a != d))))"
    ),
    good=_GOOD_EXAMPLE,
)
def cel_limits(context: Context) -> Iterator[Finding]:
    for selector in context.manifests.selectors:
        error, _ = context.tester.problems(selector.text)
        if error in REFUSALS:
            yield finding(selector.owner, selector.path, error, "simplify the expression")


class _Reference(msgspec.Struct, frozen=True):
    """An attribute or capacity that a selector reads."""

    selector: Selector
    offset: int
    name: str


def _references(selector: Selector) -> Iterator[_Reference]:
    for offset, name in attributes_read(selector.text):
        yield _Reference(selector, offset, name)


@rule(
    "unknown-attribute",
    WARNING,
    "A selector that reads an attribute which no device has",
    why="Reading a missing attribute is an error on the first device that is evaluated: the pod cannot be scheduled on "
    "any node.",
    bad=_selector_example('device.attributes["dra.net"].ifname == "gpu2rdma0"'),
    good=_GOOD_EXAMPLE,
)
def unknown_attribute(context: Context) -> Iterator[Finding]:
    for reference, known, published in _unknown_references(context):
        yield _unknown(reference, known, published)


def _unknown_references(context: Context) -> Iterator[tuple[_Reference, set[str], set[str]]]:
    """Attributes that nothing publishes, with the known names of the domain and all published names."""
    published = _published(context.hardware)
    for selector in context.manifests.selectors:
        for reference in _references(selector):
            if reference.name in WITHOUT_CLOUD:
                continue
            domain = reference.name.partition("/")[0]
            if reference.name.count("/") > 1:
                continue  # rule attribute-key reports it
            known = {name for name in all_known() | published if name.partition("/")[0] == domain}
            if reference.name in known or (not known and not _near_domain(domain, published)):
                continue
            yield reference, known, published


def _published(hardware: Hardware | None) -> set[str]:
    if hardware is None:
        return set()
    found = {name for names in hardware.published.values() for name in names}
    capacities = {
        f"{unit.driver}/{key}" if "/" not in key else key
        for unit in hardware.devices
        for key in unit.raw.get("capacity") or {}
    }
    return found | capacities


def _near_domain(domain: str, published: set[str]) -> list[str]:
    domains = {name.partition("/")[0] for name in all_known() | published}
    return difflib.get_close_matches(domain, sorted(domains), 1, 0.75)


def _unknown(reference: _Reference, known: set[str], published: set[str]) -> Finding:
    domain, _, name = reference.name.partition("/")
    if not known:
        near = _near_domain(domain, published)
        message, fix = f"no driver publishes attributes in the domain {domain!r}", f"did you mean {near[0]!r}?"
    else:
        names = sorted(full.partition("/")[2] for full in known)
        lower = {candidate.lower(): candidate for candidate in names}
        close = difflib.get_close_matches(name.lower(), list(lower), 1, 0.6)
        message = f"no device has the attribute {reference.name}"
        fix = f"did you mean {lower[close[0]]}?" if close else f"known: {', '.join(names)}"
    mark = _position(reference.selector, reference.offset)
    return finding(reference.selector.owner, mark, message, fix)


@rule(
    "not-in-shape",
    INFO,
    "A request for devices or attributes that a shape does not have",
    why="A shape has the GPUs and NICs of a machine, not the devices of other drivers, partitions, or what depends on "
    "the configuration of a node. Nothing is concluded about such a request.",
    bad=template_example(request_example(device_class="sriovnetwork.k8snetworkplumbingwg.io")),
    good=template_example(request_example()),
    shape="a4-highgpu-8g",
)
def not_in_shape(context: Context) -> Iterator[Finding]:
    misspelt = {reference.selector for reference, _, _ in _unknown_references(context)}
    for claim in context.manifests.claims:
        for request in claim.requests:
            if request.device_class not in context.manifests.classes or misspelt.intersection(request.selectors):
                continue
            if why := context.unknown(claim, request):
                message, _, fix = why.partition("; ")
                yield finding(claim.owner, request.path, f"request {request.name!r}: {message}", fix)


class _Evaluated(msgspec.Struct, frozen=True):
    """A selector of a request and its result for every device of the class."""

    request: Request
    selector: Selector
    units: list[PublishedDevice]
    results: list[bool | str]


def _evaluated(context: Context) -> Iterator[_Evaluated]:
    if context.hardware is None:
        return
    for claim in context.manifests.claims:
        for request in claim.requests:
            if context.unknown(claim, request):
                continue
            units = context.class_devices(request.device_class)
            for selector in request.selectors:
                results = context.cached(
                    ("results", request.device_class, selector.text), partial(_results, context, units, selector.text)
                )
                if units and results is not None:
                    yield _Evaluated(request, selector, units, results)


def _results(context: Context, units: list[PublishedDevice], text: str) -> list[bool | str] | None:
    """The result for every device; None if the selector does not compile."""
    found = [context.tester.verdict(text, unit) for unit in units]
    return None if None in found else [one for one in found if one is not None]


def _count(units: Iterable[PublishedDevice]) -> int:
    return sum(unit.nodes for unit in units)


@rule(
    "selector-always-true",
    WARNING,
    "A selector that matches every device of its class on these machines",
    why="It has no effect: the scheduler takes the first devices, aligned or not.",
    bad=_selector_example(
        'int(device.attributes["dra.net"].ifName.substring(3, 4)) < 4 || '
        'int(device.attributes["dra.net"].ifName.substring(3, 4)) >= 4'
    ),
    good=_selector_example('int(device.attributes["dra.net"].ifName.substring(3, 4)) < 4'),
    shape="a4-highgpu-8g",
)
def selector_always_true(context: Context) -> Iterator[Finding]:
    for evaluated in _evaluated(context):
        # `dranet suggest` writes this selector even if all NICs of these machines have RDMA.
        if (
            all(value is True for value in evaluated.results)
            and evaluated.selector.text != f"{cel_attribute(RDMA)} == true"
        ):
            choice = "||" in evaluated.selector.text
            kind = evaluated.request.device_class
            message = f"always true: matches all {_count(evaluated.units)} devices of class {kind!r} here"
            message += ", so the alternatives (||) have no effect" if choice else ""
            fix = _CHOICE_FIX if choice else "keep it only if other nodes have other NICs"
            severity = WARNING if choice else INFO
            if severity not in context.severities:
                continue  # finding the position is most of the work
            yield finding(
                evaluated.selector.owner,
                evaluated.selector.path,
                message,
                fix,
                severity,
            )
        else:
            yield from _ineffective_operands(context, evaluated)


_CHOICE_FIX = "use a constraint (matchAttribute) to keep devices together"


def _ineffective_operands(context: Context, evaluated: _Evaluated) -> Iterator[Finding]:
    """Operands of && that contain || and are true for all devices that the other operands match."""
    parts = operands(evaluated.selector.text)
    if len(parts) < 2:
        return
    verdict = context.tester.verdict
    for offset, text in parts:
        if "||" not in text:
            continue
        others = [other for start, other in parts if start != offset]
        units = [unit for unit in evaluated.units if all(verdict(other, unit) is True for other in others)]
        if units and all(verdict(text, unit) is True for unit in units):
            message = (
                f"this part is always true for the {_count(units)} devices that the rest of the selector matches here"
            )
            mark = _position(evaluated.selector, offset)
            yield finding(evaluated.selector.owner, mark, message, "remove it, or use a constraint")


def operands(text: str) -> list[tuple[int, str]]:
    """The operands of && at the top level of an expression, with their offsets."""
    parts, depth, start, quote, i = [], 0, 0, "", 0
    while i < len(text):
        char = text[i]
        if quote:
            i += char == "\\"
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif depth == 0 and text.startswith(("||", "?"), i):
            return [(0, text)]
        elif depth == 0 and text.startswith("&&", i):
            parts.append((start, text[start:i]))
            i += 1
            start = i + 1
        i += 1
    parts.append((start, text[start:]))
    return [(offset + len(part) - len(part.lstrip()), part.strip()) for offset, part in parts]


@rule(
    "selector-never-true",
    ERROR,
    "A selector that matches no device on these machines",
    why="The pod cannot be scheduled there; its only message is `cannot allocate all claims`.",
    bad=_selector_example("device.attributes[\"dra.net\"].ifName == 'gpu9rdma0'"),
    good=_GOOD_EXAMPLE,
    shape="a4-highgpu-8g",
)
def selector_never_true(context: Context) -> Iterator[Finding]:
    for evaluated in _evaluated(context):
        if all(value is False for value in evaluated.results):
            kind = evaluated.request.device_class
            message = f"never true: matches none of {_count(evaluated.units)} devices of class {kind!r} here"
            yield finding(
                evaluated.selector.owner,
                evaluated.selector.path,
                message,
                _values_hint(evaluated),
            )


def _values_hint(evaluated: _Evaluated) -> str:
    """The values that the attributes in the selector have on these machines."""
    hints = []
    for reference in _references(evaluated.selector):
        domain, _, bare = reference.name.partition("/")
        found: dict[str, None] = {}
        for unit in evaluated.units:
            attributes = unit.raw.get("attributes") or {}
            value = attributes.get(reference.name) or (attributes.get(bare) if domain == unit.driver else None)
            if isinstance(value, dict) and value:
                found[str(next(iter(value.values())))] = None
        if found:
            shown = ", ".join(list(found)[:8]) + (", ..." if len(found) > 8 else "")
            hints.append(f"{reference.name} is one of {shown}")
    return "; ".join(dict.fromkeys(hints)) or "compare with `dranet inventory` or the slices"


@rule(
    "selector-fails",
    ERROR,
    "A selector that fails on a device of these machines",
    why="An error on one device makes the pod unschedulable on every node; the device is not skipped.",
    bad=_selector_example('device.attributes["dra.net"].ifName == "gpu0rdma0"'),
    good=_selector_example('device.attributes["dra.net"].rdmaDevice == "mlx5_0"'),
    shape="nd-gb300-v6",
)
def selector_fails(context: Context) -> Iterator[Finding]:
    for evaluated in _evaluated(context):
        failed = [(u, v) for u, v in zip(evaluated.units, evaluated.results, strict=True) if isinstance(v, str)]
        if failed:
            unit, message = failed[0]
            share = f"{_count(unit for unit, _ in failed)} of {_count(evaluated.units)} devices"
            text = f"fails on {share}, first on {unit.driver}/{unit.name}: {message}"
            fix = _GUARD if "no such key" in message else _TYPES
            yield finding(evaluated.selector.owner, evaluated.selector.path, text, fix)


_GUARD = "test for it first: has(device.attributes[...].name) && ..., or device.attributes[...].?name.orValue(...)"
_TYPES = "compare values of one type and return a bool; `dranet inventory` shows the types"
