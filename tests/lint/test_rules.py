"""Every rule finds its own bad example, and is silent about its good one; so is everybody else."""

from __future__ import annotations

import pytest

from dranet.lint.linting import lint
from dranet.lint.rules import RULES, Finding, Rule
from dranet.lint.rules.base import INFO
from dranet.manifests.reading import read_text
from dranet.predict.hardware import Hardware, hardware_of_shapes
from dranet.topology.shape_devices import nodes_of


def hardware(shape: str) -> Hardware | None:
    return hardware_of_shapes(nodes_of([shape])) if shape else None


def found(rule: Rule, text: str) -> list[Finding]:
    objects, problems = read_text(text, "example.yaml")
    return lint(objects, problems, hardware(rule.shape))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_bad_example_is_found(rule: Rule) -> None:
    (first, *_) = [finding for finding in found(rule, rule.bad) if finding.rule == rule.id]
    assert (first.severity, first.line > 0, bool(first.fix)) == (rule.severity, True, True)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_good_example_is_free_of_errors_and_of_this_rule(rule: Rule) -> None:
    left = [f for f in found(rule, rule.good) if f.severity == "error" or (f.rule == rule.id and f.severity != INFO)]
    assert left == []
