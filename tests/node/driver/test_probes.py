"""When a driver calls itself alive, well and ready, over its own HTTP port."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading

import pytest

from dranet.node.server.probes import LONG_SECONDS, MAX_CONNECTIONS, HealthState, ProbeServer


class Node:
    """A driver's HTTP server with a clock and a list of what is missing."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.missing: list[str] = []
        self.standing = HealthState(lambda: self.missing, clock=lambda: self.now)
        self.collected: list[int] = []
        """The thread of each collection of metrics."""
        self.web = ProbeServer(
            self._metrics,
            long_missing=self.standing.long_missing,
            missing=lambda: list(self.missing),
            clock=lambda: self.now,
        )

    def _metrics(self) -> bytes:
        self.collected.append(threading.get_ident())
        return b"up 1\n"

    def pass_time(self, seconds: float) -> None:
        """With the driver's regular updates."""
        for _ in range(int(seconds)):
            self.now += 1
            self.standing.update()

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


async def test_short_outage_is_unready_but_healthy(node: Node) -> None:
    node.missing = ["kubelet registration"]
    node.pass_time(LONG_SECONDS)
    assert (await node.get("/readyz"))[0] == 503
    assert await node.get("/healthz") == (200, "ok\n")


async def test_long_outage_is_unhealthy_with_its_reason(node: Node) -> None:
    node.missing = ["kubelet registration", "ResourceSlice publication"]
    node.pass_time(LONG_SECONDS + 10)
    expected = "waiting for: kubelet registration (for 129 s), ResourceSlice publication (for 129 s)\n"
    assert await node.get("/healthz") == (503, expected)


async def test_waiting_driver_is_alive(node: Node) -> None:
    node.missing = ["the runtime at /run/nri.sock"]
    node.pass_time(10 * LONG_SECONDS)
    assert await node.get("/livez") == (200, "ok\n")


async def test_interrupted_outages_stay_healthy(node: Node) -> None:
    for _ in range(10):
        node.missing = ["kubelet registration"]
        node.pass_time(LONG_SECONDS - 10)
        node.missing = []
        node.pass_time(1)
    node.missing = ["kubelet registration"]
    assert (await node.get("/healthz"))[0] == 200


async def test_outages_are_timed_separately(node: Node) -> None:
    node.missing = ["kubelet registration"]
    node.pass_time(LONG_SECONDS - 10)
    node.missing = ["ResourceSlice publication"]
    node.pass_time(20)
    assert (await node.get("/healthz"))[0] == 200


async def test_ended_outage_is_forgotten(node: Node) -> None:
    node.missing = ["kubelet registration"]
    node.pass_time(2 * LONG_SECONDS)
    node.missing = []
    assert await node.get("/healthz") == (200, "ok\n")


async def test_a_busy_driver_answers_and_a_busy_port_does_not_stop_the_driver(node: Node) -> None:
    """Hooks run on the driver's loop. This test occupies it while it asks, so another thread must answer."""
    await node.web.start("127.0.0.1:0")
    try:
        assert _ask(node.web.ports[0], "/readyz") == (200, "ok\n")
        assert _ask(node.web.ports[0], "/metrics") == (200, "up 1\n")
        assert threading.get_ident() not in node.collected
    finally:
        await node.web.stop()


async def test_many_scrapes_collect_the_metrics_once_a_second(node: Node) -> None:
    await node.web.start("127.0.0.1:0")
    try:
        for _ in range(50):
            assert (await asyncio.to_thread(_ask, node.web.ports[0], "/metrics")) == (200, "up 1\n")
        assert len(node.collected) == 1
        node.now += 1.1
        await asyncio.to_thread(_ask, node.web.ports[0], "/metrics")
        assert len(node.collected) == 2
    finally:
        await node.web.stop()


async def test_idle_connections_make_room_for_the_kubelets_probe(node: Node) -> None:
    await node.web.start("127.0.0.1:0")
    idle = [await asyncio.open_connection("127.0.0.1", node.web.ports[0]) for _ in range(4 * MAX_CONNECTIONS)]
    try:
        assert await asyncio.to_thread(_ask, node.web.ports[0], "/livez") == (200, "ok\n")
        oldest = [reader.read() for reader, _ in idle[: 3 * MAX_CONNECTIONS]]
        assert set(await asyncio.gather(*oldest)) == {b""}
    finally:
        for _, writer in idle:
            writer.close()
        await node.web.stop()


async def test_a_used_port_is_an_error_of_the_start(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:  # without SO_REUSEPORT: not another driver
        with pytest.raises(OSError, match="address already in use"):
            await node.web.start(f"127.0.0.1:{other.getsockname()[1]}")
