"""How many requests it takes to know what stands in the API server, and when they come."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dranet.core.http import Request
from dranet.kubernetes.api.client import KubeClient, WatchEvent
from dranet.kubernetes.api.reflector import list_and_watch
from dranet.kubernetes.api.resources import RESOURCE_SLICES
from dranet.testing.apiserver import Response, SandboxApiServer
from dranet.testing.faults import LocalTransport, instantly

NODES_LOST_AT_ONCE = 1500
"""Enough that the busiest second says something of the spread and not of the dice."""
SPREAD = 60.0


class Notes:
    """An event handler that records its calls."""

    def __init__(self) -> None:
        self.reported: list[Any] = []

    def replaced(self, items: list[dict[str, Any]]) -> None:
        self.reported.append(sorted(item["metadata"]["name"] for item in items))

    def changed(self, event: WatchEvent) -> None:
        self.reported.append((event.type, event.object["metadata"]["name"]))


class Counting(SandboxApiServer):
    """Writes down when each list and watch came."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.asked: list[tuple[str, float]] = []
        self.queries: list[dict[str, list[str]]] = []

    async def handle(self, request: Request) -> Response:
        if "resourceslices" in request.target:
            self.queries.append(parse_qs(urlsplit(request.target).query))
            kind = "watch" if "watch" in self.queries[-1] else "list"
            self.asked.append((kind, asyncio.get_running_loop().time()))
        return await super().handle(request)

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.asked]

    def restart(self) -> None:
        """A server that comes back knows nothing of what was before."""
        self.put(RESOURCE_SLICES, a_slice("elsewhere", "another"))
        self.compact_history()
        self.end_watches()
        self.asked.clear()


def a_slice(name: str, node: str = "n") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"driver": "dra.net", "nodeName": node, "pool": {"name": node}}}


@contextlib.asynccontextmanager
async def following(server: SandboxApiServer, fields: str, count: int = 1) -> AsyncIterator[list[Notes]]:
    notes = [Notes() for _ in range(count)]
    tasks = [
        asyncio.create_task(
            list_and_watch(
                KubeClient(LocalTransport(server), rng=random.Random(number)),
                RESOURCE_SLICES,
                note,
                fields=fields,
                spread=SPREAD if fields else 0.1,
            )
        )
        for number, note in enumerate(notes)
    ]
    try:
        await asyncio.sleep(1)
        yield notes
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@instantly
async def test_a_few_objects_are_asked_for_once_and_watched_from_there() -> None:
    server = Counting()
    server.put(RESOURCE_SLICES, a_slice("ours"))
    server.put(RESOURCE_SLICES, a_slice("another's", "m"))
    async with following(server, "spec.nodeName=n") as [notes]:
        server.put(RESOURCE_SLICES, a_slice("second"))
        await asyncio.sleep(1)
    assert server.kinds() == ["list", "watch"]
    assert notes.reported == [["ours"], ("ADDED", "second")]


@instantly
async def test_the_list_of_a_few_objects_comes_out_of_the_servers_memory() -> None:
    """By an index, whatever the number of nodes; a list without a version would be read from etcd by older servers."""
    server = Counting()
    async with following(server, "spec.nodeName=n"):
        pass
    assert server.queries[0]["resourceVersion"] == ["0"]
    assert "limit" not in server.queries[0]  # with one, servers go to etcd


@instantly
async def test_a_server_whose_memory_is_late_tells_the_rest_with_the_watch() -> None:
    server = Counting()
    server.put(RESOURCE_SLICES, a_slice("ours"))
    server.serve_stale_lists()
    server.put(RESOURCE_SLICES, a_slice("second"))
    async with following(server, "spec.nodeName=n") as [notes]:
        assert notes.reported == [["ours"], ("ADDED", "second")]


@instantly
async def test_what_was_known_before_a_break_is_never_unlearned_from_a_late_memory() -> None:
    server = Counting()
    server.serve_stale_lists()
    async with following(server, "spec.nodeName=n") as [notes]:
        server.put(RESOURCE_SLICES, a_slice("ours"))
        await asyncio.sleep(1)
        server.end_watches()
        await asyncio.sleep(2 * SPREAD)
        assert notes.reported == [[], ("ADDED", "ours"), ["ours"]]


@instantly
async def test_nothing_there_is_known_as_well() -> None:
    async with following(SandboxApiServer(), "spec.nodeName=n") as [notes]:
        assert notes.reported == [[]]


@instantly
async def test_a_watch_that_ends_in_its_time_is_resumed_without_a_list() -> None:
    server = Counting()
    async with following(server, "spec.nodeName=n") as [notes]:
        await asyncio.sleep(3600)
        assert notes.reported == [[]]
    assert server.kinds()[0] == "list"
    assert set(server.kinds()[1:]) == {"watch"}
    assert 3600 / 480 <= len(server.asked) <= 3600 / 240 + 2


@instantly
async def test_after_a_restart_of_the_server_each_node_lists_once_watches_once_and_knows_what_it_missed() -> None:
    server = Counting()
    async with following(server, "spec.nodeName=n", 20) as everybody:
        server.put(RESOURCE_SLICES, a_slice("missed"))
        server.restart()
        await asyncio.sleep(2 * SPREAD)
        assert all(notes.reported[-1] == ["missed"] for notes in everybody)
    assert sorted(server.kinds()) == ["list"] * 20 + ["watch"] * 20


@instantly
async def test_nodes_that_lose_their_watches_together_do_not_come_back_together() -> None:
    """The server ends all watches politely and is there again at once: the worst case for who comes back at once."""
    server = Counting()
    async with following(server, "spec.nodeName=n", NODES_LOST_AT_ONCE):
        server.restart()
        await asyncio.sleep(2 * SPREAD)
    seconds = Counter(int(moment) for _, moment in server.asked)
    span = max(seconds) - min(seconds) + 1
    assert len(server.asked) == 2 * NODES_LOST_AT_ONCE
    assert span > SPREAD / 2
    assert max(seconds.values()) <= 2 * len(server.asked) / span


@instantly
async def test_nodes_that_find_no_server_for_a_while_do_not_come_back_together_either() -> None:
    server = Counting()
    async with following(server, "spec.nodeName=n", NODES_LOST_AT_ONCE):
        server.unavailable = True
        server.end_watches()
        await asyncio.sleep(20)
        server.unavailable = False
        server.restart()
        await asyncio.sleep(2 * SPREAD)
    seconds = Counter(int(moment) for _, moment in server.asked)
    span = max(seconds) - min(seconds) + 1
    assert len(server.asked) == 2 * NODES_LOST_AT_ONCE
    assert max(seconds.values()) <= 2 * len(server.asked) / span


@instantly
async def test_who_follows_everything_goes_on_where_it_stopped() -> None:
    server = Counting()
    server.put(RESOURCE_SLICES, a_slice("first"))
    async with following(server, "") as [notes]:
        server.end_watches()
        server.put(RESOURCE_SLICES, a_slice("missed"))
        await asyncio.sleep(60)
        assert notes.reported == [["first"], ("ADDED", "missed")]
    assert server.kinds() == ["list", "watch", "watch"]
