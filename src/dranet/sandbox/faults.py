"""Trouble on the way to the API server, and time that passes at once.

:class:`FaultyTransport` stands between a client and a :class:`SandboxApiServer` and does what networks and busy servers
do. Two kinds of loss are told apart, because they need different care: a request that never arrived, and one that was
carried out although its answer was lost. :class:`InstantLoop` is an event loop whose clock jumps to the next timer
instead of waiting for it, so minutes of back-off pass in microseconds and always in the same order.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import selectors
from collections.abc import AsyncGenerator, Coroutine
from enum import Enum
from typing import Any, TypeVar

from dranet.basics.http import Request
from dranet.kube.errors import ConnectionLost
from dranet.sandbox.apirules import Refusal
from dranet.sandbox.apiserver import Answer, SandboxApiServer, answer_json

T = TypeVar("T")


class Trouble(Enum):
    """What may happen to a request."""

    LOST_REQUEST = "never arrived"
    LOST_ANSWER = "carried out, but no answer came"
    SERVER_ERROR = "500"
    TOO_MANY = "429 with Retry-After"
    UNAVAILABLE = "503"
    SLOW = "answered late"


class LocalTransport:
    """Requests answered in memory, without a socket."""

    def __init__(self, server: SandboxApiServer) -> None:
        self._server = server

    async def open(self, request: Request) -> Answer:
        """The server's answer."""
        return await self._server.handle(request)

    async def close(self) -> None:
        """Nothing is held."""


class FaultyTransport:
    """A local transport on which a share of the requests meets trouble; ``rate`` may be changed at any time."""

    def __init__(self, server: SandboxApiServer, rng: random.Random, *, rate: float = 0.0, slow: float = 20.0) -> None:
        self._server = server
        self._rng = rng
        self._slow = slow
        self.rate = rate

    async def open(self, request: Request) -> Answer:
        """The server's answer, unless trouble comes first."""
        if self._rng.random() >= self.rate:
            return await self._server.handle(request)
        return await self._troubled(request, self._rng.choice(list(Trouble)))

    async def close(self) -> None:
        """Nothing is held."""

    async def _troubled(self, request: Request, trouble: Trouble) -> Answer:
        if trouble is Trouble.LOST_REQUEST:
            raise ConnectionLost(f"{request}: {trouble.value}")
        if trouble is Trouble.SERVER_ERROR:
            return answer_json(Refusal(500, "etcdserver: request timed out").status, 500)
        if trouble is Trouble.UNAVAILABLE:
            return answer_json(Refusal(503, "the server is shutting down").status, 503)
        if trouble is Trouble.TOO_MANY:
            answer = answer_json(Refusal(429, "too many requests", reason="TooManyRequests").status, 429)
            answer.headers["retry-after"] = "1"
            return answer
        if trouble is Trouble.SLOW:
            await asyncio.sleep(self._rng.random() * self._slow)
        answer = await self._server.handle(request)
        if trouble is Trouble.SLOW:
            return answer
        if answer.lines is not None:
            return Answer(answer.status, lines=_broken(answer.lines, self._rng.randrange(4)))
        raise ConnectionLost(f"{request}: {trouble.value}")


async def _broken(lines: AsyncGenerator[bytes, None], after: int) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(lines):
        async for line in lines:
            if after == 0:
                raise ConnectionLost("the watch broke off")
            after -= 1
            yield line


class _InstantSelector(selectors.DefaultSelector):
    """Never waits for a timer: reports how long it would have waited instead."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            return super().select(None)
        if not ready and timeout:
            self.skipped += timeout
        return ready


class InstantLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time."""

    def __init__(self) -> None:
        self._instant = _InstantSelector()
        super().__init__(self._instant)

    def time(self) -> float:
        """Starts at zero and moves only when everybody waits."""
        return self._instant.skipped


def run_instantly(main: Coroutine[Any, Any, T]) -> T:
    """Like ``asyncio.run``, in a loop where waiting takes no time."""
    with asyncio.Runner(loop_factory=InstantLoop) as runner:
        return runner.run(main)
