"""The list of planted faults does not rot, and a sample of it is planted at every run."""

from __future__ import annotations

import pytest

from tests.mutations.planted import FAULTS
from tests.mutations.run import check, survives

SAMPLE = ("the last sandbox of the list wins", "identity of a veth by name", "restore skips the segments")


def test_every_fault_can_still_be_planted_and_its_tests_are_there() -> None:
    assert check() == []


def test_there_are_at_least_forty_and_no_two_have_one_name() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40


@pytest.mark.parametrize("name", SAMPLE)
def test_a_planted_fault_is_noticed(name: str) -> None:
    (fault,) = [fault for fault in FAULTS if fault.name == name]
    assert not survives(fault)
