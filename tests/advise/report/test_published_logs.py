"""Logs that people published, in the formats of many versions, launchers and web pages."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from dranet.advise.report.log_reader import read_log
from dranet.advise.report.rendering import to_text
from dranet.advise.report.verdict import judge
from dranet.machines.machine import machine_of_shape
from dranet.machines.shape import load_shape
from tests.advise.report.conftest import DATA

FOLDER = DATA / "published-logs"
LOGS = tomllib.loads((FOLDER / "sources.toml").read_text("utf-8"))["logs"]


def text_of(log: dict[str, Any]) -> str:
    return (FOLDER / f"{log['name']}.log").read_text("utf-8")


def test_there_are_25_logs_and_each_has_a_source() -> None:
    assert len({log["name"] for log in LOGS}) >= 25
    assert {f"{log['name']}.log" for log in LOGS} == {path.name for path in FOLDER.glob("*.log")}
    assert all(log["source"].startswith("https://") for log in LOGS)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log["name"])
def test_a_published_log_is_judged_by_what_it_shows(log: dict[str, Any]) -> None:
    found = read_log(text_of(log))
    assert len(found.runs) == len(log["runs"])
    for run, stated in zip(found.runs, log["runs"], strict=True):
        one = judge(run, {}, (), found.words)
        assert (run.collective, run.world) == (stated.get("collective", ""), stated.get("ranks"))
        assert len(run.rows) == stated["rows"]
        assert (run.peak is None) == ("peak" not in stated)
        assert run.peak is None or run.peak[0] == pytest.approx(stated["peak"], abs=1e-4)
        assert one.verdict == stated["verdict"]
        assert one.reasons[0].startswith(stated["reason"]) if "reason" in stated else not one.reasons


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log["name"])
def test_a_log_cut_anywhere_is_still_read(log: dict[str, Any]) -> None:
    text = text_of(log)
    for end in range(0, len(text), max(1, len(text) // 40)):
        found = read_log(text[end:]).runs + read_log(text[:end]).runs
        to_text([judge(run, {}) for run in found])


@pytest.mark.parametrize(
    "prefix",
    [
        "node-1: ",
        "nccl-worker-0 nccl ",
        "2025-07-14 10:44:41,120 ",
        "[2025-07-14 10:44:41] ",
        "2025-07-14T10:44:41.123456789Z stdout F ",
        "[prterun-head-4122@1,0]<stdout>: ",
        "Mon Nov 17 11:00:00 2025<stdout>: ",
        "[rank0]: ",
        "[default0]:",
        "I0714 10:44:41.123456       1 main.go:12] ",
        "> ",
    ],
)
def test_prefixes_of_more_collectors_do_not_matter(prefix: str) -> None:
    log = next(log for log in LOGS if log["name"] == "nccl-tests-252")
    marked = "\n".join(prefix + line for line in text_of(log).splitlines())
    assert read_log(marked).runs == read_log(text_of(log)).runs


def test_two_runs_stand_side_by_side() -> None:
    runs = read_log(next(text_of(log) for log in LOGS if log["name"] == "perftest-65")).runs
    lines = to_text([judge(run, {}) for run in runs]).splitlines()
    assert lines[0].split() == ["run", "peak", "GB/s", "at", "average", "expected", "verdict"]
    assert [line.split()[3] for line in lines[1:3]] == ["5.81", "0.96"]


def test_columns_of_rccl_after_the_figures_are_not_figures() -> None:
    header = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong algo proto nchannels"
    row = " 1048576 262144 float sum -1 76.26 13.75 25.78 0 76.43 13.72 25.72 0 Direct SIMPLE 32"
    (run,) = read_log(f"{header}\n{row}\n").runs
    assert run.rows[0].in_place is not None
    assert (run.rows[0].out_of_place.busbw, run.rows[0].in_place.busbw) == (25.78, 25.72)


def test_both_directions_of_perftest_are_compared_with_both() -> None:
    machine = machine_of_shape(load_shape("a3-ultragpu-8g"), "n")
    name = machine.nics[0].title
    columns = "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]"
    table = f" Device : {name}\n {columns}\n 65536 5000 0.00 740.0 0.7\n"
    one, both = (
        judge(read_log(f"  RDMA_Write {way}BW Test\n{table}").runs[0], {"n": machine}) for way in ("", "Bidirectional ")
    )
    assert one.expected is not None and both.expected is not None
    assert both.expected.best.gbytes == 2 * one.expected.best.gbytes
    assert both.verdict == "as expected"


def test_a_shape_that_contradicts_the_rank_lines_is_not_compared() -> None:
    ranks = "".join(f"#  Rank {n} Group 0 Pid 1 on w{n} device 0 [0000:01:00] NVIDIA H100 80GB HBM3\n" for n in (0, 1))
    text = f"# Collective test starting: all_reduce_perf\n{ranks} 1048576 262144 float sum -1 50.0 20.97 20.97 0\n"
    found = judge(read_log(text).runs[0], {"n": machine_of_shape(load_shape("a4-highgpu-8g"), "n")})
    assert found.reasons[0].startswith("the log has NVIDIA H100 80GB HBM3, but a4-highgpu-8g has NVIDIA B200")


def test_a_shape_is_obeyed_for_some_of_its_gpus() -> None:
    ranks = "".join(f"#  Rank {n} Group 0 Pid 1 on w{n} device 0 [0000:01:00] NVIDIA B200\n" for n in (0, 1))
    text = f"# Collective test starting: all_reduce_perf\n{ranks} 8589934592 262144 float sum -1 50.0 45.9 45.9 0\n"
    found = judge(read_log(text).runs[0], {"n": machine_of_shape(load_shape("a4-highgpu-8g"), "n")})
    assert found.expected is not None and not found.expected.nics_known
