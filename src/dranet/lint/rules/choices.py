"""Selectors tried on given machines: do they choose anything, and do they fail on any device?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import msgspec

from dranet.lint.rules.base import ERROR, INFO, WARNING, Context, Finding, finding, rule
from dranet.lint.rules.expressions import GOOD_EXAMPLE, place_in, references, selector_example
from dranet.manifests.claim_views import Request, Selector
from dranet.model.attributes import RDMA
from dranet.predict.hardware import Unit
from dranet.predict.suggest.claim_forms import field


class _Tried(msgspec.Struct, frozen=True):
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
            units = context.offered(request.device_class)
            for selector in request.selectors:
                verdicts = context.once(
                    ("verdicts", request.device_class, selector.text), partial(_verdicts, context, units, selector.text)
                )
                if units and verdicts is not None:
                    yield _Tried(request, selector, units, verdicts)


def _verdicts(context: Context, units: list[Unit], text: str) -> list[bool | str] | None:
    """What the selector says of every unit; None for one that does not compile."""
    found = [context.tester.verdict(text, unit) for unit in units]
    return None if None in found else [one for one in found if one is not None]


def _number(units: Iterable[Unit]) -> int:
    return sum(unit.alike for unit in units)


@rule(
    "selector-always-true",
    WARNING,
    "A selector that matches every device of its class on these machines",
    why="It looks like a choice and is none: the scheduler takes the first devices, aligned or not.",
    bad=selector_example(
        'int(device.attributes["dra.net"].ifName.substring(3, 4)) < 4 || '
        'int(device.attributes["dra.net"].ifName.substring(3, 4)) >= 4'
    ),
    good=selector_example('int(device.attributes["dra.net"].ifName.substring(3, 4)) < 4'),
    shape="a4-highgpu-8g",
)
def selector_always_true(context: Context) -> Iterator[Finding]:
    for tried in _tried(context):
        # What suggest writes: a pod that needs RDMA may say so, whatever these machines have.
        if all(value is True for value in tried.verdicts) and tried.selector.text != f"{field(RDMA)} == true":
            choice = "||" in tried.selector.text
            message = (
                f"always true: matches all {_number(tried.units)} devices of class {tried.request.device_class!r} here"
            )
            message += ", though it reads like a choice between them" if choice else ""
            fix = _CHOICE_FIX if choice else "harmless here; keep it if other nodes have other cards"
            severity = WARNING if choice else INFO
            if severity not in context.severities:
                continue  # before its place is looked for, which is most of the work
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
        if "||" not in text:
            continue
        others = [other for start, other in parts if start != offset]
        units = [unit for unit in tried.units if all(verdict(other, unit) is True for other in others)]
        if units and all(verdict(text, unit) is True for unit in units):
            message = (
                f"this part is always true for the {_number(units)} devices that the rest of the selector matches here"
            )
            mark = place_in(tried.selector, offset)
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
    bad=selector_example("device.attributes[\"dra.net\"].ifName == 'gpu9rdma0'"),
    good=GOOD_EXAMPLE,
    shape="a4-highgpu-8g",
)
def selector_never_true(context: Context) -> Iterator[Finding]:
    for tried in _tried(context):
        if all(value is False for value in tried.verdicts):
            kind = tried.request.device_class
            message = f"never true: matches none of {_number(tried.units)} devices of class {kind!r} here"
            yield finding(
                "selector-never-true", tried.selector.owner, tried.selector.path, message, _values_hint(tried)
            )


def _values_hint(tried: _Tried) -> str:
    """The values the attributes it reads really have, which is what one needs to correct it."""
    hints = []
    for reference in references(tried.selector):
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
    bad=selector_example('device.attributes["dra.net"].ifName == "gpu0rdma0"'),
    good=selector_example('device.attributes["dra.net"].rdmaDevice == "mlx5_0"'),
    shape="nd-gb300-v6",
)
def selector_fails(context: Context) -> Iterator[Finding]:
    for tried in _tried(context):
        failed = [(u, v) for u, v in zip(tried.units, tried.verdicts, strict=True) if isinstance(v, str)]
        if failed:
            unit, message = failed[0]
            share = f"{_number(unit for unit, _ in failed)} of {_number(tried.units)} devices"
            text = f"fails on {share}, first on {unit.driver}/{unit.name}: {message}"
            fix = _GUARD if "no such key" in message else _TYPES
            yield finding("selector-fails", tried.selector.owner, tried.selector.path, text, fix)


_GUARD = "guard it: has(device.attributes[...].name) && ..., or device.attributes[...].?name.orValue(...)"
_TYPES = "compare values of one type, and end in true or false; `dranet inventory` shows the types"
