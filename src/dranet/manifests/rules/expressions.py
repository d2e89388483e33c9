"""CEL selectors: do they compile, do they name what exists, and do they choose anything?"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dranet.manifests.hardware import Hardware, Unit
from dranet.manifests.reading import Mark
from dranet.manifests.rules.base import ERROR, INFO, WARNING, Context, Finding, finding, rule
from dranet.manifests.views import Request, Selector
from dranet.model.attributes import ATTRIBUTES, CAPACITIES, CLOUD_ATTRIBUTES, STANDARD_DOMAIN

_TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: nic}}
spec:
  spec:
    devices:
      requests:
      - name: nic
        exactly:
          deviceClassName: dranet
          selectors:
          - cel:
              expression: {expression}
"""


def _example(expression: str) -> str:
    return _TEMPLATE.format(expression=expression)


_GOOD = _example("device.attributes[\"dra.net\"].ifName == 'gpu2rdma0'")


def _place(selector: Selector, offset: int) -> Mark:
    before = selector.text[:offset]
    return selector.owner.inside(selector.path, before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def _compile_findings(context: Context, syntax: bool) -> Iterator[Finding]:
    rule_id = "cel-syntax" if syntax else "cel-type"
    for selector in context.world.selectors:
        error, issues = context.tester.problems(selector.text)
        if not error or syntax != any(issue.message.startswith("Syntax error") for issue in issues):
            continue
        for issue in issues[:1]:
            mark = selector.owner.inside(selector.path, issue.line, issue.column + 1)
            where = f"(line {issue.line}, column {issue.column + 1} of the expression)"
            yield finding(rule_id, selector.owner, mark, f"{issue.message} {where}", _compile_fix(issue.message))
        if not issues:
            yield finding(rule_id, selector.owner, selector.path, error, "correct the constant")


def _compile_fix(message: str) -> str:
    missing = re.search(r"missing '(.)'", message)
    if missing:
        return f"add the missing {missing[1]}"
    return "correct the expression here"


@rule(
    "cel-syntax",
    ERROR,
    "A selector that is not CEL",
    why="The API server refuses the object; the scheduler would fail every pod that uses it.",
    bad=_example('(device.attributes["dra.net"].rdma == true'),
    good=_GOOD,
)
def cel_syntax(context: Context) -> Iterator[Finding]:
    yield from _compile_findings(context, syntax=True)


@rule(
    "cel-type",
    ERROR,
    "A selector whose types or names do not fit",
    why="The API server refuses the object: there is no such field or function, or the result is not true or false.",
    bad=_example("device.name == 'gpu2rdma0'"),
    good=_GOOD,
)
def cel_type(context: Context) -> Iterator[Finding]:
    yield from _compile_findings(context, syntax=False)


_REFERENCE = re.compile(
    r"""device\s*\.\s*(?P<map>attributes|capacity)\s*\[\s*(?P<q>["'])(?P<domain>[^"']*)(?P=q)\s*\]"""
    r"""\s*(?:\.\s*\??\s*(?P<dot>[A-Za-z_]\w*)(?!\w*\s*\()|\[\s*\??\s*["'](?P<key>[^"']*)["']\s*\])"""
)
_NVIDIA = (
    "type uuid index minor productName brand architecture cudaComputeCapability cudaDriverVersion driverVersion "
    "addressingMode profile parentUUID parentIndex parentMinor memory multiprocessors copyEngines decoders encoders "
    "jpegEngines ofaEngines virtualizable pcieBusID"
)
_KNOWN = {doc.name for doc in (*ATTRIBUTES, *CLOUD_ATTRIBUTES, *CAPACITIES)}
_KNOWN |= {f"gpu.nvidia.com/{name}" for name in _NVIDIA.split()}
_KNOWN |= {f"{STANDARD_DOMAIN}/{name}" for name in ("pcieRoot", "pciBusID", "numaNode")}
_OWN_DOMAINS = {name.partition("/")[0] for name in _KNOWN}


@dataclass(frozen=True, slots=True)
class _Reference:
    """An attribute or capacity a selector reads."""

    selector: Selector
    offset: int
    name: str


def _references(selector: Selector) -> Iterator[_Reference]:
    for match in _REFERENCE.finditer(selector.text):
        group = "dot" if match["dot"] else "key"
        yield _Reference(selector, match.start(group), f"{match['domain']}/{match[group]}")


@rule(
    "unknown-attribute",
    WARNING,
    "A selector reads an attribute that no device has",
    why="An attribute that is not there is an error at run time, on the first device looked at: the pod cannot be "
    "scheduled on any node.",
    bad=_example('device.attributes["dra.net"].ifname == "gpu2rdma0"'),
    good=_GOOD,
)
def unknown_attribute(context: Context) -> Iterator[Finding]:
    published = _published(context.hardware)
    for selector in context.world.selectors:
        for reference in _references(selector):
            domain = reference.name.partition("/")[0]
            known = {name for name in _KNOWN | published if name.partition("/")[0] == domain}
            if reference.name in known or (not known and not _near_domain(domain, published)):
                continue
            yield _unknown(reference, known, published)


def _published(hardware: Hardware | None) -> set[str]:
    if hardware is None:
        return set()
    found = {name for names in hardware.published.values() for name in names}
    capacities = {
        f"{unit.driver}/{key}" if "/" not in key else key
        for unit in hardware.units
        for key in unit.raw.get("capacity") or {}
    }
    return found | capacities


def _near_domain(domain: str, published: set[str]) -> list[str]:
    domains = _OWN_DOMAINS | {name.partition("/")[0] for name in published}
    return difflib.get_close_matches(domain, sorted(domains), 1, 0.75)


def _unknown(reference: _Reference, known: set[str], published: set[str]) -> Finding:
    domain, _, name = reference.name.partition("/")
    if not known:
        near = _near_domain(domain, published)
        message, fix = f"no driver publishes attributes of domain {domain!r}", f"did you mean {near[0]!r}?"
    else:
        names = sorted(full.partition("/")[2] for full in known)
        lower = {candidate.lower(): candidate for candidate in names}
        close = difflib.get_close_matches(name.lower(), list(lower), 1, 0.6)
        message = f"{reference.name} is no attribute of any device"
        fix = f"did you mean {lower[close[0]]}?" if close else f"known: {', '.join(names)}"
    mark = _place(reference.selector, reference.offset)
    return finding("unknown-attribute", reference.selector.owner, mark, message, fix)


@dataclass(frozen=True, slots=True)
class _Tried:
    """A selector of a request and what it says of every device its class offers."""

    request: Request
    selector: Selector
    units: list[Unit]
    verdicts: list[bool | str]


def _tried(context: Context) -> Iterator[_Tried]:
    if context.hardware is None:
        return
    for claim in context.world.claims:
        for request in claim.requests:
            units = context.tester.of_class(context.world, context.hardware, request.device_class)
            for selector in request.selectors:
                verdicts = [context.tester.verdict(selector.text, unit) for unit in units]
                if units and None not in verdicts:
                    yield _Tried(request, selector, units, [v for v in verdicts if v is not None])


@rule(
    "selector-always-true",
    WARNING,
    "A selector that matches every device of its class on these machines",
    why="It looks like a choice and is none: the scheduler takes the first devices, aligned or not.",
    bad=_example(
        'int(device.attributes["dra.net"].ifName.substring(3, 4)) < 4 || '
        'int(device.attributes["dra.net"].ifName.substring(3, 4)) >= 4'
    ),
    good=_example('int(device.attributes["dra.net"].ifName.substring(3, 4)) < 4'),
    shape="a4-highgpu-8g",
)
def selector_always_true(context: Context) -> Iterator[Finding]:
    for tried in _tried(context):
        if all(value is True for value in tried.verdicts):
            choice = "||" in tried.selector.text
            message = (
                f"always true: matches all {len(tried.units)} devices of class {tried.request.device_class!r} here"
            )
            message += ", though it reads like a choice between them" if choice else ""
            fix = _CHOICE_FIX if choice else "harmless here; keep it if other nodes have other cards"
            severity = WARNING if choice else INFO
            yield finding(
                "selector-always-true", tried.selector.owner, tried.selector.path, message, fix, severity=severity
            )
        else:
            yield from _idle_parts(context, tried)


_CHOICE_FIX = "use a constraint (matchAttribute) to keep devices together"


def _idle_parts(context: Context, tried: _Tried) -> Iterator[Finding]:
    """Parts joined by && that hold a choice and yet never decide anything."""
    parts = conjuncts(tried.selector.text)
    if len(parts) < 2:
        return
    verdict = context.tester.verdict
    for offset, text in parts:
        others = [other for start, other in parts if start != offset]
        units = [unit for unit in tried.units if all(verdict(other, unit) is True for other in others)]
        if "||" in text and units and all(verdict(text, unit) is True for unit in units):
            message = (
                f"this part is always true for the {len(units)} devices that the rest of the selector matches here"
            )
            mark = _place(tried.selector, offset)
            yield finding(
                "selector-always-true", tried.selector.owner, mark, message, "take it out, or use a constraint"
            )


def conjuncts(text: str) -> list[tuple[int, str]]:
    """The parts of an expression joined by && at the top level, with their offsets."""
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
    why="The pod can never be scheduled there: `cannot allocate all claims` is all the user would read.",
    bad=_example("device.attributes[\"dra.net\"].ifName == 'gpu9rdma0'"),
    good=_GOOD,
    shape="a4-highgpu-8g",
)
def selector_never_true(context: Context) -> Iterator[Finding]:
    for tried in _tried(context):
        if all(value is False for value in tried.verdicts):
            message = (
                f"never true: matches none of {len(tried.units)} devices of class {tried.request.device_class!r} here"
            )
            yield finding(
                "selector-never-true", tried.selector.owner, tried.selector.path, message, _values_hint(tried)
            )


def _values_hint(tried: _Tried) -> str:
    """The values the attributes it reads really have, which is what one needs to correct it."""
    hints = []
    for reference in _references(tried.selector):
        domain, _, bare = reference.name.partition("/")
        found: dict[str, None] = {}
        for unit in tried.units:
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
    why="An error on any device looked at aborts the pod on every node; it does not skip the device.",
    bad=_example('device.attributes["dra.net"].ifName == "gpu0rdma0"'),
    good=_example('device.attributes["dra.net"].rdmaDevice == "mlx5_0"'),
    shape="nd-gb300-v6",
)
def selector_fails(context: Context) -> Iterator[Finding]:
    for tried in _tried(context):
        failed = [(u, v) for u, v in zip(tried.units, tried.verdicts, strict=True) if isinstance(v, str)]
        if failed:
            unit, message = failed[0]
            text = (
                f"fails on {len(failed)} of {len(tried.units)} devices, first on {unit.driver}/{unit.name}: {message}"
            )
            fix = "guard it: has(device.attributes[...].name) && ..., or device.attributes[...].?name.orValue(...)"
            yield finding("selector-fails", tried.selector.owner, tried.selector.path, text, fix)
