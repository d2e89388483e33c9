"""Findings as text, JSON, GitHub workflow commands and SARIF; and the page of all rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dranet.advise.lint.rules import RULES, Finding, Rule
from dranet.advise.lint.rules.base import INFO, SEVERITIES

_GITHUB_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}
_SARIF_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def to_sarif(findings: Iterable[Finding], version: str) -> dict[str, Any]:
    """SARIF 2.1.0, which code hosts accept: all rules, and one result a finding."""
    rules = list(RULES.values())
    index = {rule.id: i for i, rule in enumerate(rules)}
    driver = {"name": "dranet lint", "version": version, "rules": [_rule(rule) for rule in rules]}
    results = [_result(finding, index[finding.rule]) for finding in findings]
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"Bad:\n\n{rule.bad}\nGood:\n\n{rule.good}"},
        "defaultConfiguration": {"level": _SARIF_LEVELS[rule.severity]},
    }


def _result(finding: Finding, rule_index: int) -> dict[str, Any]:
    text = f"{finding.message}\nfix: {finding.fix}" if finding.fix else finding.message
    region = {"startLine": finding.line, "startColumn": finding.column}
    location = {"artifactLocation": {"uri": finding.file.replace("\\", "/")}, "region": region}
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": _SARIF_LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [{"physicalLocation": location}],
    }


_PAGE_START = """\
# Lint rules

Generated from the rules. `dranet lint -f FILE` runs all of them; rules about machines need `--shape` or `--slices`.
The exit status is 1 if there is an error.

| rule | severity | finds |
|---|---|---|
"""


def lint_rules_page() -> str:
    """`docs/reference/lint-rules.md`, which `make docs` writes and `make check` compares."""
    rows = "".join(f"| [{r.id}](#{r.id}) | {r.severity} | {r.title} |\n" for r in RULES.values())
    return _PAGE_START + rows + "".join(_section(rule) for rule in RULES.values())


def _section(rule: Rule) -> str:
    machine = f"\nThe examples are for the machine shape `{rule.shape}`.\n" if rule.shape else ""
    return (
        f"\n## {rule.id}\n\n**{rule.severity}** {rule.title}.\n\n{rule.why}\n{machine}"
        f"\nBad:\n\n```yaml\n{rule.bad}```\n\nGood:\n\n```yaml\n{rule.good}```\n"
    )


def to_json(findings: Iterable[Finding]) -> dict[str, Any]:
    return {"findings": [finding.to_json() for finding in findings]}


def to_text(findings: list[Finding]) -> str:
    """A line with the number of findings by severity, and the findings: the worst first, then by position."""
    worst_first = sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
    return "\n".join([", ".join(_count(findings, name) for name in SEVERITIES), *map(finding_text, worst_first)])


def finding_text(f: Finding) -> str:
    """Position, message and rule on one line, and the fix below."""
    fix = [f"    {line}" for line in f"fix: {f.fix}".splitlines()] if f.fix else []
    return "\n".join([f"{f.file}:{f.line}:{f.column}: {f.severity}: {f.message} [{f.rule}]", *fix])


def _count(findings: Iterable[Finding], severity: str) -> str:
    number = sum(finding.severity == severity for finding in findings)
    return f"{number} {severity}" if severity == INFO or number == 1 else f"{number} {severity}s"


def to_github(findings: Iterable[Finding]) -> str:
    """Workflow commands, which GitHub shows next to the changed lines."""
    return "\n".join(
        f"::{_GITHUB_LEVELS[f.severity]} file={_property(f.file)},line={f.line},col={f.column},"
        f"title={_property(f.rule)}::" + _message(f.message + (f"\nfix: {f.fix}" if f.fix else ""))
        for f in findings
    )


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
