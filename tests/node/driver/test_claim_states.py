"""The table of a claim's states: it is complete, the code has its crash points, and the store checks it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dranet.node
from dranet.node.claim_states import ON_DISK, RESTART, TRANSITIONS, State, crash_points
from dranet.node.faultpoints import FUNCTION_POINTS
from dranet.node.store import UNEXPECTED_TRANSITION

from .conftest import OpenStore
from .test_store import plan


def reachable(start: State, *, backwards: bool = False) -> set[State]:
    edges = [(t.target, t.source) if backwards else (t.source, t.target) for t in TRANSITIONS]
    found = {start}
    while new := {end for begin, end in edges if begin in found} - found:
        found |= new
    return found


def test_every_state_is_described_reached_and_left() -> None:
    assert set(RESTART) == set(ON_DISK) == set(State)
    assert reachable(State.RELEASED) == set(State)
    assert reachable(State.RELEASED, backwards=True) == set(State)


def test_the_code_has_the_crash_points_of_the_table() -> None:
    folder = Path(dranet.node.__path__[0])
    source = "".join(path.read_text() for path in folder.rglob("*.py"))
    in_code = set(re.findall(r'reach\("([a-z_.]+)"\)', source))
    assert in_code - set(FUNCTION_POINTS) == {*crash_points(), *crash_points(reserves=True)}


def test_unexpected_change_is_logged_and_made(open_store: OpenStore, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store()
    store.put(plan("u1"))
    store.change("u1", netns="/run/netns/x")
    store.change("u1", attached=True)
    assert UNEXPECTED_TRANSITION not in caplog.text
    store.delete("u1")  # without a detach
    assert UNEXPECTED_TRANSITION in caplog.text
    assert "old=Attached new=Released" in caplog.text
    assert not store.plans
