"""Reasons, each from its evidence."""

from __future__ import annotations

import pytest

from dranet.advise.report.expectation import AllocatedClaim
from dranet.advise.report.log_reader import read_log
from dranet.advise.report.rendering import to_text
from dranet.advise.report.verdict import Judged, judge
from dranet.machines.machine import Machine, machine_of_shape
from dranet.machines.shape import load_shape

A4 = {"n1": machine_of_shape(load_shape("a4-highgpu-8g"), "n1")}
GPUS = ("0000:8f:00", "0000:90:00")


def a_log(busbw: float, *info: str, size: int = 8 << 30, gpus: int = 1) -> str:
    ranks = [
        f"#  Rank {host * gpus + n} Group 0 Pid 1 on w{host} device {n} [{GPUS[n]}] NVIDIA B200"
        for host in (0, 1)
        for n in range(gpus)
    ]
    messages = [f"w0:1:2 [0] NCCL INFO {line}" for line in info]
    header = "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    return "\n".join(
        [
            "# Collective test starting: all_reduce_perf",
            "# nThread 1",
            *ranks,
            *messages,
            header,
            f" {size} 2 float sum -1 9 {busbw} {busbw} 0",
            "",
        ]
    )


def nic(n: int, machines: dict[str, Machine] = A4) -> tuple[str, str]:
    return machines["n1"].nics[n].id


def judged(text: str, *nics: int) -> Judged:
    claims = [AllocatedClaim("claim", "n1", tuple(nic(n) for n in nics), ("w0",))] if nics else []
    (run,) = read_log(text).runs
    return judge(run, A4, claims)


def test_expects_the_line_rate_of_a_near_nic() -> None:
    one = judged(a_log(46.6), 0)
    assert one.expected is not None and one.expected.allocated.gbytes == pytest.approx(46.25)
    assert one.verdict == "as expected"


def test_names_a_far_nic_of_a_claim() -> None:
    one = judged(a_log(30.0), 5)
    assert one.verdict == "held back by the allocation"
    assert one.reasons[0].startswith("distance: w0: gpu-0 to mlx5_5 is SYS; w1: gpu-0 to mlx5_5 is SYS")


def test_claims_belong_to_the_pods_they_are_reserved_for() -> None:
    claims = [AllocatedClaim("a", "n1", (nic(0),), ("w0",)), AllocatedClaim("b", "n1", (nic(5),), ("w1",))]
    one = judge(read_log(a_log(32.0)).runs[0], A4, claims)
    assert one.reasons == ("distance: w1: gpu-0 to mlx5_5 is SYS, too far for GPUDirect",)


def test_reports_fewer_nics_used_than_allocated() -> None:
    one = judged(a_log(30, "Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0/GDRDMA", gpus=2), 0, 1)
    assert one.reasons == ("fewer NICs used than allocated: channels use 1 of 2",)


def test_reports_gpudirect_off_with_a_near_nic() -> None:
    one = judged(a_log(20, "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0"), 0)
    assert one.verdict == "falls short"
    assert one.reasons[0].startswith("GPUDirect RDMA is off (1 of 1 lines): Channel 00/0")


def test_gpudirect_disabled_in_nccls_words() -> None:
    one = judged(a_log(20, "GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance 9 > 5)"), 0)
    assert "distance 9 > 5" in one.reasons[0]


def test_sockets_over_the_pod_network() -> None:
    info = ("NET/IB : No device found.", "NET/Socket : Using [0]eth0:10.0.0.7<0>", "Using network Socket")
    one = judged(a_log(2, *info), 0)
    assert one.reasons[0] == "wrong interface: NCCL used sockets over eth0 instead of RDMA"
    assert one.reasons[1] == "NCCL warned: NET/IB : No device found."


def test_uses_nics_of_the_log_without_a_claim() -> None:
    one = judged(a_log(30, "NET/IB : Using [0]mlx5_5:1/RoCE [RO]; OOB eth0:10.0.0.7<0>"))
    assert one.verdict == "held back by the allocation"
    assert "mlx5_5 is SYS" in one.reasons[0]


def test_small_messages_only() -> None:
    one = judged(a_log(3.5, size=65536), 0)
    assert one.verdict == "falls short"
    assert one.reasons == ("only small messages, up to 65536 bytes: they measure latency, not bandwidth",)


