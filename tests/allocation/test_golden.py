"""Every recorded answer of the real allocator and CEL environment: results, messages, steps, costs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dranet.cli.golden import compare_file, golden

DATA = Path(__file__).parent.parent / "data"


@pytest.mark.parametrize(
    ("name", "cases"),
    [("allocator-1.jsonl.gz", 2989), ("allocator-1.37.jsonl.gz", 500), ("cel-1.jsonl.gz", 1498)],
)
def test_all_recorded_answers_agree(name: str, cases: int) -> None:
    compared = list(compare_file(DATA / name))
    assert [entry for entry in compared if entry[1] is not None] == []
    assert len(compared) == cases


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
