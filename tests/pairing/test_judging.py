"""Who meets whom, and what is said of what was measured: no network needed."""

from __future__ import annotations

from itertools import combinations

import pytest

from dranet.pairing.facts import named_apart, on_rails
from dranet.pairing.rendering import as_table
from dranet.pairing.rounds import all_rounds, how_many, rounds
from dranet.pairing.values import Card, End, Member, Outcome, Path, Seen
from dranet.pairing.verdict import findings

GOOD = Seen(True, path_mtu=1500, sent=50, rtt_us=10.0, gbits=10.0)


@pytest.mark.parametrize("members", range(2, 18))
def test_all_rounds_are_every_pair_once_and_nobody_twice_in_a_round(members: int) -> None:
    found = all_rounds(members)
    assert sorted(pair for one in found for pair in one) == list(combinations(range(members), 2))
    for one in found:
        assert len({member for pair in one for member in pair}) == 2 * len(one) == members - members % 2


@pytest.mark.parametrize(("members", "needed"), [(2, 1), (3, 3), (4, 2), (5, 4), (8, 3), (64, 6), (1000, 10)])
def test_rounds_grow_with_the_logarithm(members: int, needed: int) -> None:
    assert how_many(members) == len(rounds(members)) == needed


def path(source: str, target: str, seen: Seen = GOOD, *, card: str = "gpu0rdma0", crossing: bool = False) -> Path:
    return Path(End(source, card), End(target, card), card, 1500, seen, 1, 100.0, crossing)


def slow(gbits: float) -> Seen:
    return Seen(True, path_mtu=1500, sent=50, rtt_us=10.0, gbits=gbits)


def both_ways(pairs: list[tuple[str, str]], bad: dict[tuple[str, str], Seen]) -> list[Path]:
    directed = [*pairs, *((b, a) for a, b in pairs)]
    return [path(a, b, bad.get((a, b), GOOD)) for a, b in directed]


def judged(paths: list[Path]) -> list[tuple[str, list[str]]]:
    return [(f.kind, [end.node for end in f.cards]) for f in findings(Outcome((), tuple(paths)), 0.6)]


@pytest.mark.parametrize("members", [4, 8, 16, 33])
def test_one_bad_card_is_found_in_the_default_rounds_whichever_it_is(members: int) -> None:
    pairs = [(f"n{a}", f"n{b}") for one in rounds(members) for a, b in one]
    for bad in (f"n{number}" for number in range(members)):
        paths = both_ways(pairs, {(a, b): slow(4) for p in pairs for a, b in (p, p[::-1]) if bad in (a, b)})
        assert judged(paths) == [("slow", [bad])]


def test_the_verdict_is_in_words() -> None:
    pairs = [("n7", "n8"), ("n7", "n9"), ("n8", "n9")]
    paths = both_ways(pairs, {("n7", "n8"): slow(4), ("n7", "n9"): slow(4)})
    (found,) = findings(Outcome((), tuple(paths)), 0.6)
    assert found.words == (
        "card gpu0rdma0 on n7 gives 40 % of its siblings (n7 to n8 4.00, n7 to n9 4.00 Gbit/s, siblings 10.00 Gbit/s)"
    )


def test_two_bad_cards_are_two_findings() -> None:
    pairs = [(f"n{a}", f"n{b}") for one in rounds(8) for a, b in one]
    bad = {"n2", "n5"}
    paths = both_ways(pairs, {(a, b): slow(1) for p in pairs for a, b in (p, p[::-1]) if bad & {a, b}})
    assert sorted(judged(paths)) == [("slow", ["n2"]), ("slow", ["n5"])]


def test_slow_cards_that_should_be_slow_are_no_fault() -> None:
    storage = [
        Path(End(a, "st0"), End(b, "st0"), "st0", 1500, slow(1), 1, 10.0) for a, b in (("n1", "n2"), ("n2", "n1"))
    ]
    assert judged([*both_ways([("n1", "n2")], {}), *storage]) == []


