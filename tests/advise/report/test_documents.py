"""Every result table and log in the users' five documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from dranet.advise.report.log_reader import read_log
from dranet.advise.report.runs import Run
from dranet.advise.report.verdict import Judged, judge
from tests.advise.report.conftest import LOGS, log


def judged(name: str) -> list[Judged]:
    found = read_log(log(name))
    return [judge(run, {}, (), found.words) for run in found.runs]


def the_run(name: str) -> Run:
    (run,) = read_log(log(name)).runs
    return run


@pytest.mark.parametrize("path", sorted(LOGS.iterdir()), ids=lambda path: path.name)
def test_every_log_is_read_without_a_warning(path: Path) -> None:
    found = read_log(log(path.name))
    assert found.runs
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("name", "rows", "average"),
    [("1-two-workers-eight-nics.log", 24, 59.3638), ("3-mpi-job.log", 24, 15.5188)],
)
def test_averages_over_the_rows_agree_with_what_was_printed(name: str, rows: int, average: float) -> None:
    run = the_run(name)
    assert len(run.rows) == rows
    assert run.printed_average == average
    assert run.row_average == pytest.approx(average, abs=0.01)


def test_the_first_and_last_row_are_those_of_the_table() -> None:
    first, *_, last = the_run("1-two-workers-eight-nics.log").rows
    assert (first.size, first.out_of_place.busbw) == (1024, 0.0)
    assert (last.size, last.out_of_place.algbw, last.out_of_place.busbw) == (8 << 30, 277.36, 260.03)
    assert last.in_place is not None and last.in_place.busbw == 259.25


@pytest.mark.parametrize(
    ("name", "collective", "world", "hosts"),
    [
        ("1-two-workers-eight-nics.log", "all_gather", 16, 2),
        ("1-four-workers-misaligned.log", "all_gather", 16, 4),
        ("2-one-pod.log", "all_gather", 2, 1),
        ("2-two-pods-with-nics.log", "all_gather", 4, 2),
        ("3-mpi-job.log", "all_reduce", 2, 2),
    ],
)
def test_collective_ranks_and_hosts(name: str, collective: str, world: int, hosts: int) -> None:
    run = the_run(name)
    assert (run.collective, run.world, len(run.hosts)) == (collective, world, hosts)


@pytest.mark.parametrize("name", ["1-two-workers-eight-nics.log", "2-one-pod.log", "2-two-pods-with-nics.log"])
def test_aligned_runs_are_as_expected(name: str) -> None:
    (one,) = judged(name)
    assert (one.verdict, one.reasons) == ("as expected", ())


def test_a_run_whose_rows_were_left_out_is_held_against_the_average_of_its_sweep() -> None:
    (one,) = judged("1-four-workers-misaligned.log")
    assert one.verdict == "falls short"
    assert one.comparison is not None and one.comparison.what == "on average over its sizes"
    assert one.reasons[0].startswith("distance: 4 of 4 pods have GPUs of several NUMA nodes")


def test_the_more_misaligned_run_is_farther_from_what_is_expected() -> None:
    shares = []
    for name in ("1-four-workers-misaligned.log", "1-four-workers-more-misaligned.log"):
        (one,) = judged(name)
        assert one.comparison is not None
        shares.append(one.comparison.measured / one.comparison.best)
    assert shares[0] > 0.6 > 0.4 > shares[1]


def test_finds_pods_without_nics_in_ip_addr() -> None:
    (one,) = judged("2-two-pods-without-nics.log")
    assert one.verdict == "no result"
    assert one.reasons == (
        "no NIC in the pod: ip addr shows only lo and eth0, so ranks on other hosts cannot be reached",
    )


def test_document_3_is_held_back_by_one_pair_that_is_far_apart() -> None:
    (one,) = judged("3-mpi-job.log")
    assert one.verdict == "held back by the allocation"
    assert one.reasons == (
        "distance: nccl-test-dranet-1gpu-1nic-worker-0: gpu-7 to mlx5_2 is SYS, too far for GPUDirect",
    )


def test_document_4s_unaligned_run_differs_from_its_aligned_ones() -> None:
    first, second, third = judged("4-results.md")
    assert [first.run.average, second.run.average, third.run.average] == [56.0, 112.0, 25.0]
    assert [first.verdict, second.verdict] == ["as expected", "as expected"]
    assert third.verdict == "held back by the allocation"
    assert [reason.split(":")[0] for reason in third.reasons] == ["distance", "GPUDirect RDMA is off (1 of 1 lines)"]


def test_document_4s_unaligned_run_is_found_even_where_the_machine_is_unknown() -> None:
    first, _, third = [judge(run, {}) for run in read_log(log("4-results.md")).runs]
    assert first.verdict == "nothing to compare with"
    assert third.verdict == "falls short"


def test_document_5s_log_has_no_figures_but_shows_gpudirect_at_work() -> None:
    (one,) = judged("5-ray-nccl.log")
    assert (one.verdict, one.run.evidence.networks) == ("no figures", ("gIB",))
    assert one.run.evidence.direct and not one.run.evidence.staged
