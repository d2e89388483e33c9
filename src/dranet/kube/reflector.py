"""List and watch, for ever: how to know what stands in the API server without asking again and again.

A broken watch is resumed where it stopped; only when the server has forgotten that point (410) everything is listed
again. Every trouble waits longer than the one before, with jitter, until something arrives.
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


class Listener(Protocol):
    """Who wants to know."""

    def replaced(self, items: list[Object]) -> None:
        """The complete state; forget everything known before."""

    def changed(self, event: WatchEvent) -> None:
        """One object was added, modified or deleted."""


Trouble = Callable[[str], None]
"""Told why what is known may be old, and with an empty text that it is true again."""


async def follow(
    client: KubeClient, resource: Resource, listener: Listener, *, fields: str = "", trouble: Trouble = lambda _: None
) -> None:
    """Keep ``listener`` informed until cancelled. A stream that breaks off and comes back at once is no trouble."""
    # Ten thousand nodes lose their watches in the same moment when an API server restarts: a long wait spreads them.
    backoff = Backoff(client.rng, limit=20.0)
    seconds = client.rng.randint(*WATCH_SECONDS)
    position = said = ""
    fresh = False

    def opened() -> None:
        nonlocal fresh
        fresh = True
        trouble("")

    while True:
        delay = 0.0
        try:
            if not position:
                items, position = await client.list(resource, fields=fields)
                listener.replaced(items)
            watch = client.watch(resource, position, fields=fields, seconds=seconds, opened=opened)
            async with contextlib.aclosing(watch) as events:
                async for event in events:
                    backoff.reset()
                    said = ""
                    position = event.object["metadata"].get("resourceVersion") or position
                    if event.type != "BOOKMARK":
                        listener.changed(event)
        except Expired:
            position = ""
        except (KubeError, TimeoutError) as error:
            delay = getattr(error, "retry_after", None) or 0.0
            log.log(logging.DEBUG if str(error) == said else logging.WARNING, "watching %s: %s", resource.plural, error)
            said = str(error)
            if not fresh:
                trouble(said or "it does not answer in time")
            fresh = False
        await asyncio.sleep(max(delay, backoff.next()))
