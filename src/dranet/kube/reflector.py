"""Know what stands in the API server, for ever, without asking again and again.

Two ways, by how much there is. Who follows a few objects (a selector is given) asks for them out of the server's
memory, watches from there, and asks again when the stream breaks: a server that was restarted does not know where we
stopped. Who follows everything lists it page by page, watches from there, and resumes where the watch stopped; only a
server that has forgotten that point (410) is asked for the list again.

Why not a watch that begins with all objects (sendInitialEvents), one request instead of two? The server makes an event
of every object it has, and looks for ours among them afterwards: ten thousand nodes cost it a hundred million events. A
list finds a node's few slices by an index.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Protocol

from dranet.basics.backoff import Backoff
from dranet.kube.client import KubeClient, Object, WatchEvent
from dranet.kube.errors import Expired, KubeError
from dranet.kube.resources import Resource

log = logging.getLogger(__name__)

WATCH_SECONDS = (240, 480)
IN_TIME_SECONDS = 5
"""A watch that ends this much before its time was not ended by it: the server goes, and others lose theirs too."""
ALONE_SECONDS, LONGEST_SECONDS = 1.0, 20.0
"""Who is given less than the first to spread over is alone: it waits longer each time, up to the second."""


class Listener(Protocol):
    """Who wants to know."""

    def replaced(self, items: list[Object]) -> None:
        """The complete state; forget everything known before."""

    def changed(self, event: WatchEvent) -> None:
        """One object was added, modified or deleted."""


Trouble = Callable[[str], None]
"""Told why what is known may be old, and with an empty text that it is true again."""


async def follow(
    client: KubeClient,
    resource: Resource,
    listener: Listener,
    *,
    fields: str = "",
    trouble: Trouble = lambda _: None,
    spread: float = 0.1,
) -> None:
    """Keep ``listener`` informed until cancelled. A stream that breaks off and comes back at once is no trouble.

    ``spread``: within how many seconds a lost stream is asked for again. Ten thousand nodes lose theirs in the same
    moment when an API server ends, also where another one takes its place at once.
    """
    await _Follower(client, resource, listener, fields, trouble, spread).run()


class _Follower:
    def __init__(
        self, client: KubeClient, resource: Resource, listener: Listener, fields: str, trouble: Trouble, spread: float
    ) -> None:
        self._client, self._resource, self._listener, self._fields = client, resource, listener, fields
        self._trouble, self._spread = trouble, spread
        self._backoff = Backoff(client.rng, limit=LONGEST_SECONDS)
        self._seconds = client.rng.randint(*WATCH_SECONDS)
        self._position = self._said = ""
        self._resumable = False
        """Whether the watch may begin at the position; if not, everything is asked for before."""
        self._one_of_many = False
        """Whether a stream was lost before its time, and none has come since: everybody else is looking for one too."""
        self._opened: float | None = None
        self._fresh = False

    async def run(self) -> None:
        while True:
            self._opened = None
            refused = 0.0
            try:
                await self._listen()
            except Expired:
                self._resumable, self._opened = False, None
            except (KubeError, TimeoutError) as error:
                refused = getattr(error, "retry_after", None) or 0.0
                self._say(error)
            # Who is refused is told how long to wait, but so are all others, and the same second.
            await asyncio.sleep((refused + self._client.rng.random() if refused else 0.0) + self._wait())

    async def _listen(self) -> None:
        """As long as one stream lasts."""
        if not self._resumable:
            items, self._position = await self._all()
            self._resumable = True
            self._listener.replaced(items)
        watch = self._client.watch(
            self._resource, self._position, fields=self._fields, seconds=self._seconds, opened=self._on_open
        )
        async with contextlib.aclosing(watch) as events:
            async for event in events:
                self._backoff.reset()
                self._said = ""
                self._take(event)

    async def _all(self) -> tuple[list[Object], str]:
        if not self._fields:
            return await self._client.list(self._resource)
        # Nothing older than what we know. Asked for once: a server whose etcd was set back never gets there.
        known, self._position = self._position, ""
        return await self._client.list_cached(self._resource, fields=self._fields, not_before=known)

    def _take(self, event: WatchEvent) -> None:
        self._position = event.object["metadata"].get("resourceVersion") or self._position
        if event.type != "BOOKMARK":
            self._listener.changed(event)

    def _on_open(self) -> None:
        self._opened = asyncio.get_running_loop().time()
        self._fresh = True
        self._one_of_many = False
        self._trouble("")

    def _wait(self) -> float:
        """How long until the next attempt.

        One of many comes at any time within the spread, and again so when nobody is there: waiting longer each time
        would bring those who came too early back together, and the last of them long after the server.
        """
        if self._opened is not None:
            lasted = asyncio.get_running_loop().time() - self._opened
            if lasted >= self._seconds - IN_TIME_SECONDS:
                return self._backoff.next()
            self._one_of_many = self._spread > ALONE_SECONDS
            if self._fields:
                self._resumable = False
        elif not self._one_of_many:
            return self._backoff.next()
        return self._client.rng.random() * self._spread

    def _say(self, error: Exception) -> None:
        level = logging.DEBUG if str(error) == self._said else logging.WARNING
        log.log(level, "watching %s: %s", self._resource.plural, error)
        self._said = str(error)
        if not self._fresh:
            self._trouble(self._said or "it does not answer in time")
        self._fresh = False
