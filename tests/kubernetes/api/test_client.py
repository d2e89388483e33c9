"""The client against a real socket: reuse, TLS, paging, watches, versions, and a server in trouble."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
import trustme

from dranet.core.device import Device
from dranet.core.http import Request
from dranet.core.slices import resource_slices
from dranet.kubernetes.api.client import PAGE, KubeClient, WatchEvent
from dranet.kubernetes.api.errors import ConfigError, Conflict, ConnectionLost, Expired, Invalid, ObjectNotFound
from dranet.kubernetes.api.http import NetTransport
from dranet.kubernetes.api.reflector import list_and_watch
from dranet.kubernetes.api.resources import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dranet.testing.apihttp import serve
from dranet.testing.apiserver import Response, SandboxApiServer
from dranet.testing.faults import LocalTransport, instantly, run_instantly

ALONE = "127.0.0.77"
"""A loopback address of our own: a port that is closed stays free."""


class Recording(SandboxApiServer):
    """Notes requests, and answers some of them from a script first."""

    def __init__(self, *script: Response, **options: Any) -> None:
        super().__init__(**options)
        self.requests: list[Request] = []
        self.script = list(script)

    async def handle(self, request: Request) -> Response:
        self.requests.append(request)
        return self.script.pop(0) if self.script else await super().handle(request)


def local(server: SandboxApiServer) -> KubeClient:
    return KubeClient(LocalTransport(server))


@contextlib.asynccontextmanager
async def over_http(server: SandboxApiServer) -> AsyncIterator[KubeClient]:
    async with serve(server) as port, KubeClient(NetTransport("127.0.0.1", port)) as client:
        yield client


def a_slice(name: str = "eth0") -> dict[str, Any]:
    return resource_slices([Device(name=name)], node="node-a")[0]


async def test_objects_survive_the_way_over_a_socket() -> None:
    async with over_http(SandboxApiServer()) as client:
        stored = await client.create(RESOURCE_SLICES, a_slice())
        assert await client.get(RESOURCE_SLICES, stored["metadata"]["name"]) == stored


async def test_one_connection_carries_many_requests() -> None:
    server = SandboxApiServer()
    server.put(NODES, {"metadata": {"name": "n"}})
    async with serve(server) as port:
        transport = NetTransport("127.0.0.1", port)
        async with KubeClient(transport) as client:
            for _ in range(5):
                await client.get(NODES, "n")
            assert len(transport._idle) == 1


async def test_a_connection_nobody_uses_is_given_back_and_the_next_request_makes_another() -> None:
    server = SandboxApiServer()
    server.put(NODES, {"metadata": {"name": "n"}})
    async with serve(server) as port:
        transport = NetTransport("127.0.0.1", port, idle_seconds=0.01)
        async with KubeClient(transport) as client:
            await client.get(NODES, "n")
            (lying,) = transport._idle
            await lying.writer.wait_closed()
            assert transport._idle == []
            assert (await client.get(NODES, "n"))["metadata"]["name"] == "n"


async def test_a_connection_the_server_closed_meanwhile_is_replaced() -> None:
    server = SandboxApiServer()
    server.put(NODES, {"metadata": {"name": "n"}})
    async with serve(server, host=ALONE) as port:
        client = KubeClient(NetTransport(ALONE, port))
        await client.get(NODES, "n")
    async with serve(server, host=ALONE, port=port):
        assert (await client.get(NODES, "n"))["metadata"]["name"] == "n"
        await client.close()


async def test_no_server_is_a_lost_connection_that_says_where() -> None:
    async with serve(SandboxApiServer(), host=ALONE) as port:
        pass
    with pytest.raises(ConnectionLost, match=f"cannot connect to the API server at {ALONE}:{port}"):
        await KubeClient(NetTransport(ALONE, port)).get(NODES, "n")


async def test_a_silent_server_is_given_up_after_the_timeout() -> None:
    finished = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        finished.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, KubeClient(NetTransport("127.0.0.1", port), timeout=0.05) as client:
        with pytest.raises(ConnectionLost, match="no response within"):
            await client.get(NODES, "n")
        await finished.wait()


async def test_a_server_with_a_foreign_certificate_is_not_trusted() -> None:
    ca = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    async with serve(SandboxApiServer(), context=context) as port:
        transport = NetTransport("127.0.0.1", port, ssl.create_default_context())
        with pytest.raises(ConnectionLost, match=r"(?i)certificate verify failed"):
            await KubeClient(transport).get(NODES, "n")


async def test_long_lists_come_page_by_page() -> None:
    server = Recording()
    for index in range(PAGE + 1):
        server.put(PODS, {"metadata": {"name": f"p{index:04}", "namespace": "default"}})
    items, position = await local(server).list(PODS)
    assert len(items) == PAGE + 1
    assert len(server.requests) == 2
    assert int(position) >= PAGE + 1


async def test_a_watch_tells_what_happened_since_the_list() -> None:
    server = SandboxApiServer()
    async with over_http(server) as client:
        _, position = await client.list(NODES)
        events = client.watch(NODES, position)
        server.put(NODES, {"metadata": {"name": "n"}})
        assert (await anext(events)).type == "ADDED"
        server.remove(NODES, "n")
        assert (await anext(events)).type == "DELETED"
        await events.aclose()


@contextlib.asynccontextmanager
async def a_server_that_falls_silent() -> AsyncIterator[int]:
    """It answers a watch with its head and then nothing more, as one does whose machine was cut off."""
    silent = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        await silent.wait()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        silent.set()


async def test_a_watch_that_falls_silent_is_given_up_after_its_time() -> None:
    async with a_server_that_falls_silent() as port:
        async with KubeClient(NetTransport("127.0.0.1", port), timeout=0.2) as client:
            loop = asyncio.get_running_loop()
            began = loop.time()
            with pytest.raises(ConnectionLost, match="no data, and the watch did not end after 1 s"):
                await anext(client.watch(NODES, "7", seconds=1))
            assert 1.2 <= loop.time() - began < 5


async def test_a_watch_from_a_forgotten_version_is_expired() -> None:
    server = SandboxApiServer()
    server.put(NODES, {"metadata": {"name": "n"}})
    server.compact_history()
    with pytest.raises(Expired):
        await anext(local(server).watch(NODES, "0"))


async def test_a_compaction_during_a_watch_is_expired_too() -> None:
    server = SandboxApiServer()
    client = local(server)
    _, position = await client.list(NODES)
    events = client.watch(NODES, position)
    server.put(NODES, {"metadata": {"name": "n"}})
    await anext(events)
    server.put(NODES, {"metadata": {"name": "m"}})
    server.compact_history()
    with pytest.raises(Expired):
        await anext(events)


@instantly
async def test_a_quiet_watch_still_moves_its_position_by_bookmarks() -> None:
    server = SandboxApiServer()
    client = local(server)
    events = client.watch(NODES, "0")
    server.put(PODS, {"metadata": {"name": "p", "namespace": "default"}})
    event = await anext(events)
    assert (event.type, event.object["metadata"]["resourceVersion"]) == ("BOOKMARK", "1")
    await events.aclose()


@instantly
async def test_a_busy_server_is_asked_again_after_the_time_it_names_and_not_by_all_in_that_moment() -> None:
    busy = Response(429, b'{"reason": "TooManyRequests"}', {"retry-after": "7"})
    server = Recording(busy, Response(503, b"{}", {"retry-after": "2"}))
    server.put(NODES, {"metadata": {"name": "n"}})
    await local(server).get(NODES, "n")
    assert 10.5 <= asyncio.get_running_loop().time() < 12


class Notes:
    """An event handler that records the lists."""

    def __init__(self) -> None:
        self.lists: list[int] = []

    def replaced(self, items: list[dict[str, Any]]) -> None:
        self.lists.append(len(items))

    def changed(self, event: WatchEvent) -> None:
        raise AssertionError(f"nothing changed: {event}")


def test_following_a_busy_server_waits_as_long_as_it_asks_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        busy = [Response(429, b'{"message": "busy"}', {"retry-after": "20"}) for _ in range(3)]
        server = Recording(await SandboxApiServer().handle(Request("GET", "/api/v1/nodes")), *busy)
        task = asyncio.create_task(list_and_watch(local(server), NODES, Notes()))
        await asyncio.sleep(70)
        assert len(server.requests) == 5
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_instantly(scenario())
    assert [record.levelname for record in caplog.records if "busy" in record.message] == ["WARNING"]


REFUSED = Response(429, b"{}", {"retry-after": "1"})


@pytest.mark.parametrize(("lost", "least", "most"), [(False, 0.9, 2.3), (True, 0.9, 122.1)])
def test_who_is_refused_comes_back_soon_but_not_one_of_many_who_have_lost_their_streams(
    lost: bool, least: float, most: float
) -> None:
    """Ten thousand nodes whose server restarted get the same Retry-After. A node that starts has devices to publish."""

    async def asked_again_after(seed: int) -> float:
        there = await SandboxApiServer().handle(Request("GET", "/api/v1/nodes"))
        server = Recording(*((there, Response(200, lines=broken_stream())) if lost else ()), REFUSED)
        client = KubeClient(LocalTransport(server), rng=random.Random(seed))
        task = asyncio.create_task(list_and_watch(client, NODES, Notes(), fields="metadata.name=n", spread=120))
        times = []
        for count in (3, 4) if lost else (1, 2):
            while len(server.requests) < count:  # noqa: ASYNC110 - the clock is played
                await asyncio.sleep(0.1)
            times.append(asyncio.get_running_loop().time())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return times[1] - times[0]

    waited = [run_instantly(asked_again_after(seed)) for seed in range(20)]
    assert least <= min(waited) and max(waited) <= most, sorted(waited)
    assert max(waited) - min(waited) > (most - least) / 2, waited


async def broken_stream() -> AsyncGenerator[bytes, None]:
    raise ConnectionLost("the response ended early")
    yield b""


async def troubles(*answers: Response) -> list[str]:
    """The reported errors while a list succeeds, the watches after it get these answers, and the next one works."""
    server = Recording(await SandboxApiServer().handle(Request("GET", "/api/v1/nodes")), *answers)
    reported: list[str] = []
    task = asyncio.create_task(list_and_watch(local(server), NODES, Notes(), on_error=reported.append))
    await asyncio.sleep(60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return reported


def test_a_stream_that_breaks_off_and_comes_back_at_once_is_no_trouble() -> None:
    assert run_instantly(troubles(Response(200, lines=broken_stream()))) == ["", ""]


def test_a_stream_that_does_not_come_back_is_trouble_until_it_does() -> None:
    down = [Response(500, b'{"message": "down"}') for _ in range(2)]
    reported = run_instantly(troubles(Response(200, lines=broken_stream()), *down))
    assert ["down" in reason for reason in reported] == [False, True, True, False]
    assert reported[-1] == ""


async def test_the_newest_version_both_sides_know_is_spoken() -> None:
    assert await local(SandboxApiServer(versions=["v1beta1"])).resource_version() == "v1beta1"
    assert await local(SandboxApiServer(versions=["v1beta1", "v1beta2"])).resource_version() == "v1beta2"
    assert await local(SandboxApiServer()).resource_version() == "v1"


async def test_a_server_without_the_resource_api_is_named_as_such() -> None:
    with pytest.raises(ConfigError, match=r"serves resource\.k8s\.io in no version"):
        await local(SandboxApiServer(versions=[])).list(RESOURCE_SLICES)


async def test_an_upgraded_server_is_asked_for_its_versions_again() -> None:
    server = SandboxApiServer(versions=["v1beta1"])
    client = local(server)
    await client.list(RESOURCE_SLICES)
    server._versions = ("v1",)
    with pytest.raises(ObjectNotFound):
        await client.list(RESOURCE_SLICES)
    await client.list(RESOURCE_SLICES)
    assert await client.resource_version() == "v1"


async def test_writing_over_a_newer_object_is_a_conflict() -> None:
    client = local(SandboxApiServer())
    stored = await client.create(RESOURCE_SLICES, a_slice("eth0"))
    await client.replace(RESOURCE_SLICES, {**a_slice("eth1"), "metadata": stored["metadata"]})
    with pytest.raises(Conflict):
        await client.replace(RESOURCE_SLICES, {**a_slice("eth2"), "metadata": stored["metadata"]})


async def test_an_invalid_slice_names_the_field() -> None:
    with pytest.raises(Invalid) as caught:
        await local(SandboxApiServer()).create(RESOURCE_SLICES, a_slice("Not A Label"))
    assert caught.value.causes[0]["field"] == "spec.devices[0].name"


async def test_deleting_what_is_gone_is_fine_and_another_object_of_that_name_is_kept() -> None:
    server = SandboxApiServer()
    client = local(server)
    await client.delete(RESOURCE_CLAIMS, "c", "default")
    server.put(RESOURCE_CLAIMS, {"metadata": {"name": "c", "namespace": "default"}})
    with pytest.raises(Conflict):
        await client.delete(RESOURCE_CLAIMS, "c", "default", uid="another")


async def test_an_answer_that_is_not_json_is_quoted() -> None:
    server = Recording(Response(502, b"<html>bad gateway</html>"))
    with pytest.raises(Exception, match=r"502.*bad gateway"):
        await local(server).get(NODES, "n")
