"""The door of the page: who is let in, what leaves with every answer, and that only changes are sent."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from dranet.core.errors import InvalidInput
from dranet.kubernetes.api import resources
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.http import NetTransport
from dranet.machines.shape import load_shape
from dranet.machines.shape_devices import shape_slices
from dranet.testing.apihttp import serve as serve_api
from dranet.testing.apiserver import SandboxApiServer, json_response
from dranet.testing.faults import LocalTransport
from dranet.web import LiveSource, serve, serving
from dranet.web.cluster import CLAIMS, KINDS, ClusterObjects
from dranet.web.feed import REMEMBERED, Feed
from dranet.web.http import MAX_BODY
from dranet.web.server import listen

ALONE = "127.0.0.77"
"""A loopback address of our own: a port that is closed stays free."""


def a_cluster(nodes: int = 2) -> SandboxApiServer:
    api = SandboxApiServer()
    for i in range(nodes):
        for item in shape_slices(load_shape("nd-gb300-v6"), f"node-{i}", i):
            api.put(resources.RESOURCE_SLICES, item)
    return api


def a_claim(node: str, device: str, pod: str = "worker") -> dict[str, Any]:
    result = {"driver": "dra.net", "pool": node, "device": device, "request": "nic"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": "1"}],
    }
    return {"metadata": {"name": f"{pod}-nic", "namespace": "team"}, "spec": {"devices": {}}, "status": status}


@contextlib.asynccontextmanager
async def a_page(api: SandboxApiServer) -> AsyncIterator[int]:
    async with serving(LiveSource("test", KubeClient(LocalTransport(api)))) as url:
        yield int(url.rstrip("/").rpartition(":")[2])


async def ask(port: int, path: str = "/", method: str = "GET", body: bytes = b"", **headers: str) -> tuple[int, str]:
    sent = {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(body))}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
    writer.write("\r\n".join(lines).encode() + body)
    answer = (await reader.read()).decode()
    writer.close()
    return int(answer.split()[1]), answer


@contextlib.asynccontextmanager
async def a_stream(port: int, last: str = "") -> AsyncIterator[AsyncIterator[tuple[str, dict[str, Any]]]]:
    """The events of /events: kind and data, in which ``id`` is the event's own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    extra = f"Last-Event-ID: {last}\r\n" if last else ""
    writer.write(f"GET /events HTTP/1.1\r\nHost: localhost:{port}\r\n{extra}\r\n".encode())

    async def events() -> AsyncIterator[tuple[str, dict[str, Any]]]:
        fields: dict[str, str] = {}
        while line := (await reader.readline()).decode():
            name, _, value = line.strip().partition(": ")
            fields[name] = value
            if name == "data":
                yield fields["event"], {**json.loads(value), "id": fields["id"]}

    try:
        yield events()
    finally:
        writer.close()


async def until(events: AsyncIterator[tuple[str, dict[str, Any]]], wanted: str) -> dict[str, Any]:
    """The next change that says something about this."""
    async for _, data in events:
        if data.get(wanted):
            return data
    raise AssertionError("the stream ended")


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[", ""]
)
async def test_a_request_for_a_foreign_host_is_refused(host: str) -> None:
    async with a_page(a_cluster()) as port:
        for path in ("/", "/events", "/node?name=node-0"):
            status, answer = await ask(port, path, Host=host)
            assert status == 403
            assert "node-0" not in answer


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.9.8.7", "localhost:9999"])
async def test_names_of_this_machine_are_answered(host: str) -> None:
    async with a_page(a_cluster()) as port:
        assert (await ask(port, Host=host))[0] == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "https://127.0.0.1"])
async def test_a_request_of_a_foreign_origin_is_refused(origin: str) -> None:
    async with a_page(a_cluster()) as port:
        assert (await ask(port, "/plan", "POST", b"kind: Pod", Origin=origin))[0] == 403
        assert (await ask(port, "/events", Origin=origin))[0] == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_request_that_another_page_makes_the_browser_send_is_refused(site: str) -> None:
    async with a_page(a_cluster()) as port:
        assert (await ask(port, "/node?name=node-0", Sec_Fetch_Site=site))[0] == 403


async def test_the_pages_own_requests_are_answered() -> None:
    async with a_page(a_cluster()) as port:
        own = {"Origin": f"http://127.0.0.1:{port}", "Sec_Fetch_Site": "same-origin"}
        async with a_stream(port) as events:
            await anext(events)
            status, answer = await ask(port, "/node?name=node-0", "GET", b"", **own)
        assert status == 200
        assert "mlx5_0" in answer


