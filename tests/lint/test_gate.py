"""Lint as a gate: what can be left out, where, and when it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from dranet.cli.lint import lint as lint_command
from dranet.cli.plan import plan as plan_command
from dranet.lint.linting import lint
from dranet.lint.rules import RULES
from dranet.manifests.reading import read_text
from tests.worlds import claim

ROOT = Path(__file__).parent.parent.parent
PAIR = claim("gpu: gpu.nvidia.com\nnic: dranet").removesuffix("---\n")
RULE = "no-alignment-constraint"


def rules_of(text: str) -> list[str]:
    return [finding.rule for finding in lint(*read_text(text, "f.yaml"))]


def run(tmp_path: Path, text: str, *args: str) -> Result:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    return CliRunner().invoke(lint_command, [str(path), *args])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("apiVersion: res", f"# dranet: ignore[{RULE}] whole machines only\napiVersion: res"),
        ("      requests:", f"      # dranet: ignore[{RULE}]\n      requests:"),
        ("      - {name: nic", f"      # dranet: ignore[{RULE}, api-version]\n      - {{name: nic"),
        ("dranet}}", f"dranet}}}}  # dranet: ignore[{RULE}]"),
        ("      requests:", "      # dranet: ignore\n      requests:"),
    ],
    ids=["document", "block", "item", "line", "all rules"],
)
def test_an_ignore_comment_silences_its_place(before: str, after: str) -> None:
    assert rules_of(PAIR) == [RULE]
    assert rules_of(PAIR.replace(before, after, 1)) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("kind:", f"# dranet: ignore[{RULE}]\nkind:"),
        ("      - {name: gpu", f"      # dranet: ignore[{RULE}]\n      - {{name: gpu"),
        ("      requests:", "      # dranet: ignore[api-version]\n      requests:"),
        ("      requests:", "      # ignore this\n      requests:"),
    ],
    ids=["another field", "another item", "another rule", "another comment"],
)
def test_an_ignore_comment_silences_nothing_else(before: str, after: str) -> None:
    assert rules_of(PAIR.replace(before, after, 1)) == [RULE]


def test_an_ignore_comment_ends_with_its_document() -> None:
    other = PAIR.replace("name: t", "name: u")
    assert rules_of(f"# dranet: ignore[{RULE}]\n{PAIR}---\n{other}") == [RULE]


def test_an_ignore_comment_for_a_rule_that_does_not_exist_is_found() -> None:
    (finding,) = lint(*read_text("# dranet: ignore[no-alignement]\napiVersion: v1\nkind: Pod\n", "f.yaml"))
    assert (finding.rule, finding.line, finding.fix) == ("unknown-ignore", 1, f"did you mean {RULE}?")


def test_a_rule_can_be_left_out(tmp_path: Path) -> None:
    assert RULE in run(tmp_path, PAIR).stdout
    assert RULE not in run(tmp_path, PAIR, "--disable", RULE).stdout


def test_a_misspelt_rule_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, PAIR, "--disable", "no-alignement")
    assert (done.exit_code, "did you mean no-alignment-constraint?" in done.stderr) == (2, True)


@pytest.mark.parametrize(("fail_on", "code"), [("error", 0), ("warning", 1), ("info", 1), ("never", 0)])
def test_it_fails_from_the_severity_that_was_asked_for(tmp_path: Path, fail_on: str, code: int) -> None:
    assert run(tmp_path, PAIR, "--fail-on", fail_on).exit_code == code


def test_an_error_fails_unless_nothing_is_to(tmp_path: Path) -> None:
    wrong = PAIR.replace("deviceClassName: dranet", "deviceClass: dranet")
    assert (run(tmp_path, wrong).exit_code, run(tmp_path, wrong, "--fail-on", "never").exit_code) == (1, 0)


def test_sarif_has_every_rule_and_the_place_of_every_finding(tmp_path: Path) -> None:
    made = json.loads(run(tmp_path, PAIR, "-o", "sarif").stdout)
    (one,) = made["runs"]
    assert made["version"] == "2.1.0"
    assert [rule["id"] for rule in one["tool"]["driver"]["rules"]] == list(RULES)
    (result,) = one["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (result["ruleId"], result["level"], place["region"]) == (
        RULE,
        "warning",
        {"startLine": 9, "startColumn": 21},
    )
    assert one["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == RULE


UNALIGNED = str(ROOT / "examples" / "4-aks-gb300" / "unaligned.yaml")


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--shape", "nd-gb300-v6"], 0, ""),
        (
            ["--shape", "nd-gb300-v6", "--fail-on", "misaligned"],
            1,
            "1 with a card too far from its GPU: 1nic-unaligned",
        ),
        (["--shape", "nd-gb300-v6", "--fail-on", "unschedulable"], 0, ""),
        (["--shape", "a4-highgpu-8g", "--fail-on", "unschedulable"], 1, "1 cannot be scheduled: 1nic-unaligned"),
        (["--shape", "a4-highgpu-8g", "--fail-on", "misaligned"], 0, ""),
    ],
)
def test_plan_fails_on_what_it_is_asked_to(args: list[str], code: int, said: str) -> None:
    done = CliRunner().invoke(plan_command, ["-f", UNALIGNED, *args])
    assert (done.exit_code, said in done.stderr) == (code, True), done.stderr


def test_the_hook_and_the_action_call_options_that_exist() -> None:
    options = {name for param in lint_command.params for name in param.opts}
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "dranet lint" and hook["pass_filenames"] is True
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    lines = [line for step in action["runs"]["steps"] for line in step.get("run", "").splitlines() if "dranet" in line]
    used = {word for line in lines for word in line.split() if word.startswith("--")}
    plan_options = {name for param in plan_command.params for name in param.opts}
    assert used - options - plan_options == set() and used
