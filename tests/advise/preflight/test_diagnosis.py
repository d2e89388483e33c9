"""Rounds, pairing by rail, and findings from given measurements."""

from __future__ import annotations

from itertools import combinations

import pytest

from dranet.advise.preflight.coordinator import all_rounds, assign_rails, default_rounds, rounds, with_unique_names
from dranet.advise.preflight.diagnosis import findings, to_table
from dranet.advise.preflight.model import Endpoint, Measurements, Member, Nic, Path, Result

GOOD = Result(True, path_mtu=1500, sent=50, rtt_us=10.0, gbits=10.0)


@pytest.mark.parametrize("members", range(2, 18))
def test_all_rounds_contain_every_pair_once_and_a_pod_once_a_round(members: int) -> None:
    found = all_rounds(members)
    assert sorted(pair for one in found for pair in one) == list(combinations(range(members), 2))
    for one in found:
        assert len({member for pair in one for member in pair}) == 2 * len(one) == members - members % 2


@pytest.mark.parametrize(("members", "needed"), [(2, 1), (3, 3), (4, 2), (5, 4), (8, 3), (64, 6), (1000, 10)])
def test_default_number_of_rounds_grows_with_the_logarithm(members: int, needed: int) -> None:
    assert default_rounds(members) == len(rounds(members)) == needed


def path(source: str, target: str, result: Result = GOOD, *, nic: str = "gpu0rdma0") -> Path:
    return Path(Endpoint(source, nic), Endpoint(target, nic), nic, 1500, result, 1, 100.0)


def slow(gbits: float) -> Result:
    return Result(True, path_mtu=1500, sent=50, rtt_us=10.0, gbits=gbits)


def both_ways(pairs: list[tuple[str, str]], bad: dict[tuple[str, str], Result]) -> list[Path]:
    directed = [*pairs, *((b, a) for a, b in pairs)]
    return [path(a, b, bad.get((a, b), GOOD)) for a, b in directed]


def faults(paths: list[Path]) -> list[tuple[str, list[str]]]:
    return [(f.kind, [end.node for end in f.nics]) for f in findings(Measurements((), tuple(paths)), 0.6)]


@pytest.mark.parametrize("members", [4, 8, 16, 33])
def test_default_rounds_find_one_slow_nic(members: int) -> None:
    pairs = [(f"n{a}", f"n{b}") for one in rounds(members) for a, b in one]
    for bad in (f"n{number}" for number in range(members)):
        paths = both_ways(pairs, {(a, b): slow(4) for p in pairs for a, b in (p, p[::-1]) if bad in (a, b)})
        assert faults(paths) == [("slow", [bad])]


def test_message_of_a_slow_nic() -> None:
    pairs = [("n7", "n8"), ("n7", "n9"), ("n8", "n9")]
    paths = both_ways(pairs, {("n7", "n8"): slow(4), ("n7", "n9"): slow(4)})
    (found,) = findings(Measurements((), tuple(paths)), 0.6)
    assert found.message == (
        "NIC gpu0rdma0 on n7 reaches 40 % of the median of comparable NICs "
        "(TCP n7 to n8 4.00, n7 to n9 4.00 Gbit/s, median 10.00 Gbit/s)"
    )


def test_two_slow_nics_are_two_findings() -> None:
    pairs = [(f"n{a}", f"n{b}") for one in rounds(8) for a, b in one]
    bad = {"n2", "n5"}
    paths = both_ways(pairs, {(a, b): slow(1) for p in pairs for a, b in (p, p[::-1]) if bad & {a, b}})
    assert sorted(faults(paths)) == [("slow", ["n2"]), ("slow", ["n5"])]


def test_nics_with_a_lower_expected_rate_are_not_slow() -> None:
    storage = [
        Path(Endpoint(a, "st0"), Endpoint(b, "st0"), "st0", 1500, slow(1), 1, 10.0)
        for a, b in (("n1", "n2"), ("n2", "n1"))
    ]
    assert faults([*both_ways([("n1", "n2")], {}), *storage]) == []


