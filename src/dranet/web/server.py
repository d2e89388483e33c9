"""The page on a port of this machine, or in a file."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from dranet.core.errors import DranetError, InvalidInput, NotFound
from dranet.core.http import Request
from dranet.web.assets import page
from dranet.web.cluster import ClusterObjects, Holder
from dranet.web.feed import Feed
from dranet.web.http import Handler, Response, is_loopback, serve_request, text_response
from dranet.web.job_details import job_details
from dranet.web.questions import explain_holder, lint_manifest, node_details, plan_manifest
from dranet.web.sources import LiveSource, Source
from dranet.web.traffic import Traffic

_ACCEPT_TURNS = 3
"""Iterations of the event loop from the acceptance of a connection to our callback."""
_DETAILED_NODES = 64
"""With more nodes, an export omits the attributes of devices, so that the file stays small enough for a ticket."""
_EXPLAINED_HOLDERS = 500
"""With more pods, an export omits their explanations."""


class Page:
    """Handles the requests of the browser."""

    def __init__(self, cluster: ClusterObjects, feed: Feed, traffic: Traffic | None) -> None:
        self._cluster = cluster
        self._feed = feed
        self._traffic = traffic

    async def handle(self, request: Request) -> Response:
        """Handle an authorized request."""
        match request.method, request.path:
            case "GET", "/":
                html, policy = page()
                headers = {"Content-Security-Policy": policy}
                return Response(200, "text/html; charset=utf-8", html.encode(), headers)
            case "GET", "/events":
                stream = self._feed.events(request.headers.get("last-event-id", ""))
                return Response(200, "text/event-stream", stream=stream)
            case "GET", "/explain":
                return await self._ask(explain_holder, Holder.parse(request.query.get("holder", "")))
            case "GET", "/job":
                return await self._ask(job_details, request.query.get("name", ""))
            case "GET", "/history":
                return Response(200, "application/json", msgspec.json.encode(self._feed.history.to_json()))
            case "GET", "/traffic":
                return await self._count(request.query.get("node", ""))
            case "GET", "/node":
                return await self._ask(node_details, request.query.get("name", ""))
            case "POST", "/plan":
                return await self._try(plan_manifest, request)
            case "POST", "/lint":
                return await self._try(lint_manifest, request)
        return text_response(404, f"Not found: {request.method} {request.path}")

    async def _count(self, node: str) -> Response:
        """Only for nodes on the page, so that a request cannot reach other pods."""
        if self._traffic is None or node not in self._cluster.nodes_with_slices:
            return text_response(404, f"No traffic counters for {node!r}: not a node of a live cluster")
        try:
            return Response(200, "application/json", msgspec.json.encode(await self._traffic.of(node)))
        except DranetError as error:
            return text_response(404, str(error))

    async def _try(self, question: Callable[..., Any], request: Request) -> Response:
        try:
            manifest = request.body.decode()
        except UnicodeDecodeError:
            return text_response(400, "The manifest is not UTF-8 text")
        return await self._ask(question, manifest, request.query.get("file") or "manifest")

    async def _ask(self, question: Callable[..., Any], *about: Any) -> Response:
        """In a thread, because a request may take long on a large cluster and the event stream must go on."""
        try:
            response = await asyncio.to_thread(question, self._cluster.snapshot(), *about)
        except NotFound as error:
            return text_response(404, str(error))
        except DranetError as error:
            return text_response(400, str(error))
        return Response(200, "application/json", msgspec.json.encode(response))


@contextlib.asynccontextmanager
async def serving(
    source: Source,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    listener: socket.socket | None = None,
    guard: Callable[[Handler], Handler] = lambda page: page,
) -> AsyncIterator[str]:
    """Follow the source and serve the page; yields its URL. `listener` is used if given."""
    async with _session(source, listener or listen(host, port), guard) as (url, _):
        yield url


async def serve(
    source: Source,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    ready: Callable[[str], None] = lambda _: None,
    guard: Callable[[Handler], Handler] = lambda page: page,
) -> None:
    """Serve until cancelled; calls `ready` with the URL. `guard` wraps the page's handler.

    Raises if the source cannot be followed.
    """
    async with _session(source, listen(host, port), guard) as (url, following):
        ready(url)
        await following
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def _session(
    source: Source, listener: socket.socket, guard: Callable[[Handler], Handler]
) -> AsyncIterator[tuple[str, asyncio.Task[None]]]:
    cluster = ClusterObjects()
    feed = Feed(cluster, source.title, source.live)
    traffic = Traffic(source.client, source.driver_namespace) if isinstance(source, LiveSource) else None
    handler = guard(Page(cluster, feed, traffic).handle)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Register the task here, not in its first step: a stop in between would leave the connection open.
        task = asyncio.create_task(_serve_connection(reader, writer, handler))
        tasks.add(task)
        task.add_done_callback(lambda _: writer.transport.abort())  # also if it never started
        task.add_done_callback(tasks.discard)

    following = asyncio.create_task(source.follow(cluster))
    server = await asyncio.start_server(accept, sock=listener)
    try:
        yield address(listener), following
    finally:
        # Stop accepting, and let accepted connections reach our callback: closing the server now would leak them.
        asyncio.get_running_loop().remove_reader(listener)
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0)
        server.close()
        for task in (following, *tasks):
            task.cancel()
        await asyncio.gather(following, *tasks, return_exceptions=True)
        feed.close()


async def _serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
    await serve_request(reader, writer, handler)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def export(source: Source, now: datetime | None = None) -> str:
    """The page as one file, with the present state and all responses inside."""
    cluster = ClusterObjects()
    await source.load(cluster)
    feed = Feed(cluster, source.title, False)
    world = feed.world()
    feed.close()
    answers: dict[str, Any] = {}
    if len(world["holders"]) <= _EXPLAINED_HOLDERS:
        holders = [Holder.parse(holder["key"]) for holder in world["holders"]]
        answers |= {f"/explain?{holder}": explain_holder(cluster, holder) for holder in holders}
        jobs = {f"{Holder.parse(one['key']).namespace}/{one['job']}" for one in world["holders"] if "job" in one}
        answers |= {f"/job?{job}": job_details(cluster, job) for job in sorted(jobs)}
    if len(world["nodes"]) <= _DETAILED_NODES:
        answers |= {f"/node?{node['name']}": node_details(cluster, node["name"]) for node in world["nodes"]}
    taken = (now or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M UTC")
    return page({**world, "taken": taken, "answers": answers})[0]


def address(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on a loopback address."""
    if not is_loopback(host):
        raise InvalidInput(f"--listen {host}: not a loopback address; use 127.0.0.1, and ssh -L from other machines")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        with contextlib.ExitStack() as stack:
            stack.callback(made.close)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(where)
            made.listen()
            stack.pop_all()
    except (OSError, OverflowError) as error:
        raise InvalidInput(f"--listen {host}:{port}: {error}; choose another port, or 0 for any free one") from error
    return made
