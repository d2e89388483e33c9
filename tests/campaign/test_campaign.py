"""Two hundred sequences of a malicious pod on a node with faults; `make campaign` runs more.

The seeds are fixed, so a failure is the same on the next run. To repeat one: `make campaign N=1 SEED=<seed>`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pytest

from dranet.linux.namespaces import Namespace, NamespaceError
from tests.campaign.attacks import ACTS
from tests.campaign.campaign import Totals, describe, run_in_parallel, run_sequences
from tests.campaign.cluster_objects import Report

FIRST_SEED, SEQUENCES, PORTIONS = 20_000, 200, 20
pytestmark = pytest.mark.timeout(600)  # the kernel removes namespaces slowly while all cores are busy


@pytest.fixture(scope="module", autouse=True)
def requires_namespaces() -> None:
    try:
        Namespace.create().close()
    except NamespaceError as error:
        pytest.skip(f"cannot create network namespaces: {error}")


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_no_attack_costs_the_node_a_nic(portion: int) -> None:
    each = SEQUENCES // PORTIONS
    first = FIRST_SEED + portion * each
    totals = Totals()
    for report in run_sequences(range(first, first + each)):
        totals.add(report)
    assert totals.sequences == each
    assert not totals.wrong, "\n".join(map(describe, totals.wrong))


def test_campaign_runs_at_least_25_kinds_of_attacks() -> None:
    """A campaign whose attacks are all refused would prove nothing."""
    totals = Totals()
    for report in run_sequences(range(FIRST_SEED, FIRST_SEED + 30)):
        totals.add(report)
    done = {name for name, outcome in totals.acts if outcome == "done"}
    assert len(ACTS) >= 50
    assert len(done) >= 25


def test_a_seed_that_kills_its_process_fails_and_the_others_run() -> None:
    def deadly(seeds: Iterable[int]) -> Iterator[Report]:
        for seed in seeds:
            if seed == 14:
                os._exit(1)
            yield Report(seed)

    reports = {report.seed: report.wrong for report in run_in_parallel(first=10, count=9, workers=2, run=deadly)}
    assert sorted(reports) == list(range(10, 19))
    assert [seed for seed, wrong in reports.items() if wrong] == [14]
