"""The page behind a port of this machine, or in a file."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from dranet.basics.http import Request
from dranet.model.errors import DranetError, InvalidInput, NotFound
from dranet.web.assets import page
from dranet.web.cluster import ClusterObjects, Holder
from dranet.web.feed import Feed
from dranet.web.http import Answer, Handler, converse, is_loopback, text
from dranet.web.job_details import job_details
from dranet.web.questions import explain_holder, lint_manifest, node_details, plan_manifest
from dranet.web.sources import Source
from dranet.web.traffic import Traffic

TURNS_TO_BE_KNOWN = 3
"""Of the event loop, from the moment it accepts a connection until we are told of it."""
DETAILED_NODES = 64
"""Up to this many nodes an export holds the attributes of every device: a file for a ticket must stay small."""
EXPLAINED_HOLDERS = 500
"""Up to this many pods an export holds their explanations."""


class Page:
    """Answers the browser."""

    def __init__(self, cluster: ClusterObjects, feed: Feed, traffic: Traffic | None) -> None:
        self._cluster = cluster
        self._feed = feed
        self._traffic = traffic

    async def handle(self, request: Request) -> Answer:
        """Any request that has passed the door."""
        match request.method, request.path:
            case "GET", "/":
                html, policy = page()
                headers = {"Content-Security-Policy": policy}
                return Answer(200, "text/html; charset=utf-8", html.encode(), headers)
            case "GET", "/events":
                stream = self._feed.events(request.headers.get("last-event-id", ""))
                return Answer(200, "text/event-stream", stream=stream)
            case "GET", "/explain":
                return await self._ask(explain_holder, Holder.parse(request.query.get("holder", "")))
            case "GET", "/job":
                return await self._ask(job_details, request.query.get("name", ""))
            case "GET", "/history":
                return Answer(200, "application/json", msgspec.json.encode(self._feed.history.told()))
            case "GET", "/traffic":
                return await self._count(request.query.get("node", ""))
            case "GET", "/node":
                return await self._ask(node_details, request.query.get("name", ""))
            case "POST", "/plan":
                return await self._try(plan_manifest, request)
            case "POST", "/lint":
                return await self._try(lint_manifest, request)
        return text(404, f"nothing here: {request.method} {request.path}")

    async def _count(self, node: str) -> Answer:
        """Only of nodes that are shown: nobody gets the page to ask elsewhere."""
        if self._traffic is None or node not in self._cluster.nodes_with_slices:
            return text(404, f"nobody counts on {node!r}: it is not a node of a live cluster")
        try:
            return Answer(200, "application/json", msgspec.json.encode(await self._traffic.of(node)))
        except DranetError as error:
            return text(404, str(error))

    async def _try(self, question: Callable[..., Any], request: Request) -> Answer:
        try:
            manifest = request.body.decode()
        except UnicodeDecodeError:
            return text(400, "a manifest is UTF-8 text; this is not")
        return await self._ask(question, manifest, request.query.get("file") or "manifest")

    async def _ask(self, question: Callable[..., Any], *about: Any) -> Answer:
        """Questions may take a while on a large cluster; the event stream goes on meanwhile."""
        try:
            answer = await asyncio.to_thread(question, self._cluster.snapshot(), *about)
        except NotFound as error:
            return text(404, str(error))
        except DranetError as error:
            return text(400, str(error))
        return Answer(200, "application/json", msgspec.json.encode(answer))


@contextlib.asynccontextmanager
async def serving(
    source: Source,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    listener: socket.socket | None = None,
    guard: Callable[[Handler], Handler] = lambda page: page,
) -> AsyncIterator[str]:
    """Follow the source and serve the page; gives its address. A ready `listener` may be handed in."""
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
    """Serve until cancelled; `ready` is told the address. A source that cannot be followed at all raises. A `guard`
    stands before the page."""
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
    handler = guard(Page(cluster, feed, Traffic(source.client) if source.client else None).handle)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Known from here on, and not from its first step: whoever stops serving in between would leave it open.
        task = asyncio.create_task(_conversation(reader, writer, handler))
        tasks.add(task)
        task.add_done_callback(lambda _: writer.transport.abort())  # nothing is left of it, even if it never began
        task.add_done_callback(tasks.discard)

    following = asyncio.create_task(source.follow(cluster))
    server = await asyncio.start_server(accept, sock=listener)
    try:
        yield address(listener), following
    finally:
        # No more, and those it has accepted come to us first: a server that is closed meanwhile loses their sockets.
        asyncio.get_running_loop().remove_reader(listener)
        for _ in range(TURNS_TO_BE_KNOWN):
            await asyncio.sleep(0)
        server.close()
        for task in (following, *tasks):
            task.cancel()
        await asyncio.gather(following, *tasks, return_exceptions=True)
        feed.close()


async def _conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
    """Until the other side has everything."""
    await converse(reader, writer, handler)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def export(source: Source, now: datetime | None = None) -> str:
    """The page as one file, with what the source has now and all answers inside."""
    cluster = ClusterObjects()
    await source.load(cluster)
    feed = Feed(cluster, source.title, False)
    world = feed.world()
    feed.close()
    answers: dict[str, Any] = {}
    if len(world["holders"]) <= EXPLAINED_HOLDERS:
        holders = [Holder.parse(holder["key"]) for holder in world["holders"]]
        answers |= {f"/explain?{holder}": explain_holder(cluster, holder) for holder in holders}
        jobs = {f"{Holder.parse(one['key']).namespace}/{one['job']}" for one in world["holders"] if "job" in one}
        answers |= {f"/job?{job}": job_details(cluster, job) for job in sorted(jobs)}
    if len(world["nodes"]) <= DETAILED_NODES:
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
        raise InvalidInput(f"--listen {host}: only loopback addresses, such as 127.0.0.1; from elsewhere use ssh -L")
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
