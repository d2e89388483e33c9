"""Mistakes in manifests, found before anything is scheduled: every finding has a position and a fix."""

from dranet.advise.lint.fixing import FIXABLE, fix_text
from dranet.advise.lint.linter import at_least, lint, lint_manifests
from dranet.advise.lint.output import finding_text, lint_rules_page, to_github, to_json, to_sarif, to_text
from dranet.advise.lint.rules import ERROR, INFO, RULES, SEVERITIES, WARNING, Finding, Rule

__all__ = [
    "ERROR",
    "FIXABLE",
    "INFO",
    "RULES",
    "SEVERITIES",
    "WARNING",
    "Finding",
    "Rule",
    "at_least",
    "finding_text",
    "fix_text",
    "lint",
    "lint_manifests",
    "lint_rules_page",
    "to_github",
    "to_json",
    "to_sarif",
    "to_text",
]
