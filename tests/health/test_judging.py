"""Faults from readings: each is found, named, and found nowhere else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dranet.health.history import History
from dranet.health.judging import Expected, Look, judge
from dranet.health.policy import default_policy
from dranet.health.reading import CardReading, PcieLink
from dranet.model.faults import FaultKind

GOOD = CardReading(
    device="",
    at=1000.0,
    model="15b3:1021",
    is_up=True,
    speed_mbps=400_000,
    mtu=4200,
    carrier_changes=2,
    pcie=PcieLink(32.0, 16),
    pcie_best=PcieLink(32.0, 16),
    rdma_device="mlx5_0",
    firmware="28.39.1002",
    has_address=True,
    has_gid=True,
    counters={"symbol_error": 5, "link_downed": 1, "port_xmit_discards": 7},
)


def cards(**changes: object) -> list[CardReading]:
    """Eight good cards, the fourth with these changes."""
    good = [replace(GOOD, device=f"card{n}", interface=f"rdma{n}") for n in range(8)]
    good[3] = replace(good[3], **changes)
    return good


def found(now: list[CardReading], before: list[CardReading] | None = None, expected: Expected | None = None):
    look = Look(now, {card.device: [card] for card in before or ()}, expected or Expected())
    return [(finding.device, str(finding.fault)) for finding in judge(look, default_policy())]


def test_good_cards_have_no_fault():
    assert found(cards(), cards(at=900.0)) == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"speed_mbps": 100_000}, "slow-link"),
        ({"pcie": PcieLink(32.0, 8)}, "pcie-degraded"),
        ({"pcie": PcieLink(16.0, 16)}, "pcie-degraded"),
        ({"mtu": 1500}, "mtu-mismatch"),
        ({"has_gid": False}, "gid-missing"),
        ({"firmware": "28.38.1000"}, "firmware-mismatch"),
        ({"no_gpudirect": "a bridge redirects"}, "no-gpudirect"),
    ],
)
def test_a_card_unlike_its_siblings_or_its_slot_is_the_only_one_named(changes, fault):
    assert found(cards(**changes)) == [("card3", fault)]


@pytest.mark.parametrize(
    "unknown",
    [
        {"speed_mbps": None},
        {"speed_mbps": -1},
        {"pcie": None},
        {"pcie_best": None},
        {"mtu": None},
        {"has_gid": None},
        {"has_gid": False, "has_address": False},
        {"has_gid": False, "is_up": False},
        {"firmware": ""},
        {"carrier_changes": None},
        {"counters": {}},
    ],
)
def test_what_is_not_known_is_no_fault(unknown):
    assert found(cards(**unknown), cards(at=900.0)) == []


def test_two_cards_that_differ_prove_nothing_of_either():
    assert found([replace(GOOD, device="a"), replace(GOOD, device="b", mtu=1500, speed_mbps=100)]) == []


def test_cards_of_another_model_are_no_siblings():
    other = replace(GOOD, device="mgmt", model="8086:1521", speed_mbps=1000, mtu=1500, firmware="1")
    assert found([*cards(), other]) == []


def test_the_machine_s_description_decides_where_it_says_something():
    expected = Expected(speed_mbps={f"card{n}": 800_000 for n in range(8)})
    assert found(cards(), expected=expected) == [(f"card{n}", "slow-link") for n in range(8)]


def test_a_missing_card_is_told_against_the_description():
    assert found(cards()[:7], expected=Expected(cards=8)) == [("", "card-missing")]


def test_a_carrier_that_comes_and_goes_is_flapping_and_one_that_went_once_is_not():
    before = cards(at=900.0, carrier_changes=2)
    assert found(cards(carrier_changes=4), before) == []
    assert found(cards(carrier_changes=6), before) == [("card3", "link-flapping")]


def test_changes_from_before_the_window_do_not_count():
    assert found(cards(carrier_changes=100), cards(at=100.0, carrier_changes=2)) == []


@pytest.mark.parametrize(
    ("counter", "growth", "fault"),
    [
        ("link_downed", 1, True),
        ("symbol_error", 119, False),
        ("symbol_error", 120, True),
        ("port_xmit_discards", 5999, False),
    ],
)
def test_counters_are_judged_by_growth_and_each_by_its_own_limit(counter, growth, fault):
    grown = {**GOOD.counters, counter: GOOD.counters[counter] + growth}
    assert found(cards(counters=grown), cards(at=970.0)) == ([("card3", "port-errors")] if fault else [])


def test_totals_however_large_are_no_fault():
    assert found(cards(counters={"symbol_error": 10**9}), cards(at=900.0, counters={"symbol_error": 10**9})) == []


def test_a_counter_that_went_back_was_reset_and_is_no_fault():
    assert found(cards(counters={"link_downed": 0}), cards(at=900.0, counters={"link_downed": 50})) == []


def test_a_fault_that_must_be_seen_twice_counts_at_the_second_look_and_goes_when_it_is_well():
    history = History()
    assert history.look(cards(at=1.0, mtu=1500)) == []
    assert history.is_doubtful
    (finding,) = history.look(cards(at=2.0, mtu=1500))
    assert (finding.device, finding.fault, finding.severity) == ("card3", FaultKind.MTU_MISMATCH, "degraded")
    assert not history.is_doubtful
    assert history.look(cards(at=3.0)) == []
    assert history.look(cards(at=4.0, mtu=1500)) == []


def test_growth_over_an_hour_is_seen_however_often_one_looks():
    history = History()
    for second in range(0, 3100, 5):
        grown = {"symbol_error": second // 25}
        counted = history.look([replace(GOOD, device="a", at=float(second), counters=grown)])
    assert [str(f.fault) for f in counted] == ["port-errors"]


def looked(*readings: CardReading) -> list[str]:
    """What counts after these looks at one card."""
    history = History()
    for reading in readings:
        counted = history.look([replace(reading, device="a")])
    return [str(finding.fault) for finding in counted]


def test_a_pod_that_came_and_went_between_two_looks_makes_no_flapping_and_no_errors():
    down_and_up = {"link_downed": 4}
    assert looked(GOOD, replace(GOOD, at=1003.0, moves=6, carrier_changes=8, counters=down_and_up)) == []


@pytest.mark.parametrize("moves", [5, 7])
def test_a_card_on_its_way_is_compared_with_nothing(moves):
    last = replace(GOOD, at=1006.0, moves=moves, carrier_changes=9, counters={"link_downed": 9})
    assert looked(GOOD, replace(GOOD, at=1003.0, moves=5), last) == []


def test_errors_since_the_last_move_count():
    moved = replace(GOOD, at=1003.0, moves=6)
    assert looked(GOOD, moved, replace(moved, at=1006.0, counters={"link_downed": 2})) == ["port-errors"]


NO_CARRIER = ((FaultKind.LINK_DOWN, "eth1 has no carrier"),)


@pytest.mark.parametrize(("looks", "faults"), [((0, 3, 12, 15), []), ((0, 3, 12, 15, 18), ["link-down"])])
def test_a_link_that_was_moved_has_fifteen_seconds_to_find_its_carrier(looks, faults):
    """The second look after that time names it."""
    assert looked(*(replace(GOOD, at=1000.0 + at, moves=2, certain=NO_CARRIER) for at in looks)) == faults


def test_a_link_that_had_its_carrier_in_the_pod_and_lost_it_is_named_at_the_second_look():
    there = replace(GOOD, moves=2)
    assert looked(there, *(replace(there, at=1000.0 + at, certain=NO_CARRIER) for at in (3.0, 5.0))) == ["link-down"]


def test_a_link_that_nobody_moved_and_has_no_carrier_is_named_at_the_second_look():
    assert looked(*(replace(GOOD, at=1000.0 + at, certain=NO_CARRIER) for at in (0.0, 2.0))) == ["link-down"]


def test_a_card_that_changes_hands_is_not_flapping():
    history = History()
    for look, holder in enumerate(["", "claim-a", "", "claim-b", "", "claim-c"]):
        counted = history.look([replace(GOOD, device="a", at=look * 60.0, holder=holder, carrier_changes=look * 2)])
        assert counted == []


def test_a_card_that_flaps_in_one_pod_is_flapping():
    history = History()
    for look in range(2):
        counted = history.look([replace(GOOD, device="a", at=look * 60.0, holder="c", carrier_changes=look * 4)])
    assert [str(f.fault) for f in counted] == ["link-flapping"]


def test_the_mtu_of_a_card_in_a_pod_is_compared_with_its_pod_s_cards_only():
    assert found(cards(holder="claim-a", mtu=1500)) == []
    in_pod = [replace(card, holder="claim-a") for card in cards(mtu=1500)]
    assert found(in_pod) == [("card3", "mtu-mismatch")]


def test_what_is_certain_is_judged_by_the_policy_like_all_else():
    certain = ((FaultKind.LINK_DOWN, "no carrier"),)
    assert found(cards(certain=certain)) == [("card3", "link-down")]
    off = {**default_policy(), FaultKind.LINK_DOWN: replace(default_policy()[FaultKind.LINK_DOWN], severity="off")}
    assert judge(Look(cards(certain=certain)), off) == []


def test_by_default_whatever_taints_must_be_seen_twice():
    assert {
        fault for fault, policy in default_policy().items() if policy.severity == "broken" and policy.seen < 2
    } == set()
