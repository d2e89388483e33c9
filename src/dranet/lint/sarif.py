"""Findings as SARIF 2.1.0, the form in which code hosts take the results of any checker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dranet.lint.rules import RULES, Finding, Rule

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def to_sarif(findings: Iterable[Finding], version: str) -> dict[str, Any]:
    """One run with every rule's description and a result for each finding."""
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
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(found: Finding, rule: int) -> dict[str, Any]:
    text = f"{found.message}\nfix: {found.fix}" if found.fix else found.message
    region = {"startLine": found.line, "startColumn": found.column}
    place = {"artifactLocation": {"uri": found.file.replace("\\", "/")}, "region": region}
    return {
        "ruleId": found.rule,
        "ruleIndex": rule,
        "level": _LEVELS[found.severity],
        "message": {"text": text},
        "locations": [{"physicalLocation": place}],
    }
