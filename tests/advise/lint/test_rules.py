"""Every rule reports its bad example and not its good one."""

from __future__ import annotations

import pytest

from dranet.advise.lint import INFO, RULES, Finding, Rule, lint
from dranet.advise.manifests import read_text
from dranet.advise.plan.hardware import Hardware, hardware_of_shapes
from dranet.machines.shape_devices import expand_shape_specs


def hardware(shape: str) -> Hardware | None:
    return hardware_of_shapes(expand_shape_specs([shape])) if shape else None


def found(rule: Rule, text: str) -> list[Finding]:
    objects, problems = read_text(text, "example.yaml")
    return lint(objects, problems, hardware(rule.shape))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_reports_the_bad_example(rule: Rule) -> None:
    (first, *_) = [finding for finding in found(rule, rule.bad) if finding.rule == rule.id]
    assert (first.severity, first.line > 0, bool(first.fix)) == (rule.severity, True, True)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_good_example_has_no_error_and_no_finding_of_the_rule(rule: Rule) -> None:
    left = [f for f in found(rule, rule.good) if f.severity == "error" or (f.rule == rule.id and f.severity != INFO)]
    assert left == []
