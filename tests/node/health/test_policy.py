"""The policy file: everything has an entry, operators change single values, mistakes are said."""

from __future__ import annotations

from pathlib import Path

import pytest

from dranet.core.device import FaultKind
from dranet.core.errors import InvalidInput, NotFound
from dranet.node.health.policy import default_policy, read_policy


def test_every_fault_has_words_and_a_severity() -> None:
    policy = default_policy()
    assert set(policy) == set(FaultKind)
    assert all(entry.title and entry.where and entry.remedy for entry in policy.values())


def test_an_operator_changes_one_value_and_keeps_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('[slow-link]\nseverity = "degraded"\n[port-errors.fatal]\nlink_downed = 10\n')
    policy = read_policy(file)
    assert policy[FaultKind.SLOW_LINK].severity == "degraded"
    assert policy[FaultKind.SLOW_LINK].seen == default_policy()[FaultKind.SLOW_LINK].seen
    assert policy[FaultKind.PORT_ERRORS].fatal["link_downed"] == 10
    assert policy[FaultKind.PORT_ERRORS].fatal["symbol_error"] == 120


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[slow-lnk]\nseen = 1", "unknown fault"),
        ('[slow-link]\nseverity = "bad"', "'bad' is not one of broken, degraded, off"),
        ("[slow-link]\nseen = 0", "positive integer"),
        ("[slow-link]\nwindow = 5", "slow-link.window: unknown key"),
        ("[port-errors.fatal]\nlink_downed = -1", "table of counter names"),
        ("slow-link = 3", "must be a table"),
        ("[slow-link", "policy.toml"),
    ],
)
def test_a_mistake_is_reported_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=problem):
        read_policy(file)


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        read_policy(tmp_path / "none.toml")
