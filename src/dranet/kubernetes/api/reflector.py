"""List and watch objects, as client-go's reflector does.

With a field selector there are few objects: they are listed from the server's watch cache, and listed again when the
watch breaks, because a restarted server does not know the old position. Without a selector all objects are listed page
by page, and the watch resumes where it stopped; only 410 (Expired) causes a new list.

Why not one watch with sendInitialEvents? For it the server makes an event of every object and filters afterwards: ten
thousand nodes would cost a hundred million events. A list finds a node's few slices by an index.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from dranet.core.aio import wait_at_most
from dranet.core.backoff import Backoff
from dranet.core.logs import get_logger
from dranet.kubernetes.api.client import KubeClient, Object, WatchEvent
from dranet.kubernetes.api.errors import Expired, KubeError
from dranet.kubernetes.api.resources import Resource

log = get_logger(__name__)

WATCH_SECONDS = (240, 480)
EARLY_END_SECONDS = 5
"""A watch that ends this much before its timeout was lost with its server, and all other clients lost theirs."""
MIN_SPREAD_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 20.0
"""With a smaller spread than the first, retries use a backoff up to the second instead."""


class EventHandler(Protocol):
    """Receives the objects and their changes."""

    def replaced(self, items: list[Object]) -> None:
        """The complete list; replaces all earlier objects."""

    def changed(self, event: WatchEvent) -> None:
        """One object was added, modified or deleted."""


OnError = Callable[[str], None]
"""Called with the reason why the objects may be stale, and with an empty text when they are current again."""


async def list_and_watch(
    client: KubeClient,
    resource: Resource,
    handler: EventHandler,
    *,
    fields: str = "",
    on_error: OnError = lambda _: None,
    spread: float = 0.1,
) -> None:
    """Call ``handler`` until cancelled. A watch that breaks and reconnects at once is not reported as an error.

    ``spread`` is the time in seconds over which clients reconnect. Ten thousand nodes lose their watches at the same
    moment when an API server stops, even if another one replaces it at once.
    """
    await Reflector(client, resource, handler, fields=fields, on_error=on_error, spread=spread).run()


class Reflector:
    """The task behind :func:`list_and_watch`, for callers that ask about the watch or cannot wait for it."""

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        handler: EventHandler,
        *,
        fields: str = "",
        on_error: OnError = lambda _: None,
        spread: float = 0.1,
    ) -> None:
        self._client, self._resource, self._handler, self._fields = client, resource, handler, fields
        self._on_error, self._spread = on_error, spread
        self._backoff = Backoff(client.rng, limit=MAX_BACKOFF_SECONDS)
        self._seconds = client.rng.randint(*WATCH_SECONDS)
        self._position = self._logged = ""
        self._resumable = False
        """Whether the watch can start at the position; if not, list first."""
        self._lost_with_server = False
        """Whether a watch ended early and none has opened since: then all other clients reconnect, too."""
        self._opened: float | None = None
        self._fresh = False
        self._retry = asyncio.Event()
        self.is_watching = False
        """Whether a watch is open; also while one that ended in its time is opened again."""

    def retry_now(self) -> None:
        """Open a lost watch at once, and retry soon until it is open."""
        self._lost_with_server = False
        self._backoff.reset()
        self._retry.set()

    async def run(self) -> None:
        while True:
            self._opened = None
            retry_after = 0.0
            try:
                await self._list_and_watch()
            except Expired:
                self._resumable, self._opened = False, None
                self.is_watching = False
            except (KubeError, TimeoutError) as error:
                retry_after = getattr(error, "retry_after", None) or 0.0
                self.is_watching = False
                self._report(error)
            # All clients get the same Retry-After: spread them over a second.
            delay = (retry_after + self._client.rng.random() if retry_after else 0.0) + self._delay()
            await wait_at_most(delay, self._retry)
            self._retry.clear()

    async def _list_and_watch(self) -> None:
        """List if necessary, then watch until the stream ends."""
        if not self._resumable:
            items, self._position = await self._list()
            self._resumable = True
            self._handler.replaced(items)
        watch = self._client.watch(
            self._resource, self._position, fields=self._fields, seconds=self._seconds, opened=self._on_open
        )
        async with contextlib.aclosing(watch) as events:
            async for event in events:
                self._backoff.reset()
                self._logged = ""
                self._take(event)

    async def _list(self) -> tuple[list[Object], str]:
        if not self._fields:
            return await self._client.list(self._resource)
        # Not older than the last position, but only once: a server with a restored etcd never reaches it.
        known, self._position = self._position, ""
        return await self._client.list_cached(self._resource, fields=self._fields, not_before=known)

    def _take(self, event: WatchEvent) -> None:
        self._position = event.object["metadata"].get("resourceVersion") or self._position
        if event.type != "BOOKMARK":
            self._handler.changed(event)

    def _on_open(self) -> None:
        self._opened = asyncio.get_running_loop().time()
        self._fresh = self.is_watching = True
        self._lost_with_server = False
        self._retry.clear()
        self._on_error("")

    def _delay(self) -> float:
        """Seconds until the next attempt.

        After the loss of a server, every attempt is at a random time within the spread. A backoff would synchronise the
        clients that came too early and delay the last of them.
        """
        if self._opened is not None:
            lasted = asyncio.get_running_loop().time() - self._opened
            if lasted >= self._seconds - EARLY_END_SECONDS:
                return self._backoff.next()
            self._lost_with_server = self._spread > MIN_SPREAD_SECONDS
            self.is_watching = False
            if self._fields:
                self._resumable = False
        elif not self._lost_with_server:
            return self._backoff.next()
        return self._client.rng.random() * self._spread

    def _report(self, error: Exception) -> None:
        # Log a repeated error only once.
        write = log.debug if str(error) == self._logged else log.warning
        write("Watch failed; will retry", resource=self._resource.plural, error=error)
        self._logged = str(error)
        if not self._fresh:
            self._on_error(self._logged or "no response in time")
        self._fresh = False
