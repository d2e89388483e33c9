"""Every recorded answer of the real allocator and CEL environment: results, messages, steps, costs."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.golden import CelComparison, compare_allocation, compare_file, read_lines
from tests.golden.__main__ import main

DATA = Path(__file__).parents[1] / "data"


PARTS = 6


@pytest.mark.parametrize("part", range(PARTS))
def test_all_recorded_answers_of_the_1_36_allocator_agree(part: int) -> None:
    lines = list(islice(read_lines(DATA / "allocator-1.jsonl.gz"), part, None, PARTS))
    assert [(line["id"], found) for line in lines if (found := compare_allocation(line))] == []
    assert len(lines) == len(range(part, 2989, PARTS))


@pytest.mark.parametrize(
    ("recording", "answers"),
    [
        ("allocator-1.37.1", 855),
        ("allocator-1.37.1-all-gates", 427),
        ("allocator-features-1.37.1-default-gates", 600),
        ("allocator-features-1.37.1-all-gates", 600),
        ("cel-1.37.1", 500),
        ("cel-1.37.1-all-gates", 500),
    ],
)
def test_all_recorded_answers_of_kubernetes_1_37_agree(recording: str, answers: int) -> None:
    compared = list(compare_file(DATA / f"{recording}.jsonl.gz"))
    assert [entry for entry in compared if entry[1] is not None] == []
    assert len(compared) == answers


@pytest.mark.parametrize("part", range(PARTS))
def test_all_recorded_answers_of_the_selector_environment_agree(part: int) -> None:
    header, *lines = read_lines(DATA / "cel-1.jsonl.gz")
    comparison = CelComparison(header)
    differing = [(line["expression"], comparison.compare(line)) for line in lines[part::PARTS]]
    assert [entry for entry in differing if entry[1] is not None] == []
    assert len(lines) == 1498


def test_prints_a_difference_and_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cel.jsonl"
    file.write_text(
        '{"devices": [], "kubernetes": "1.36.4"}\n'
        '{"expression": "1 +", "compile_error": null, "compile_error_new": null}\n'
        '{"expression": "true", "compile_error": null, "compile_error_new": null, "output_type": "bool",'
        ' "cost_estimate": 0, "results": [], "actual_cost": []}\n'
    )
    assert main([str(file)]) == 1
    output = capsys.readouterr().out
    assert "1 +" in output
    assert output.endswith("1 of 2 agree\n")


def test_names_the_line_that_is_not_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text('{"devices": []}\n{oops\n')
    assert main([str(file)]) == 2
    assert "broken.jsonl:2: not JSON" in capsys.readouterr().err


def test_a_file_that_does_not_exist_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err