def test_several_reasons_stand_in_the_order_of_their_weight() -> None:
    info = ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0", "NCCL_IB_DISABLE set by environment to 1")
    one = judged(a_log(1, *info, size=65536, gpus=2), 4, 5)
    assert [reason.split()[0] for reason in one.reasons] == ["distance:", "fewer", "GPUDirect", "wrong", "only"]


def test_reports_traffic_through_eth0() -> None:
    one = judged(a_log(1) + "# Traffic of w0: dranet0 0 eth0 5000\n", 0)
    assert "NICs without traffic: w0: dranet0" in one.reasons
    assert "wrong interface: 100% of the bytes of w0 went through eth0" in one.reasons


def test_wrong_values_outweigh_any_speed() -> None:
    text = a_log(46.6).replace("46.6 46.6 0", "46.6 46.6 3")
    assert judged(text, 0).verdict == "wrong results"


def test_without_a_machine_nothing_is_claimed() -> None:
    (run,) = read_log(a_log(10).replace("B200", "Z9")).runs
    one = judge(run, {})
    assert (one.verdict, one.expected) == ("nothing to compare with", None)
    assert one.reasons[0].startswith("the machine of this run is unknown")


def test_compares_nics_without_gpus_with_their_line_rate() -> None:
    text = a_log(40).replace(f"device 0 [{GPUS[0]}] NVIDIA B200", "")
    one = judged(text, 0)
    assert one.expected is not None and one.expected.allocated.gbytes == pytest.approx(46.25)
    assert one.verdict == "as expected"


def test_a_run_that_lost_a_worker_is_not_called_slow() -> None:
    text = a_log(20).replace("# nThread 1", "# nThread 1 minBytes 8589934592 maxBytes 17179869184 step: 2(factor)")
    lost = "mpirun noticed that process rank 1 with PID 0 on node w1 exited on signal 9 (Killed)."
    one = judged(text + lost, 0)
    assert one.verdict == "incomplete"
    assert one.reasons == ("the log ends after 1 of 2 sizes", f"lost a rank: {lost}")


def test_the_algorithm_of_the_log_is_the_one_compared_with() -> None:
    tuned = "AllReduce: 8589934592 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}"
    forced = "NCCL_ALGO set by environment to Tree"
    named = [judged(a_log(60, info, gpus=2), 0, 1).expected for info in (tuned, forced, "nothing")]
    assert [one.allocated.algorithm for one in named if one] == ["Ring", "Tree", "Ring"]


def test_a_percentage_is_printed_with_both_its_numbers() -> None:
    text = to_text([judged(a_log(20.0), 0)])
    assert "20.0 GB/s at its best size, 43% of the 46.2 expected" in text


def test_a_collective_the_model_does_not_know_is_compared_with_nothing() -> None:
    text = a_log(20.0).replace("all_reduce_perf", "hypercube_perf")
    one = judged(text, 0)
    assert one.verdict == "nothing to compare with"
    assert one.reasons[0].startswith("hypercube is not in the model")


def test_a_log_without_rank_lines_has_unknown_devices_not_none() -> None:
    text = "\n".join(line for line in a_log(46.6).splitlines() if "Rank" not in line)
    found = judged(text)
    assert found.verdict == "nothing to compare with"
    assert found.reasons == ("the log has no rank lines, so the GPUs and NICs of the run are unknown: add --claim",)


def test_a_named_machine_counts_even_if_its_gpus_have_other_addresses() -> None:
    ranks = "\n".join(
        f"#  Rank {n} Group 0 Pid 1 on w{n // 8} device {n % 8} [0000:0{n % 8}:00] NVIDIA B200" for n in range(16)
    )
    text = a_log(460).replace("# nThread 1\n", f"# nThread 1\n{ranks}\n")
    text = "\n".join(line for line in text.splitlines() if "0000:8f" not in line)
    (run,) = read_log(text).runs
    assert judge(run, {}).expected is None
    found = judge(run, A4)
    assert found.expected is not None and found.verdict == "as expected"


def test_a_result_inside_the_printed_range_does_not_fall_short() -> None:
    low = judged(a_log(46.6), 0).expected
    assert low is not None
    assert judged(a_log(low.best.low + 0.1), 0).verdict == "as expected"
    assert judged(a_log(low.best.low - 0.1), 0).verdict == "falls short"
