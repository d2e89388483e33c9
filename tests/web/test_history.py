"""The last hour: what is news, what is forgotten, and that a page shows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dranet.web.cluster import CLAIMS, KINDS, PODS, SLICES, ClusterObjects
from dranet.web.feed import Feed
from dranet.web.history import History

from .browser import Browser
from .fleets import claim, devices, machine, pod
from .lab import Lab

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def later(self, **by: float) -> None:
        self.now += timedelta(**by)


def placed(node: str = "a", **more: Any) -> dict[str, Any]:
    return {"node": node, "phase": "Running", "claims": [{"name": "c", "devices": [{}, {}]}], **more}


def texts(history: History) -> list[str]:
    return [f"{one['kind']}: {one['about']} {one['text']}" for one in history.to_json()["happenings"]]


def test_what_was_there_when_we_came_is_no_news() -> None:
    history = History(Clock())
    history.holder("team/x", None, placed())
    assert history.to_json()["since"] is None and texts(history) == []


@pytest.mark.parametrize(
    ("old", "new", "news"),
    [
        (None, placed(), ["placed: x placed on a with 2 devices"]),
        (placed(), None, ["left: x left a"]),
        (placed(""), placed(), ["placed: x placed on a with 2 devices"]),
        (placed(), placed(), []),
        (placed(), placed(phase="Failed"), ["fault: x phase Running -> Failed"]),
        (placed(), placed(misplaced=True), ["fault: x has a misplaced NIC"]),
        (placed(), placed(measured=61.2), ["other: x measured 61.2 GB/s"]),
        (None, placed(""), []),
    ],
)
def test_of_a_pod_it_is_news_that_it_comes_goes_breaks_or_measures(old: Any, new: Any, news: list[str]) -> None:
    history = History(Clock())
    history.begin()
    history.holder("x", old, new)
    assert texts(history) == news


WELL = {"layout": "l"}
DOWN = {"layout": "l", "tainted": [{"at": 3, "taints": ["dra.net/link-down:NoSchedule"]}]}


@pytest.mark.parametrize(
    ("old", "new", "news"),
    [
        (WELL, DOWN, ["fault: n NIC3: dra.net/link-down:NoSchedule"]),
        (DOWN, WELL, ["well: n NIC3: no longer dra.net/link-down:NoSchedule"]),
        (WELL, {**WELL, "problem": "pool incomplete"}, ["fault: n pool incomplete"]),
        ({**WELL, "problem": "pool incomplete"}, WELL, ["well: n no longer: pool incomplete"]),
        (WELL, None, ["fault: n no longer publishes devices"]),
        (None, WELL, ["other: n joined"]),
        (WELL, {"layout": "m"}, ["other: n has different devices"]),
    ],
)
def test_of_a_machine_it_is_news_what_breaks_and_what_is_well_again(old: Any, new: Any, news: list[str]) -> None:
    history = History(Clock())
    history.begin()
    history.node("n", old, new, {key: {"devices": [{"label": f"NIC{i}"} for i in range(4)]} for key in "lm"})
    assert texts(history) == news


def test_after_an_hour_it_is_forgotten_also_when_nothing_else_happens() -> None:
    clock = Clock()
    history = History(clock)
    history.begin()
    history.holder("x", None, placed())
    clock.later(minutes=59)
    assert len(texts(history)) == 1
    clock.later(minutes=2)
    reported = history.to_json()
    assert reported["happenings"] == [] and reported["minutes"] == []
    assert reported["since"] == (clock.now - timedelta(hours=1)).isoformat(timespec="seconds")


def test_more_than_can_be_kept_is_counted_and_the_minutes_still_add_up() -> None:
    history = History(Clock(), events=10)
    history.begin()
    for number in range(25):
        history.holder(f"x-{number}", None, placed())
    reported = history.to_json()
    assert [one["about"] for one in reported["happenings"]][:2] == ["x-24", "x-23"]
    assert (len(reported["happenings"]), reported["dropped"]) == (10, 15)
    assert reported["minutes"] == [{"at": START.isoformat(timespec="minutes"), "placed": 25}]


def test_the_feed_begins_it_when_every_kind_was_read_and_tells_what_comes_after() -> None:
    cluster = ClusterObjects()
    feed = Feed(cluster, "test", True)
    machine(cluster, "a", "full")
    feed.world()
    assert feed.history.to_json()["since"] is None
    for kind in KINDS:
        if kind not in (SLICES, CLAIMS, PODS):
            cluster.replace(kind, [])
    cluster.seen.update(KINDS)
    feed.world()
    assert texts(feed.history) == []
    machine(cluster, "b", "free")
    cluster.put(PODS, pod("b", "new"))
    cluster.put(CLAIMS, claim("b", "new", devices(range(1), range(1))))
    feed.world()
    assert texts(feed.history) == ["placed: team/new placed on b with 2 devices", "other: b joined"]


@pytest.mark.xdist_group("browser")
def test_the_page_shows_what_happened_while_it_was_watched(window: Browser, cluster: Lab) -> None:
    cluster.call(lambda: cluster.machines("nd-gb300-v6=2"))
    window.open(cluster.url)
    window.wait("state.nodes.size === 2 && state.waiting.length === 0")
    cluster.do(cluster.run(("4-aks-gb300/claims.yaml", "4-aks-gb300/mpijob.yaml"), template="1nic-aligned"))
    taints = [{"key": "dra.net/link-down", "effect": "NoSchedule"}]
    cluster.call(lambda: cluster.change_slice("nd-gb300-v6-1", "dra.net", lambda d: {**d, "taints": taints}))
    window.wait("state.holders.size === 2 && state.nodes.get('nd-gb300-v6-1').tainted")
    window.click("#tab-history")
    window.wait("document.querySelector('#history .news li')")
    said = window.text("#history")
    assert "default/nccl-test-dra-worker-0 placed on" in said and "link-down" in said
    assert "2 placed" in said
    window.run(
        "[...document.querySelectorAll('#history .link')].find((one) => one.textContent.includes('worker')).click()"
    )
    assert "nccl-test-dra-worker" in window.text("#picked h2")
