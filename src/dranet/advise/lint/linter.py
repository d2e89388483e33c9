"""Runs the rules over manifests."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dranet.advise.lint.ignore_comments import ignored_by_file
from dranet.advise.lint.rules import RULES, Context, Finding
from dranet.advise.lint.rules.base import SEVERITIES
from dranet.advise.manifests import Manifests, Object, ReadProblem
from dranet.advise.plan.cluster import distinct_nodes
from dranet.advise.plan.hardware import Hardware, hardware_of_slices
from dranet.advise.plan.selectors import SelectorTester, selector_texts


def lint(
    objects: Iterable[Object],
    problems: Iterable[ReadProblem] = (),
    hardware: Hardware | None = None,
    kubernetes: tuple[int, int] = (1, 36),
) -> list[Finding]:
    """All findings by file, line and column. Without `hardware`, ResourceSlices among the objects are the hardware."""
    return lint_manifests(Manifests(tuple(objects)), problems, hardware, kubernetes)


def lint_manifests(
    manifests: Manifests,
    problems: Iterable[ReadProblem] = (),
    hardware: Hardware | None = None,
    kubernetes: tuple[int, int] = (1, 36),
    severities: tuple[str, ...] = SEVERITIES,
    disabled: Collection[str] = (),
) -> list[Finding]:
    """Findings of these severities, without disabled rules and without what ignore comments cover.

    Objects in the background of the world are only context; they get no findings.
    """
    if hardware is None and manifests.slices:
        hardware = hardware_of_slices(manifests.slices)
    if hardware is not None:
        hardware = distinct_nodes(hardware, selector_texts(manifests))
    context = Context(manifests, tuple(problems), hardware, SelectorTester(kubernetes), severities)
    ignored = ignored_by_file(manifests.objects)
    findings = {
        finding
        for rule in RULES.values()
        if rule.id not in disabled
        for finding in rule.findings(context)
        if finding.severity in severities
        and not any(i.covers(finding.line, finding.rule) for i in ignored.get(finding.file, ()))
    }
    return sorted(findings, key=lambda f: (f.file, f.line, f.column, SEVERITIES.index(f.severity), f.rule, f.message))


def at_least(findings: Iterable[Finding], severity: str) -> bool:
    """Whether a finding has this severity or a worse one."""
    return any(SEVERITIES.index(finding.severity) <= SEVERITIES.index(severity) for finding in findings)