async def test_every_answer_forbids_foreign_scripts_frames_and_guessing() -> None:
    async with a_page(a_cluster()) as port:
        _, answer = await ask(port)
        head, _, body = answer.partition("\r\n\r\n")
        assert "default-src 'none'; script-src 'sha256-" in head
        assert "frame-ancestors 'none'" in head
        assert "unsafe" not in head
        assert "nosniff" in head and "no-store" in head
        for outside in ("http://", "https://", "<link", "@import", "url(http"):
            assert outside not in body.replace("http://www.w3.org/2000/svg", "")


async def test_only_loopback_addresses_are_listened_on() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com"):
        with pytest.raises(InvalidInput, match="not a loopback"):
            listen(host, 0)


async def test_a_port_in_use_is_said_plainly() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(InvalidInput, match="choose another port"):
        listen("127.0.0.1", taken.getsockname()[1])


async def test_a_socket_made_elsewhere_can_be_served_on() -> None:
    socket = listen("127.0.0.1", 0)
    async with serving(LiveSource("test", KubeClient(LocalTransport(a_cluster()))), listener=socket) as url:
        assert url == f"http://127.0.0.1:{socket.getsockname()[1]}/"
        assert (await ask(socket.getsockname()[1]))[0] == 200


async def test_nothing_can_be_written_through_the_page() -> None:
    api = a_cluster()
    async with a_page(api) as port:
        writes = api.writes
        for method in ("PUT", "DELETE", "PATCH", "POST"):
            assert (await ask(port, "/node?name=node-0", method))[0] == 404
        manifest = b"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: []}"
        await ask(port, "/plan", "POST", manifest)
        await ask(port, "/lint", "POST", manifest)
        assert api.writes == writes


async def test_a_body_without_end_is_cut_off() -> None:
    async with a_page(a_cluster()) as port:
        with contextlib.suppress(ConnectionError):
            assert (await ask(port, "/plan", "POST", b"x" * (MAX_BODY + 1)))[0] == 413


@pytest.mark.timeout(60)
@pytest.mark.parametrize("path", ["/plan", "/lint"])
async def test_texts_that_ask_for_much_are_answered_in_words_and_the_page_lives_on(path: str) -> None:
    async with a_page(a_cluster()) as port:
        brackets = (await ask(port, path, "POST", b"[" * 100_000))[1]
        assert "nested more than 100 levels deep" in brackets
        pattern = f"'{'a' * 5000}!'.matches('(a+)+$')"
        request = {"name": "nic", "exactly": {"deviceClassName": "x", "selectors": [{"cel": {"expression": pattern}}]}}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "nic"},
            "spec": {"devices": {"requests": [request]}},
        }
        assert (await ask(port, path, "POST", json.dumps(claim).encode()))[0] == 200
        assert (await ask(port))[0] == 200


async def test_what_does_not_exist_is_said_plainly() -> None:
    async with a_page(a_cluster()) as port:
        assert (await ask(port, "/favicon.ico"))[0] == 404
        assert "node 'x' has no ResourceSlices" in (await ask(port, "/node?name=x"))[1]
        assert "x/y no longer exists" in (await ask(port, "/explain?holder=x/y"))[1]


async def test_a_change_is_sent_alone_and_not_the_world() -> None:
    api = a_cluster(nodes=50)
    async with a_page(api) as port, a_stream(port) as events:
        nodes: set[str] = set()
        while len(nodes) < 50:
            nodes |= {node["name"] for node in (await anext(events))[1].get("nodes", [])}
        api.put(resources.RESOURCE_CLAIMS, a_claim("node-7", "pci-0101-00-00-0"))
        change = await until(events, "holders")
        assert [(holder["key"], holder["node"]) for holder in change["holders"]] == [("team/worker", "node-7")]
        assert "nodes" not in change and "layouts" not in change
        assert len(json.dumps(change)) < 1000


async def test_a_page_that_comes_back_gets_what_it_missed() -> None:
    api = a_cluster()
    async with a_page(api) as port:
        async with a_stream(port) as events:
            last = (await until(events, "nodes"))["id"]
        api.put(resources.RESOURCE_CLAIMS, a_claim("node-0", "pci-0101-00-00-0"))
        async with a_stream(port, last) as events:
            kind, change = await anext(events)
            while "holders" not in change:
                kind, change = await anext(events)
            assert kind == "change"
            assert change["holders"][0]["key"] == "team/worker"


