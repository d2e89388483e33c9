"""When a driver calls itself alive, well and ready, over its own HTTP port."""

from __future__ import annotations

import asyncio
import http.client

import pytest

from dranet.driver.serving.standing import LONG_SECONDS, Standing
from dranet.driver.serving.web import Web


class Node:
    """A driver's web side with a clock and a list of what is missing."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.missing: list[str] = []
        self.standing = Standing(lambda: self.missing, clock=lambda: self.now)
        self.web = Web(lambda: b"", long_missing=self.standing.long_missing, missing=lambda: list(self.missing))

    def pass_time(self, seconds: float) -> None:
        """As the driver lives through it, looking now and then."""
        for _ in range(int(seconds)):
            self.now += 1
            self.standing.look()

    async def get(self, path: str) -> tuple[int, str]:
        await self.web.start("127.0.0.1:0")
        try:
            return await asyncio.to_thread(_ask, self.web.ports[0], path)
        finally:
            await self.web.stop()


def _ask(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.fixture
def node() -> Node:
    return Node()


async def test_a_short_trouble_is_not_ready_and_yet_well(node: Node) -> None:
    node.missing = ["kubelet registration"]
    node.pass_time(LONG_SECONDS)
    assert (await node.get("/readyz"))[0] == 503
    assert await node.get("/healthz") == (200, "ok\n")


async def test_what_is_missing_for_minutes_is_illness_with_its_reason(node: Node) -> None:
    node.missing = ["kubelet registration", "ResourceSlice publication"]
    node.pass_time(LONG_SECONDS + 10)
    expected = "waiting for: kubelet registration (for 129 s), ResourceSlice publication (for 129 s)\n"
    assert await node.get("/healthz") == (503, expected)


async def test_a_driver_that_waits_for_others_is_alive(node: Node) -> None:
    node.missing = ["the runtime at /run/nri.sock"]
    node.pass_time(10 * LONG_SECONDS)
    assert await node.get("/livez") == (200, "ok\n")


async def test_troubles_that_come_and_go_are_never_long(node: Node) -> None:
    for _ in range(10):
        node.missing = ["kubelet registration"]
        node.pass_time(LONG_SECONDS - 10)
        node.missing = []
        node.pass_time(1)
    node.missing = ["kubelet registration"]
    assert (await node.get("/healthz"))[0] == 200


async def test_different_troubles_one_after_the_other_are_each_as_old_as_they_are(node: Node) -> None:
    node.missing = ["kubelet registration"]
    node.pass_time(LONG_SECONDS - 10)
    node.missing = ["ResourceSlice publication"]
    node.pass_time(20)
    assert (await node.get("/healthz"))[0] == 200


async def test_a_trouble_that_ended_is_forgotten(node: Node) -> None:
    node.missing = ["kubelet registration"]
    node.pass_time(2 * LONG_SECONDS)
    node.missing = []
    assert await node.get("/healthz") == (200, "ok\n")
