"""Lint in CI: ignore comments, disabled rules, exit status and SARIF."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from dranet.advise.lint import RULES, lint
from dranet.advise.manifests import read_text
from dranet.cli.lint import lint as lint_command
from dranet.cli.plan import plan as plan_command
from tests.inputs import claim, run

ROOT = Path(__file__).parents[3]
PAIR = claim("gpu: gpu.nvidia.com\nnic: dranet").removesuffix("---\n")
RULE = "no-alignment-constraint"


def rules_of(text: str) -> list[str]:
    return [finding.rule for finding in lint(*read_text(text, "f.yaml"))]


def run_lint(tmp_path: Path, text: str, *args: str) -> Result:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    return run("lint", path, *args)


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
def test_ignore_comment_applies_to_its_scope(before: str, after: str) -> None:
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
def test_ignore_comment_applies_to_nothing_else(before: str, after: str) -> None:
    assert rules_of(PAIR.replace(before, after, 1)) == [RULE]


def test_ignore_comment_ends_with_its_document() -> None:
    other = PAIR.replace("name: t", "name: u")
    assert rules_of(f"# dranet: ignore[{RULE}]\n{PAIR}---\n{other}") == [RULE]


def test_reports_an_unknown_rule_in_an_ignore_comment() -> None:
    (finding,) = lint(*read_text("# dranet: ignore[no-alignement]\napiVersion: v1\nkind: Pod\n", "f.yaml"))
    assert (finding.rule, finding.line, finding.fix) == ("unknown-ignore", 1, f"did you mean {RULE}?")


def test_disable_removes_a_rule(tmp_path: Path) -> None:
    assert RULE in run_lint(tmp_path, PAIR).stdout
    assert RULE not in run_lint(tmp_path, PAIR, "--disable", RULE).stdout


def test_disable_rejects_an_unknown_rule(tmp_path: Path) -> None:
    done = run_lint(tmp_path, PAIR, "--disable", "no-alignement")
    assert (done.exit_code, "did you mean no-alignment-constraint?" in done.stderr) == (2, True)


@pytest.mark.parametrize(("fail_on", "code"), [("error", 0), ("warning", 1), ("info", 1), ("never", 0)])
def test_fail_on_sets_the_lowest_failing_severity(tmp_path: Path, fail_on: str, code: int) -> None:
    assert run_lint(tmp_path, PAIR, "--fail-on", fail_on).exit_code == code


def test_an_error_fails_unless_fail_on_is_never(tmp_path: Path) -> None:
    wrong = PAIR.replace("deviceClassName: dranet", "deviceClass: dranet")
    assert (run_lint(tmp_path, wrong).exit_code, run_lint(tmp_path, wrong, "--fail-on", "never").exit_code) == (1, 0)


def test_sarif_has_every_rule_and_position(tmp_path: Path) -> None:
    made = json.loads(run_lint(tmp_path, PAIR, "-o", "sarif").stdout)
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
    ("args", "code", "message"),
    [
        (["--shape", "nd-gb300-v6"], 0, ""),
        (
            ["--shape", "nd-gb300-v6", "--fail-on", "misaligned"],
            1,
            "1 with a NIC too far from its GPU: 1nic-unaligned",
        ),
        (["--shape", "nd-gb300-v6", "--fail-on", "unschedulable"], 0, ""),
        (["--shape", "a4-highgpu-8g", "--fail-on", "unschedulable"], 1, "1 cannot be scheduled: 1nic-unaligned"),
        (["--shape", "a4-highgpu-8g", "--fail-on", "misaligned"], 0, ""),
    ],
)
def test_plan_fail_on(args: list[str], code: int, message: str) -> None:
    done = run("plan", "-f", UNALIGNED, *args)
    assert (done.exit_code, message in done.stderr) == (code, True), done.stderr


def test_hook_and_action_use_existing_options() -> None:
    options = {name for param in lint_command.params for name in param.opts}
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "dranet lint" and hook["pass_filenames"] is True
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    lines = [line for step in action["runs"]["steps"] for line in step.get("run", "").splitlines() if "dranet" in line]
    used = {word for line in lines for word in line.split() if word.startswith("--")}
    plan_options = {name for param in plan_command.params for name in param.opts}
    assert used - options - plan_options == set() and used