def test_lost_packets_are_a_fault_from_the_second_of_fifty_on() -> None:
    def losing(lost: int) -> list[tuple[str, list[str]]]:
        seen = Seen(True, path_mtu=1500, sent=50, lost=lost, gbits=10.0)
        return judged(both_ways([("n1", "n2"), ("n1", "n3"), ("n2", "n3")], {("n1", "n2"): seen, ("n1", "n3"): seen}))

    assert losing(1) == []
    assert losing(2) == [("loss", ["n1"])]


def test_a_slow_rdma_card_is_found_where_tcp_sees_nothing() -> None:
    def rdma(gbits: float) -> Seen:
        return Seen(True, path_mtu=1500, sent=50, gbits=10.0, rdma_gbits=gbits)

    paths = [
        path(a, b, rdma(100 if "n1" in (a, b) else 390))
        for a in ("n1", "n2", "n3")
        for b in ("n1", "n2", "n3")
        if a != b
    ]
    paths += [path(a, b, rdma(390), card="gpu1rdma0") for a, b in (("n1", "n2"), ("n2", "n1"), ("n1", "n3"))]
    (found,) = findings(Outcome((), tuple(paths)), 0.6)
    assert (found.kind, found.cards) == ("rdma-slow", (End("n1", "gpu0rdma0"),))
    assert "gives 26 % of its siblings (RDMA " in found.words


def test_what_failed_on_a_card_that_answers_is_a_fault_even_if_it_fails_everywhere() -> None:
    broken = Seen(True, "ib_write_bw ended with 1: Couldn't allocate MR", 1500, 50, gbits=10.0)
    (found,) = findings(Outcome((), (path("n1", "n2", broken), path("n2", "n1", broken))), 0.6)
    assert found.kind == "failed"
    assert found.words.startswith(
        "card gpu0rdma0 on n1 or n2 answers, but cannot be measured (n1 to n2, n2 to n1): ib_write_bw ended with 1"
    )


def member(rank: int, *cards: Card, node: str = "") -> Member:
    return Member(rank, node or f"n{rank}", cards)


def card(name: str, rail: str = "") -> Card:
    return Card(name, "10.0.0.1", 1500, rail)


@pytest.mark.parametrize(
    ("first", "second", "how", "rails"),
    [
        ((card("a", "r1"), card("b", "r0")), (card("c", "r0"), card("d", "r1")), "published rail", ["r1", "r0"]),
        ((card("a"), card("b")), (card("b"), card("a")), "interface name", ["a", "b"]),
        ((card("a", "r0"), card("b")), (card("c"), card("d")), "place in the claim", ["0", "1"]),
    ],
)
def test_cards_are_paired_by_rail_then_name_then_place(
    first: tuple[Card, ...], second: tuple[Card, ...], how: str, rails: list[str]
) -> None:
    found, said = on_rails([member(0, *first), member(1, *second)])
    assert (said, [card.rail for card in found[0].cards]) == (how, rails)


def test_pods_on_one_node_are_told_apart() -> None:
    found = named_apart([member(0, node="n1"), member(1, node="n1"), member(2, node="n2")])
    assert [one.node for one in found] == ["n1#0", "n1#1", "n2"]


def test_the_table_holds_the_figures_against_the_plan_and_ends_with_the_verdict() -> None:
    outcome = Outcome((member(0, card("a")),), (path("n1", "n2"), path("n2", "n1", Seen(False, "no route to it"))))
    lines = as_table(outcome, findings(outcome, 0.6), 3.21).splitlines()
    assert " ".join(lines[1].split()) == "gpu0rdma0 n1 gpu0rdma0 n2 gpu0rdma0 1500 10 0/50 10.00 - 100.00 10 %"
    assert "no route to it" in lines[2]
    assert lines[-1] == "1 fault: 1 pods, 1 cards, 3.2 s"
