"""CEL selectors: do they compile, would a server take them, and do they name what exists?"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

import msgspec

from dranet.lint.published_names import ON_EVERY_NODE, known_anywhere
from dranet.lint.rules.base import ERROR, WARNING, Context, Finding, finding, rule
from dranet.manifests.claim_views import Selector
from dranet.manifests.yaml_nodes import Mark
from dranet.predict.attribute_names import names_read
from dranet.predict.hardware import Hardware
from dranet.predict.matching import REFUSALS

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


def selector_example(expression: str) -> str:
    return _TEMPLATE.format(expression=expression)


GOOD_EXAMPLE = selector_example("device.attributes[\"dra.net\"].ifName == 'gpu2rdma0'")


def place_in(selector: Selector, offset: int) -> Mark:
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
        if not issues and error not in REFUSALS:
            yield finding(rule_id, selector.owner, selector.path, error, "correct the constant")


def _compile_fix(message: str) -> str:
    if missing := re.search(r"missing '(.)'", message):
        return f"add the missing {missing[1]}"
    if unknown := re.search(r"undeclared reference to '(\w+)'|undefined field '(\w+)'", message):
        near = difflib.get_close_matches(unknown[1] or unknown[2], _WORDS, 1, 0.7)
        return f"did you mean {near[0]}?" if near else f"there is no {unknown[1] or unknown[2]} in CEL for devices"
    return next((fix for part, fix in _FIXES if part in message), "correct the expression here")


_FIXES = (
    ("token recognition error at: '=", "write == to compare"),
    ("kubernetes.Quantity", 'compare with .compareTo(quantity("400G")) or .isGreaterThan(quantity("400G"))'),
    ("kubernetes.Semver", 'compare with .compareTo(semver("1.2.3")) or .isGreaterThan(semver("1.2.3"))'),
    ("must evaluate to bool", "compare it with something, so that the result is true or false"),
)
_WORDS = (
    "device", "driver", "attributes", "capacity", "allowMultipleAllocations", "startsWith", "endsWith", "contains",
    "matches", "size", "has", "all", "exists", "exists_one", "map", "filter", "int", "uint", "double", "string", "bool",
    "quantity", "semver", "isQuantity", "isSemver", "isGreaterThan", "isLessThan", "compareTo", "lowerAscii",
    "upperAscii", "substring", "split", "join", "replace", "trim", "indexOf", "lastIndexOf", "charAt", "orValue",
    "optMap", "hasValue", "find", "findAll", "sets", "bind",
)  # fmt: skip


@rule(
    "cel-syntax",
    ERROR,
    "A selector that is not CEL",
    why="The API server refuses the object; the scheduler would fail every pod that uses it.",
    bad=selector_example('(device.attributes["dra.net"].rdma == true'),
    good=GOOD_EXAMPLE,
)
def cel_syntax(context: Context) -> Iterator[Finding]:
    yield from _compile_findings(context, syntax=True)


@rule(
    "cel-type",
    ERROR,
    "A selector whose types or names do not fit",
    why="The API server refuses the object: there is no such field or function, or the result is not true or false.",
    bad=selector_example("device.name == 'gpu2rdma0'"),
    good=GOOD_EXAMPLE,
)
def cel_type(context: Context) -> Iterator[Finding]:
    yield from _compile_findings(context, syntax=False)


@rule(
    "cel-limits",
    ERROR,
    "A selector that is too long or too costly",
    why="The API server refuses a selector of more than 10240 bytes, and one whose estimated worst-case cost is over "
    "1000000: nested loops over attributes are soon there.",
    bad=selector_example(
        "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a != d))))"
    ),
    good=GOOD_EXAMPLE,
)
def cel_limits(context: Context) -> Iterator[Finding]:
    for selector in context.world.selectors:
        error, _ = context.tester.problems(selector.text)
        if error in REFUSALS:
            yield finding("cel-limits", selector.owner, selector.path, error, "say it in fewer steps")


class Reference(msgspec.Struct, frozen=True):
    """An attribute or capacity a selector reads."""

    selector: Selector
    offset: int
    name: str


def references(selector: Selector) -> Iterator[Reference]:
    for offset, name in names_read(selector.text):
        yield Reference(selector, offset, name)


@rule(
    "unknown-attribute",
    WARNING,
    "A selector reads an attribute that no device has",
    why="An attribute that is not there is an error at run time, on the first device looked at: the pod cannot be "
    "scheduled on any node.",
    bad=selector_example('device.attributes["dra.net"].ifname == "gpu2rdma0"'),
    good=GOOD_EXAMPLE,
)
def unknown_attribute(context: Context) -> Iterator[Finding]:
    published = _published(context.hardware)
    for selector in context.world.selectors:
        for reference in references(selector):
            if reference.name in ON_EVERY_NODE:
                continue
            domain = reference.name.partition("/")[0]
            known = {name for name in known_anywhere() | published if name.partition("/")[0] == domain}
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
    domains = {name.partition("/")[0] for name in known_anywhere() | published}
    return difflib.get_close_matches(domain, sorted(domains), 1, 0.75)


def _unknown(reference: Reference, known: set[str], published: set[str]) -> Finding:
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
    mark = place_in(reference.selector, reference.offset)
    return finding("unknown-attribute", reference.selector.owner, mark, message, fix)
