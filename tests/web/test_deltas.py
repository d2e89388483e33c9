"""What one change costs on the wire, at its worst: a full machine, long names, sixteen devices, among many others."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dranet.web.cluster import CLAIMS, PODS, SLICES, ClusterObjects
from dranet.web.feed import AT_ONCE, Feed
from dranet.web.http import _gzipped

from .fleets import claim, devices, machine, pod

MOST = 2000
LONG = "a-rather-long-name-of-a-worker-of-a-job-that-somebody-gave-it"
NODE = "gke-cluster-1-a-pool-of-machines-with-a-long-name-0123456789abcd"


def full_machine() -> ClusterObjects:
    cluster = ClusterObjects()
    machine(cluster, NODE, "free")
    machine(cluster, "other", "full")
    return cluster


def come(cluster: ClusterObjects) -> None:
    cluster.put(PODS, pod(NODE, LONG, LONG))
    cluster.put(CLAIMS, claim(NODE, LONG, devices(range(8), range(8))))


def go(cluster: ClusterObjects) -> None:
    cluster.remove(PODS, ("team", LONG))
    cluster.remove(CLAIMS, ("team", f"{LONG}-devices"))


def nics(cluster: ClusterObjects, change: Callable[[list[Any]], list[Any]]) -> None:
    [item] = [item for item in cluster.slices(NODE) if item["spec"]["driver"] == "dra.net"]
    cluster.put(SLICES, {**item, "spec": {**item["spec"], "devices": change(item["spec"]["devices"])}})


def all_tainted(cluster: ClusterObjects) -> None:
    taints = [{"key": "dra.net/link-down", "effect": "NoSchedule"}, {"key": "dra.net/slow", "effect": "NoExecute"}]
    nics(cluster, lambda found: [{**one, "taints": taints} for one in found])


def one_lost(cluster: ClusterObjects) -> None:
    nics(cluster, lambda found: found[1:])


CHANGES = [
    pytest.param((), come, id="a pod of sixteen devices comes"),
    pytest.param((come,), go, id="it goes"),
    pytest.param((come,), all_tainted, id="every nic loses its link"),
    pytest.param((come,), one_lost, id="a nic is lost, and with it the kind of machine"),
    pytest.param((come, one_lost), lambda cluster: machine(cluster, NODE, "free"), id="it is back"),
]


@pytest.mark.parametrize(("before", "change"), CHANGES)
def test_one_change_is_at_most_two_kilobytes(before: Any, change: Callable[[ClusterObjects], None]) -> None:
    async def sent() -> list[bytes]:
        cluster = full_machine()
        for one in before:
            one(cluster)
        feed = Feed(cluster, "test", True)
        wire = _gzipped(feed.events())
        world = await anext(wire)
        change(cluster)
        feed.flush()
        return [world, await anext(wire)]

    pieces = asyncio.run(sent())
    assert len(pieces[1]) <= MOST
    plain = zlib.decompressobj(wbits=31).decompress(b"".join(pieces))
    assert plain.count(b"event: ") == 2 and plain.endswith(b"\n\n"), "one event, all of it"


def test_a_pod_that_comes_is_small_even_uncompressed_and_tells_of_no_machine() -> None:
    async def sent() -> bytes:
        cluster = full_machine()
        feed = Feed(cluster, "test", True)
        stream = feed.events()
        await anext(stream)
        come(cluster)
        feed.flush()
        return await anext(stream)

    event = asyncio.run(sent())
    assert len(event) <= MOST
    assert b'"nodes"' not in event


def test_a_fleet_that_comes_at_once_is_told_in_parts_and_how_much_is_left() -> None:
    async def reported() -> list[bytes]:
        cluster = ClusterObjects()
        stream: AsyncIterator[bytes] = Feed(cluster, "test", True).events()
        events = [await anext(stream)]
        for number in range(AT_ONCE + 10):
            cluster.put(CLAIMS, claim("node", f"pod-{number:04}", []))
        return [*events, await anext(stream), await anext(stream)]

    _, first, second = asyncio.run(reported())
    assert (first.count(b'"key"'), second.count(b'"key"')) == (AT_ONCE, 10)
    assert b'"left":10' in first and b'"left":0' in second
