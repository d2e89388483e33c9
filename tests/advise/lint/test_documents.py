"""Manifests from published documents: every mistake is found at its position."""

from __future__ import annotations

from pathlib import Path

import pytest

from dranet.advise.lint import Finding, at_least, lint
from dranet.advise.manifests import read_files
from dranet.advise.plan.hardware import hardware_of_shapes
from dranet.machines.shape_devices import expand_shape_specs

DOCUMENTS = Path(__file__).parents[2] / "data" / "documents"
SHAPES = {"1": "a4-highgpu-8g", "2": "a4-highgpu-8g", "3": "a3-ultragpu-8g", "4": "nd-gb300-v6", "5": "a4-highgpu-8g"}


def findings(document: str, rule: str = "") -> list[Finding]:
    objects, problems = read_files(sorted(DOCUMENTS.glob(f"{document}-*.yaml")))
    hardware = hardware_of_shapes(expand_shape_specs([SHAPES[document]]))
    return [f for f in lint(objects, problems, hardware) if rule in {"", f.rule}]


def position(finding: Finding) -> tuple[str, int, int]:
    return (Path(finding.file).name, finding.line, finding.column)


def test_document_2_lacks_a_parenthesis() -> None:
    (finding,) = findings("2", "cel-syntax")
    assert position(finding) == ("2-template-nic.yaml", 18, 79)
    assert finding.message == "Syntax error: missing ')' at '<EOF>' (line 1, column 224 of the expression)"


def test_document_3_has_its_config_in_the_wrong_position() -> None:
    (finding,) = findings("3", "misplaced-field")
    assert position(finding) == ("3-template.yaml", 15, 5)
    assert 'unknown field "spec.spec.config": config belongs under devices' in finding.message


def test_fix_for_document_3_shows_the_corrected_lines() -> None:
    (finding,) = findings("3", "misplaced-field")
    assert "      config:\n      - opaque:\n          driver: dra.net" in finding.fix


def test_document_1_has_a_selector_that_is_always_true() -> None:
    (finding,) = [f for f in findings("1", "selector-always-true") if f.severity == "warning"]
    assert position(finding)[0] == "1-template-4nics.yaml"
    assert "always true: matches all 8 devices" in finding.message


@pytest.mark.parametrize(("document", "count"), [("1", 2), ("3", 1), ("5", 1)])
def test_gpu_limits_cannot_be_aligned(document: str, count: int) -> None:
    assert len(findings(document, "gpus-not-alignable")) == count


def test_nothing_is_concluded_about_gpu_limits_without_the_templates_file() -> None:
    objects, problems = read_files([DOCUMENTS / "1-workload-4workers.yaml"])
    assert "gpus-not-alignable" not in {f.rule for f in lint(objects, problems)}


def test_document_2_has_gpus_and_nics_in_two_claims() -> None:
    (finding,) = findings("2", "no-alignment-constraint")
    assert "a constraint cannot span two claims" in finding.message


def test_document_4_has_one_unaligned_template() -> None:
    assert [position(f)[0] for f in findings("4", "no-alignment-constraint")] == ["4-1nic-unaligned.yaml"]


@pytest.mark.parametrize("document", ["1", "2", "5"])
def test_old_api_versions_are_reported(document: str) -> None:
    assert findings(document, "api-version")


@pytest.mark.parametrize(("document", "wrong"), [("1", False), ("2", True), ("3", True), ("4", False), ("5", False)])
def test_only_what_a_server_rejects_is_an_error(document: str, wrong: bool) -> None:
    assert at_least(findings(document), "error") is wrong
