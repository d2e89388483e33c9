"""Other programs, other versions, other collectors of logs."""

from __future__ import annotations

import pytest

from dranet.advise.report.log_reader import clean, read_log
from dranet.advise.report.runs import Run
from tests.advise.report.conftest import log

OLD = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid  10 on alpha device  0 [0x8f] Tesla V100-SXM2-16GB
#   Rank  1 Pid  11 on beta device  1 [0x90] Tesla V100-SXM2-16GB
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
    67108864      16777216   float     sum   1000.0   67.11   67.11  2e-07    990.0   67.79   67.79  0e+00
   134217728      33554432   float     sum   2000.0   67.11   67.11    N/A   1990.0   67.45   67.45    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 67.365
"""

NEW = """\
# Collective test starting: {name}_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1048576 step: 1048576(bytes) warmup iters: 1 iters: 20 agg iters: 1
#  Rank  0 Group  0 Pid  1 on a device  0 [0000:8f:00] NVIDIA B200
#  Rank  1 Group  0 Pid  2 on b device  0 [0000:8f:00] NVIDIA B200
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
     1048576        262144  bfloat16   {op}    {root}    50.0   20.97   20.97       0    50.0   20.97   20.97     N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 20.97
#
# Collective test concluded: {name}_perf
"""

PERFTEST = """\
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : mlx5_3
 Link type       : Ethernet
 #bytes     #iterations    BW peak[{unit}/sec]    BW average[{unit}/sec]   MsgRate[Mpps]
 65536      5000             {value}             {value}                     0.746951
"""


def one(text: str) -> Run:
    (run,) = read_log(text).runs
    return run


def test_tables_of_old_versions_without_a_root_and_with_errors() -> None:
    run = one(OLD)
    assert [row.size for row in run.rows] == [67108864, 134217728]
    assert (run.collective, run.wrong) == ("all_reduce", 0)
    assert run.row_average == pytest.approx(67.365)
    assert [rank.address for rank in run.ranks] == ["8f", "90"]


@pytest.mark.parametrize(
    ("name", "op", "root"),
    [
        ("all_reduce", "sum", -1),
        ("all_gather", "none", -1),
        ("reduce_scatter", "sum", -1),
        ("alltoall", "none", -1),
        ("broadcast", "none", 0),
        ("reduce", "sum", 0),
        ("gather", "none", 0),
        ("scatter", "none", 0),
        ("sendrecv", "sum", -1),
        ("hypercube", "none", -1),
    ],
)
def test_every_collective_is_read_and_named(name: str, op: str, root: int) -> None:
    run = one(NEW.format(name=name, op=op, root=root))
    assert (run.collective, run.printed_average, len(run.rows)) == (name, 20.97, 1)


@pytest.mark.parametrize(
    ("op", "root", "algbw", "busbw", "collective"),
    [
        ("sum", -1, 20, 20, "all_reduce"),
        ("sum", -1, 20, 10, "reduce_scatter"),
        ("none", -1, 20, 10, "all_gather"),
        ("none", 0, 20, 20, "broadcast"),
        ("sum", 0, 20, 20, "reduce"),
    ],
)
def test_a_table_without_a_name_is_known_by_its_rows(
    op: str, root: int, algbw: float, busbw: float, collective: str
) -> None:
    header = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    rank = "#  Rank {n} Group  0 Pid  1 on a device  0 [0000:8f:00] NVIDIA B200\n"
    text = f"# nThread 1\n{rank.format(n=0)}{rank.format(n=1)}{header} 1024 256 float {op} {root} 9 {algbw} {busbw} 0\n"
    assert one(text).collective == collective


def test_a_run_with_one_way_only_has_no_in_place_figures() -> None:
    header = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    (row,) = one(f"{header} 1024 256 float sum -1 9.5 1.5 1.25 0\n").rows
    assert (row.out_of_place.algbw, row.out_of_place.busbw, row.in_place) == (1.5, 1.25, None)


def test_several_runs_in_one_file_stay_apart_and_in_order() -> None:
    runs = read_log(log("3-mpi-job.log") + OLD + NEW.format(name="alltoall", op="none", root=-1)).runs
    assert [(run.collective, len(run.rows)) for run in runs] == [("all_reduce", 24), ("all_reduce", 2), ("alltoall", 1)]


@pytest.mark.parametrize(
    "prefix",
    [
        "[prterun-launcher-1@1,0]<stdout>: ",
        "[pod/job-launcher-x/launcher] ",
        "[1,0]<stdout>:",
        "2025-07-14T10:44:41.326Z ",
        "(Worker pid=3590, ip=10.48.4.17) ",
        "(head, rank=0, pid=4122) ",
        "(worker1, rank=1, pid=3071, ip=10.48.4.17) ",
        "0: ",
        "\x1b[36m(Worker pid=3590, ip=10.48.4.17)\x1b[0m ",
        "[pod/a/b] 2025-07-14T10:44:41Z [1,0]<stdout>:",
    ],
)
def test_prefixes_of_collectors_do_not_matter(prefix: str) -> None:
    marked = "\n".join(prefix + line for line in OLD.splitlines())
    assert one(marked) == one(OLD)


def test_a_line_without_prefix_is_left_as_it_is() -> None:
    assert clean("# Rank  0 on [0x8f]") == "# Rank  0 on [0x8f]"


def test_a_broken_row_is_a_warning_with_its_line() -> None:
    found = read_log(OLD.replace("67.45   67.45", "67.45   6x.45"))
    assert len(found.runs[0].rows) == 1
    assert found.warnings[0].startswith("line 11: cannot read this result: 134217728")


def test_wrong_values_are_counted() -> None:
    assert one(OLD.replace("values : 0 OK", "values : 7 FAILED")).wrong == 7


@pytest.mark.parametrize(("unit", "value", "gbytes"), [("Gb", "391.6", 48.95), ("MB", "46683.31", 48.951)])
def test_perftest_in_both_of_its_units(unit: str, value: str, gbytes: float) -> None:
    run = one(PERFTEST.format(unit=unit, value=value))
    assert (run.collective, run.evidence.nics) == ("ib_write_bw", {"": ("mlx5_3",)})
    assert run.average == pytest.approx(gbytes, abs=0.01)


def test_perftest_with_the_load_of_the_cpu() -> None:
    text = (
        " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]    CPU_Util[%]\n"
        " 65536      5000             46532.23            46530.11\t\t   0.744482\t    3.52\n"
    )
    (run,) = read_log(text).runs
    assert [round(row.out_of_place.busbw, 2) for row in run.rows] == [48.79]


def test_text_without_results_has_no_runs() -> None:
    assert read_log("hello\nworld 1 2 3\n").runs == ()
