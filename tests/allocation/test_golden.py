"""Every recorded answer of the real allocator and CEL environment: results, messages, steps, costs."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from dranet.cli.golden import CelComparison, compare_allocation, compare_file, golden, read_lines

DATA = Path(__file__).parent.parent / "data"


PARTS = 6


@pytest.mark.parametrize("part", range(PARTS))
def test_all_recorded_answers_of_the_1_36_allocator_agree(part: int) -> None:
    lines = list(islice(read_lines(DATA / "allocator-1.jsonl.gz"), part, None, PARTS))
    assert [(line["id"], found) for line in lines if (found := compare_allocation(line))] == []
    assert len(lines) == len(range(part, 2989, PARTS))


def test_all_recorded_answers_of_the_1_37_allocator_agree() -> None:
    compared = list(compare_file(DATA / "allocator-1.37.jsonl.gz"))
    assert [entry for entry in compared if entry[1] is not None] == []
    assert len(compared) == 500


@pytest.mark.parametrize("part", range(PARTS))
def test_all_recorded_answers_of_the_selector_environment_agree(part: int) -> None:
    header, *lines = read_lines(DATA / "cel-1.jsonl.gz")
    comparison = CelComparison(header)
    differing = [(line["expression"], comparison.compare(line)) for line in lines[part::PARTS]]
    assert [entry for entry in differing if entry[1] is not None] == []
    assert len(lines) == 1498


def test_golden_names_a_difference_and_fails(tmp_path: Path) -> None:
    file = tmp_path / "cel.jsonl"
    file.write_text(
        '{"devices": [], "kubernetes": "1.36.4"}\n'
        '{"expression": "1 +", "compile_error": null, "compile_error_new": null}\n'
        '{"expression": "true", "compile_error": null, "compile_error_new": null, "output_type": "bool",'
        ' "cost_estimate": 0, "results": [], "actual_cost": []}\n'
    )
    result = CliRunner().invoke(golden, [str(file)])
    assert result.exit_code == 1
    assert "1 +" in result.output
    assert result.output.endswith("1 of 2 agree\n")


def test_golden_says_where_a_file_is_not_json(tmp_path: Path) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text('{"devices": []}\n{oops\n')
    result = CliRunner().invoke(golden, [str(file)])
    assert result.exit_code == 1
    assert "broken.jsonl:2: not JSON" in result.output
