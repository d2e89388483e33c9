"""Two hundred sequences of a hostile pod on a node where things go wrong; `make campaign` plays as many as you like.

The seeds are fixed, so a failure here is the same failure on the next run; its seed plays alone:
`make campaign N=1 SEED=<seed>`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pytest

from dranet.kernel.namespaces import Namespace, NamespaceError
from tests.adversary import campaign
from tests.adversary.acts import ACTS
from tests.adversary.campaign import Totals, play, told
from tests.adversary.objects import Report

FIRST_SEED, SEQUENCES, PORTIONS = 20_000, 200, 20
pytestmark = pytest.mark.timeout(600)  # most of a sequence is namespaces that die, slowly where all cores are busy


@pytest.fixture(scope="module", autouse=True)
def may_make_namespaces() -> None:
    try:
        Namespace.create().close()
    except NamespaceError as error:
        pytest.skip(f"needs the right to make network namespaces: {error}")


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_nothing_a_pod_does_costs_the_node_a_card(portion: int) -> None:
    each = SEQUENCES // PORTIONS
    first = FIRST_SEED + portion * each
    totals = Totals()
    for report in play(range(first, first + each)):
        totals.add(report)
    assert totals.sequences == each
    assert not totals.wrong, "\n".join(map(told, totals.wrong))


def test_there_are_more_than_twenty_five_kinds_of_acts_and_each_is_tried_where_the_kernel_can() -> None:
    """A campaign whose acts are all refused would prove nothing."""
    totals = Totals()
    for report in play(range(FIRST_SEED, FIRST_SEED + 30)):
        totals.add(report)
    done = {name for name, outcome in totals.acts if outcome == "done"}
    assert len(ACTS) >= 50
    assert len(done) >= 25


def test_a_seed_that_ends_its_process_is_wrong_and_the_others_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    def deadly(seeds: Iterable[int]) -> Iterator[Report]:
        for seed in seeds:
            if seed == 14:
                os._exit(1)
            yield Report(seed)

    monkeypatch.setattr(campaign, "play", deadly)
    reports = {report.seed: report.wrong for report in campaign.play_beside(first=10, count=9, workers=2)}
    assert sorted(reports) == list(range(10, 19))
    assert [seed for seed, wrong in reports.items() if wrong] == [14]