@pytest.mark.parametrize("last", ["1", "otherserver-1", "otherserver-999999", "x-y", "-"])
async def test_a_page_that_knew_another_server_gets_the_world(last: str) -> None:
    async with a_page(a_cluster()) as port, a_stream(port, last) as events:
        assert (await anext(events))[0] == "world"


async def test_a_page_that_missed_too_much_gets_the_world() -> None:
    cluster = ClusterObjects()
    feed = Feed(cluster, "test", True)
    first = (await anext(feed.events())).split(b"\n")[0].removeprefix(b"id: ").decode()
    for number in range(REMEMBERED + 1):
        cluster.put(CLAIMS, a_claim("node", "nic", f"pod-{number}"))
        feed.flush()
    assert b"event: world" in await anext(feed.events(first))


async def test_a_kind_that_may_not_be_read_is_named_and_the_rest_is_shown() -> None:
    class NoPods(LocalTransport):
        async def open(self, request: Any) -> Any:
            if "/pods" in request.target:
                return json_response({"kind": "Status", "message": "pods is forbidden", "reason": "Forbidden"}, 403)
            return await super().open(request)

    async with serving(LiveSource("test", KubeClient(NoPods(a_cluster())))) as url:
        async with a_stream(int(url.rstrip("/").rpartition(":")[2])) as events:
            seen: dict[str, Any] = {}
            while not seen.get("nodes") or seen.get("waiting") != ["Pod"]:
                seen |= (await anext(events))[1]
    assert [node["name"] for node in seen["nodes"]] == ["node-0", "node-1"]


async def test_a_cluster_that_cannot_be_reached_ends_the_command_with_its_reason() -> None:
    class Dead(LocalTransport):
        async def open(self, request: Any) -> Any:
            raise InvalidInput("no route to the cluster")

    with pytest.raises(InvalidInput, match="no route"):
        await serve(LiveSource("dead", KubeClient(Dead(SandboxApiServer()))))


@contextlib.asynccontextmanager
async def a_page_over_http(port: int) -> AsyncIterator[int]:
    async with (
        KubeClient(NetTransport(ALONE, port)) as client,
        serving(LiveSource("test", client)) as url,
    ):
        yield int(url.rstrip("/").rpartition(":")[2])


async def test_a_page_whose_api_server_dies_says_since_when_it_is_stale_and_when_it_is_true_again() -> None:
    api = a_cluster()
    async with contextlib.AsyncExitStack() as stack:
        first = contextlib.AsyncExitStack()
        api_port = await first.enter_async_context(serve_api(api, host=ALONE))
        page = await stack.enter_async_context(a_page_over_http(api_port))
        events = await stack.enter_async_context(a_stream(page))
        world: dict[str, Any] = {}
        while world.get("waiting") != [] or not world.get("nodes"):
            world |= (await anext(events))[1]
        assert world["stale"] is None
        before = datetime.now(UTC)
        await first.aclose()
        stale = await until(events, "stale")
        while len(stale["stale"]["kinds"]) < len(KINDS):
            stale = await until(events, "stale")
        assert before.replace(microsecond=0) <= datetime.fromisoformat(stale["stale"]["since"]) <= datetime.now(UTC)
        assert f"cannot connect to the API server at {ALONE}:{api_port}" in stale["stale"]["reason"]
        async with a_stream(page) as late:
            assert (await anext(late))[1]["stale"]["since"] == stale["stale"]["since"]
        await stack.enter_async_context(serve_api(api, host=ALONE, port=api_port))
        change = stale
        while change.get("stale", "nothing said") is not None:
            change = (await anext(events))[1]


@pytest.mark.parametrize("turns", range(8))
def test_a_page_that_ends_leaves_no_connection_open(turns: int) -> None:
    """Whatever the connection has come to: accepted by the loop, passed to us, begun, answered."""

    async def live() -> socket.socket:
        async with a_page(SandboxApiServer()) as port:
            visitor = socket.create_connection(("127.0.0.1", port))
            for _ in range(turns):
                await asyncio.sleep(0)
        return visitor

    loop = asyncio.new_event_loop()
    visitor = loop.run_until_complete(live())
    loop.close()
    try:
        visitor.settimeout(30)
        with contextlib.suppress(ConnectionResetError):
            assert visitor.recv(1) == b"", "the other end is still open"
    finally:
        visitor.close()
        gc.collect()  # an unclosed transport is an error of this test, not of a later one
