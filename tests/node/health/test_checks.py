"""Faults from readings: each is found, named, and found nowhere else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dranet.core.device import FaultKind
from dranet.linux.pci import LinkState
from dranet.node.health.checks import Expected, FaultHistory, Observation, find_faults
from dranet.node.health.policy import default_policy
from dranet.node.health.readings import DeviceReading

GOOD = DeviceReading(
    device="",
    at=1000.0,
    model="15b3:1021",
    is_up=True,
    speed_mbps=400_000,
    mtu=4200,
    carrier_changes=2,
    pcie=LinkState(32.0, 16),
    pcie_max=LinkState(32.0, 16),
    rdma_device="mlx5_0",
    firmware="28.39.1002",
    has_address=True,
    has_gid=True,
    counters={"symbol_error": 5, "link_downed": 1, "port_xmit_discards": 7},
)


def nics(**changes: object) -> list[DeviceReading]:
    """Eight good NICs, the fourth with these changes."""
    good = [replace(GOOD, device=f"nic{n}", interface=f"rdma{n}") for n in range(8)]
    good[3] = replace(good[3], **changes)
    return good


def found(
    now: list[DeviceReading], before: list[DeviceReading] | None = None, expected: Expected | None = None
) -> list[tuple[str, str]]:
    look = Observation(now, {nic.device: [nic] for nic in before or ()}, expected or Expected())
    return [(finding.device, str(finding.fault)) for finding in find_faults(look, default_policy())]


def test_good_nics_have_no_fault() -> None:
    assert found(nics(), nics(at=900.0)) == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"speed_mbps": 100_000}, "slow-link"),
        ({"pcie": LinkState(32.0, 8)}, "pcie-degraded"),
        ({"pcie": LinkState(16.0, 16)}, "pcie-degraded"),
        ({"mtu": 1500}, "mtu-mismatch"),
        ({"has_gid": False}, "gid-missing"),
        ({"firmware": "28.38.1000"}, "firmware-mismatch"),
        ({"gpudirect_obstacle": "a bridge redirects"}, "no-gpudirect"),
    ],
)
def test_a_nic_unlike_its_peers_or_its_slot_is_the_only_one_named(
    changes: dict[str, object], fault: str | bool
) -> None:
    assert found(nics(**changes)) == [("nic3", fault)]


@pytest.mark.parametrize(
    "unknown",
    [
        {"speed_mbps": None},
        {"speed_mbps": -1},
        {"pcie": None},
        {"pcie_max": None},
        {"mtu": None},
        {"has_gid": None},
        {"has_gid": False, "has_address": False},
        {"has_gid": False, "is_up": False},
        {"firmware": ""},
        {"carrier_changes": None},
        {"counters": {}},
    ],
)
def test_what_is_not_known_is_no_fault(unknown: dict[str, object]) -> None:
    assert found(nics(**unknown), nics(at=900.0)) == []


def test_two_nics_that_differ_prove_nothing_of_either() -> None:
    assert found([replace(GOOD, device="a"), replace(GOOD, device="b", mtu=1500, speed_mbps=100)]) == []


def test_nics_of_another_model_are_no_peers() -> None:
    other = replace(GOOD, device="mgmt", model="8086:1521", speed_mbps=1000, mtu=1500, firmware="1")
    assert found([*nics(), other]) == []


def test_the_machine_s_description_decides_where_it_says_something() -> None:
    expected = Expected(speed_mbps={f"nic{n}": 800_000 for n in range(8)})
    assert found(nics(), expected=expected) == [(f"nic{n}", "slow-link") for n in range(8)]


def test_a_missing_nic_is_reported_against_the_description() -> None:
    assert found(nics()[:7], expected=Expected(nics=8)) == [("", "card-missing")]


def test_a_carrier_that_comes_and_goes_is_flapping_and_one_that_went_once_is_not() -> None:
    before = nics(at=900.0, carrier_changes=2)
    assert found(nics(carrier_changes=4), before) == []
    assert found(nics(carrier_changes=6), before) == [("nic3", "link-flapping")]


def test_changes_from_before_the_window_do_not_count() -> None:
    assert found(nics(carrier_changes=100), nics(at=100.0, carrier_changes=2)) == []


@pytest.mark.parametrize(
    ("counter", "growth", "fault"),
    [
        ("link_downed", 1, True),
        ("symbol_error", 119, False),
        ("symbol_error", 120, True),
        ("port_xmit_discards", 5999, False),
    ],
)
def test_counters_are_judged_by_growth_and_each_by_its_own_limit(counter: str, growth: int, fault: str | bool) -> None:
    grown = {**GOOD.counters, counter: GOOD.counters[counter] + growth}
    assert found(nics(counters=grown), nics(at=970.0)) == ([("nic3", "port-errors")] if fault else [])


def test_totals_however_large_are_no_fault() -> None:
    assert found(nics(counters={"symbol_error": 10**9}), nics(at=900.0, counters={"symbol_error": 10**9})) == []


def test_a_counter_that_went_back_was_reset_and_is_no_fault() -> None:
    assert found(nics(counters={"link_downed": 0}), nics(at=900.0, counters={"link_downed": 50})) == []


def test_a_fault_that_must_be_seen_twice_counts_at_the_second_scan_and_goes_when_it_is_well() -> None:
    history = FaultHistory()
    assert history.add(nics(at=1.0, mtu=1500)) == []
    assert history.has_unconfirmed
    (finding,) = history.add(nics(at=2.0, mtu=1500))
    assert (finding.device, finding.fault, finding.severity) == ("nic3", FaultKind.MTU_MISMATCH, "degraded")
    assert not history.has_unconfirmed
    assert history.add(nics(at=3.0)) == []
    assert history.add(nics(at=4.0, mtu=1500)) == []


def test_growth_over_an_hour_is_seen_however_often_one_looks() -> None:
    history = FaultHistory()
    for second in range(0, 3100, 5):
        grown = {"symbol_error": second // 25}
        counted = history.add([replace(GOOD, device="a", at=float(second), counters=grown)])
    assert [str(f.fault) for f in counted] == ["port-errors"]


def looked(*readings: DeviceReading) -> list[str]:
    """What counts after these looks at one NIC."""
    history = FaultHistory()
    for reading in readings:
        counted = history.add([replace(reading, device="a")])
    return [str(finding.fault) for finding in counted]


def test_a_pod_that_came_and_went_between_two_looks_makes_no_flapping_and_no_errors() -> None:
    down_and_up = {"link_downed": 4}
    assert looked(GOOD, replace(GOOD, at=1003.0, moves=6, carrier_changes=8, counters=down_and_up)) == []


@pytest.mark.parametrize("moves", [5, 7])
def test_a_nic_on_its_way_is_compared_with_nothing(moves: int) -> None:
    last = replace(GOOD, at=1006.0, moves=moves, carrier_changes=9, counters={"link_downed": 9})
    assert looked(GOOD, replace(GOOD, at=1003.0, moves=5), last) == []


def test_errors_since_the_last_move_count() -> None:
    moved = replace(GOOD, at=1003.0, moves=6)
    assert looked(GOOD, moved, replace(moved, at=1006.0, counters={"link_downed": 2})) == ["port-errors"]


NO_CARRIER = ((FaultKind.LINK_DOWN, "eth1 has no carrier"),)


@pytest.mark.parametrize(("looks", "faults"), [((0, 3, 12, 15), []), ((0, 3, 12, 15, 18), ["link-down"])])
def test_a_link_that_was_moved_has_fifteen_seconds_to_find_its_carrier(
    looks: tuple[float, ...], faults: list[str]
) -> None:
    """The second look after that time names it."""
    assert looked(*(replace(GOOD, at=1000.0 + at, moves=2, known_faults=NO_CARRIER) for at in looks)) == faults


def test_a_link_that_had_its_carrier_in_the_pod_and_lost_it_is_named_at_the_second_scan() -> None:
    there = replace(GOOD, moves=2)
    assert looked(there, *(replace(there, at=1000.0 + at, known_faults=NO_CARRIER) for at in (3.0, 5.0))) == [
        "link-down"
    ]


def test_a_link_that_was_not_moved_and_has_no_carrier_is_named_at_the_second_scan() -> None:
    assert looked(*(replace(GOOD, at=1000.0 + at, known_faults=NO_CARRIER) for at in (0.0, 2.0))) == ["link-down"]


def test_a_nic_that_changes_its_claim_is_not_flapping() -> None:
    history = FaultHistory()
    for look, holder in enumerate(["", "claim-a", "", "claim-b", "", "claim-c"]):
        counted = history.add([replace(GOOD, device="a", at=look * 60.0, claim=holder, carrier_changes=look * 2)])
        assert counted == []


def test_a_nic_that_flaps_in_one_pod_is_flapping() -> None:
    history = FaultHistory()
    for look in range(2):
        counted = history.add([replace(GOOD, device="a", at=look * 60.0, claim="c", carrier_changes=look * 4)])
    assert [str(f.fault) for f in counted] == ["link-flapping"]


def test_the_mtu_of_a_nic_in_a_pod_is_compared_with_its_pod_s_nics_only() -> None:
    assert found(nics(claim="claim-a", mtu=1500)) == []
    in_pod = [replace(nic, claim="claim-a") for nic in nics(mtu=1500)]
    assert found(in_pod) == [("nic3", "mtu-mismatch")]


def test_what_is_certain_is_judged_by_the_policy_like_all_else() -> None:
    certain = ((FaultKind.LINK_DOWN, "no carrier"),)
    assert found(nics(known_faults=certain)) == [("nic3", "link-down")]
    off = {**default_policy(), FaultKind.LINK_DOWN: replace(default_policy()[FaultKind.LINK_DOWN], severity="off")}
    assert find_faults(Observation(nics(known_faults=certain)), off) == []


def test_by_default_whatever_taints_must_be_seen_twice() -> None:
    """Except a link of an earlier pod: the kernel proves it, and the next pod could start before a second look."""
    assert {fault for fault, policy in default_policy().items() if policy.severity == "broken" and policy.seen < 2} == {
        FaultKind.FOREIGN_LINK
    }
