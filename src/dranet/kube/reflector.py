"""Know what stands in the API server, for ever, without asking again and again.

Two ways, by how much there is. Who follows a few objects (a selector is given) asks for all of them and every change
after them in one request, and does so again when the stream breaks: that costs less than asking whether the server
still knows the point where it stopped, which one that was restarted never does. Who follows everything lists it page by
page, watches from there, and resumes where the watch stopped; only a server that has forgotten that point (410) is
asked for the list again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Protocol

from dranet.basics.backoff import Backoff
from dranet.kube.client import KubeClient, Object, WatchEvent
from dranet.kube.errors import Expired, Invalid, KubeError
from dranet.kube.resources import Resource

log = logging.getLogger(__name__)

WATCH_SECONDS = (240, 480)
IN_TIME_SECONDS = 5
"""A watch that ends this much before its time was not ended by it: the server goes, and others lose theirs too."""
ALONE_SECONDS, LONGEST_SECONDS = 1.0, 20.0
"""Who need not spread, because nobody else has lost the same, waits longer each time, up to the second."""
ALL_KNOWN = "k8s.io/initial-events-end"


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
        # Of many who wait longer and longer the last come long after the server: they all wait about the same instead.
        self._backoff = Backoff(client.rng, limit=spread if spread > ALONE_SECONDS else LONGEST_SECONDS)
        self._seconds = client.rng.randint(*WATCH_SECONDS)
        self._at_once = bool(fields)
        """Whether all objects come with the watch; False as well with a server that cannot do that (1.33)."""
        self._position = self._said = ""
        self._opened: float | None = None
        self._fresh = False

    async def run(self) -> None:
        while True:
            self._opened = None
            delay = 0.0
            try:
                await self._listen()
            except Expired:
                self._position, self._opened = "", None
            except (KubeError, TimeoutError) as error:
                delay = getattr(error, "retry_after", None) or 0.0
                self._say(error)
            await asyncio.sleep(max(delay, self._wait()))

    async def _listen(self) -> None:
        """As long as one stream lasts."""
        if not self._position and not self._at_once:
            items, self._position = await self._client.list(self._resource, fields=self._fields)
            self._listener.replaced(items)
        try:
            await self._hear()
        except Invalid:
            if not (self._at_once and not self._position):
                raise
            self._at_once = False

    async def _hear(self) -> None:
        coming: list[Object] | None = None if self._position else []
        watch = self._client.watch(
            self._resource, self._position, fields=self._fields, seconds=self._seconds, opened=self._on_open
        )
        async with contextlib.aclosing(watch) as events:
            async for event in events:
                self._backoff.reset()
                self._said = ""
                if coming is None:
                    self._take(event)
                elif event.type != "BOOKMARK":
                    coming.append(event.object)
                elif ALL_KNOWN in (event.object["metadata"].get("annotations") or {}):
                    self._position = event.object["metadata"]["resourceVersion"]
                    self._listener.replaced(coming)
                    coming = None

    def _take(self, event: WatchEvent) -> None:
        self._position = event.object["metadata"].get("resourceVersion") or self._position
        if event.type != "BOOKMARK":
            self._listener.changed(event)

    def _on_open(self) -> None:
        self._opened = asyncio.get_running_loop().time()
        self._fresh = True
        self._trouble("")

    def _wait(self) -> float:
        """How long until the next attempt."""
        lasted = 0.0 if self._opened is None else asyncio.get_running_loop().time() - self._opened
        if self._opened is None or lasted >= self._seconds - IN_TIME_SECONDS:
            return self._backoff.next()
        if self._at_once:
            self._position = ""
        return self._backoff.spread(self._spread)

    def _say(self, error: Exception) -> None:
        level = logging.DEBUG if str(error) == self._said else logging.WARNING
        log.log(level, "watching %s: %s", self._resource.plural, error)
        self._said = str(error)
        if not self._fresh:
            self._trouble(self._said or "it does not answer in time")
        self._fresh = False
