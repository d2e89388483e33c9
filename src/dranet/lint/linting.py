"""Run every rule over what was read, and print what they found."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from dranet.lint.ignoring import ignored_by_file
from dranet.lint.rules import RULES, Context, Finding
from dranet.lint.rules.base import INFO, SEVERITIES
from dranet.manifests.claim_views import World, world_of
from dranet.manifests.reading import Object, ReadProblem
from dranet.predict.alike_nodes import one_of_each_kind
from dranet.predict.hardware import Hardware, hardware_of_slices
from dranet.predict.matching import Tester
from dranet.predict.request_drivers import texts_of

_GITHUB = {"error": "error", "warning": "warning", "info": "notice"}


def lint(
    objects: Iterable[Object],
    problems: Iterable[ReadProblem] = (),
    hardware: Hardware | None = None,
    kubernetes: tuple[int, int] = (1, 36),
) -> list[Finding]:
    """All findings, by file, line and column. Slices among the objects count as hardware where none is given."""
    return lint_world(world_of(objects), problems, hardware, kubernetes)


def lint_world(
    world: World,
    problems: Iterable[ReadProblem] = (),
    hardware: Hardware | None = None,
    kubernetes: tuple[int, int] = (1, 36),
    severities: tuple[str, ...] = SEVERITIES,
    disabled: Collection[str] = (),
) -> list[Finding]:
    """The same over a world; of its background nothing is said, nor of other severities than these.

    What an ignore comment speaks of is left out too (`ignoring`).
    """
    if hardware is None and world.slices:
        hardware = hardware_of_slices(world.slices)
    if hardware is not None:
        hardware = one_of_each_kind(hardware, texts_of(world))
    context = Context(world, tuple(problems), hardware, Tester(kubernetes), severities)
    ignored = ignored_by_file(world.objects)
    found = {
        one
        for rule in RULES.values()
        if rule.id not in disabled
        for one in rule.check(context)
        if one.severity in severities and not any(i.covers(one.line, one.rule) for i in ignored.get(one.file, ()))
    }
    return sorted(found, key=lambda f: (f.file, f.line, f.column, SEVERITIES.index(f.severity), f.rule, f.message))


def at_least(findings: Iterable[Finding], severity: str) -> bool:
    """Whether any of them is as bad as this, or worse."""
    return any(SEVERITIES.index(finding.severity) <= SEVERITIES.index(severity) for finding in findings)


def to_json(findings: Iterable[Finding]) -> dict[str, Any]:
    """``{"findings": [...]}``."""
    return {"findings": [finding.to_json() for finding in findings]}


def to_text(findings: list[Finding]) -> str:
    """One paragraph a finding, and a count."""
    return "\n".join([*map(finding_text, findings), ", ".join(_count(findings, name) for name in SEVERITIES)])


def finding_text(f: Finding) -> str:
    """Place, message and rule on one line, the fix below."""
    fix = [f"    {line}" for line in f"fix: {f.fix}".splitlines()] if f.fix else []
    return "\n".join([f"{f.file}:{f.line}:{f.column}: {f.severity}: {f.message} [{f.rule}]", *fix])


def _count(findings: Iterable[Finding], severity: str) -> str:
    number = sum(finding.severity == severity for finding in findings)
    return f"{number} {severity}" if severity == INFO or number == 1 else f"{number} {severity}s"


def to_github(findings: Iterable[Finding]) -> str:
    """Workflow commands that GitHub shows beside the changed lines."""
    return "\n".join(
        f"::{_GITHUB[f.severity]} file={_property(f.file)},line={f.line},col={f.column},title={_property(f.rule)}::"
        + _message(f.message + (f"\nfix: {f.fix}" if f.fix else ""))
        for f in findings
    )


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