def test_loss_is_a_fault_from_two_of_fifty_packets() -> None:
    def losing(lost: int) -> list[tuple[str, list[str]]]:
        result = Result(True, path_mtu=1500, sent=50, lost=lost, gbits=10.0)
        return faults(
            both_ways([("n1", "n2"), ("n1", "n3"), ("n2", "n3")], {("n1", "n2"): result, ("n1", "n3"): result})
        )

    assert losing(1) == []
    assert losing(2) == [("loss", ["n1"])]


def test_finds_slow_rdma_with_equal_tcp_rates() -> None:
    def rdma(gbits: float) -> Result:
        return Result(True, path_mtu=1500, sent=50, gbits=10.0, rdma_gbits=gbits)

    paths = [
        path(a, b, rdma(100 if "n1" in (a, b) else 390))
        for a in ("n1", "n2", "n3")
        for b in ("n1", "n2", "n3")
        if a != b
    ]
    paths += [path(a, b, rdma(390), nic="gpu1rdma0") for a, b in (("n1", "n2"), ("n2", "n1"), ("n1", "n3"))]
    (found,) = findings(Measurements((), tuple(paths)), 0.6)
    assert (found.kind, found.nics) == ("rdma-slow", (Endpoint("n1", "gpu0rdma0"),))
    assert "reaches 26 % of the median of comparable NICs (RDMA " in found.message


def test_a_failed_measurement_of_a_reachable_nic_is_a_fault() -> None:
    broken = Result(True, "ib_write_bw exited with 1: Couldn't allocate MR", 1500, 50, gbits=10.0)
    (found,) = findings(Measurements((), (path("n1", "n2", broken), path("n2", "n1", broken))), 0.6)
    assert found.kind == "failed"
    assert found.message.startswith(
        "NIC gpu0rdma0 on n1 or n2 is reachable but cannot be measured (n1 to n2, n2 to n1): ib_write_bw exited with 1"
    )


def member(rank: int, *nics: Nic, node: str = "") -> Member:
    return Member(rank, node or f"n{rank}", nics)


def nic(name: str, rail: str = "") -> Nic:
    return Nic(name, "10.0.0.1", 1500, rail)


@pytest.mark.parametrize(
    ("first", "second", "source", "rails"),
    [
        ((nic("a", "r1"), nic("b", "r0")), (nic("c", "r0"), nic("d", "r1")), "published rail", ["r1", "r0"]),
        ((nic("a"), nic("b")), (nic("b"), nic("a")), "interface name", ["a", "b"]),
        ((nic("a", "r0"), nic("b")), (nic("c"), nic("d")), "position in the claim", ["0", "1"]),
    ],
)
def test_pairs_nics_by_rail_then_name_then_position(
    first: tuple[Nic, ...], second: tuple[Nic, ...], source: str, rails: list[str]
) -> None:
    found, origin = assign_rails([member(0, *first), member(1, *second)])
    assert (origin, [one.rail for one in found[0].nics]) == (source, rails)


def test_pods_on_one_node_get_unique_names() -> None:
    found = with_unique_names([member(0, node="n1"), member(1, node="n1"), member(2, node="n2")])
    assert [one.node for one in found] == ["n1#0", "n1#1", "n2"]


def test_table_compares_rates_with_the_plan_and_ends_with_a_summary() -> None:
    outcome = Measurements(
        (member(0, nic("a")),), (path("n1", "n2"), path("n2", "n1", Result(False, "no route to the address")))
    )
    lines = to_table(outcome, findings(outcome, 0.6), 3.21).splitlines()
    assert " ".join(lines[1].split()) == "gpu0rdma0 n1 gpu0rdma0 n2 gpu0rdma0 1500 10 0/50 10.00 - 100.00 10 %"
    assert "no route to the address" in lines[2]
    assert lines[-1] == "1 fault: 1 pods, 1 NICs, 3.2 s"
