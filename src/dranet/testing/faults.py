"""Transports to the fake API server, with injected faults, and an event loop with a virtual clock.

:class:`FaultyTransport` injects the faults of networks and busy servers. A lost request and a lost response are
different faults, because the server has processed the latter. The clock of :class:`InstantLoop` jumps to the next timer
instead of waiting for it, so minutes of back-off pass in microseconds and always in the same order.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import selectors
from collections.abc import AsyncGenerator, Callable, Coroutine
from enum import Enum
from typing import Any, ParamSpec, TypeVar

from dranet.core.http import Request
from dranet.kubernetes.api.errors import ConnectionLost
from dranet.testing.apirules import Refusal
from dranet.testing.apiserver import Response, SandboxApiServer, json_response

_T = TypeVar("_T")
_P = ParamSpec("_P")


class Fault(Enum):
    """A fault of a request."""

    LOST_REQUEST = "the request was lost"
    LOST_RESPONSE = "the response was lost"
    SERVER_ERROR = "500"
    TOO_MANY = "429 with Retry-After"
    UNAVAILABLE = "503"
    SLOW = "slow response"


class LocalTransport:
    """Requests in memory, without a socket."""

    def __init__(self, server: SandboxApiServer) -> None:
        self._server = server

    async def open(self, request: Request) -> Response:
        return await self._server.handle(request)

    async def close(self) -> None:
        pass


class FaultyTransport:
    """A local transport on which a fraction of the requests fails; ``rate`` may be changed at any time."""

    def __init__(self, server: SandboxApiServer, rng: random.Random, *, rate: float = 0.0, slow: float = 20.0) -> None:
        self._server = server
        self._rng = rng
        self._slow = slow
        self.rate = rate

    async def open(self, request: Request) -> Response:
        if self._rng.random() >= self.rate:
            return await self._server.handle(request)
        return await self._faulty(request, self._rng.choice(list(Fault)))

    async def close(self) -> None:
        pass

    async def _faulty(self, request: Request, fault: Fault) -> Response:
        if fault is Fault.LOST_REQUEST:
            raise ConnectionLost(f"{request}: {fault.value}")
        if fault is Fault.SERVER_ERROR:
            return json_response(Refusal(500, "etcdserver: request timed out").status, 500)
        if fault is Fault.UNAVAILABLE:
            return json_response(Refusal(503, "the server is shutting down").status, 503)
        if fault is Fault.TOO_MANY:
            response = json_response(Refusal(429, "too many requests", reason="TooManyRequests").status, 429)
            response.headers["retry-after"] = "1"
            return response
        if fault is Fault.SLOW:
            await asyncio.sleep(self._rng.random() * self._slow)
        response = await self._server.handle(request)
        if fault is Fault.SLOW:
            return response
        if response.lines is not None:
            return Response(response.status, lines=_broken(response.lines, self._rng.randrange(4)))
        raise ConnectionLost(f"{request}: {fault.value}")


async def _broken(lines: AsyncGenerator[bytes, None], after: int) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(lines):
        async for line in lines:
            if after == 0:
                raise ConnectionLost("the watch connection was closed")
            after -= 1
            yield line


class _InstantSelector(selectors.DefaultSelector):
    """Does not wait for timers, but adds up the time that it would have waited."""

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
        """Starts at zero and advances only when all tasks wait."""
        return self._instant.skipped


def run_instantly(main: Coroutine[Any, Any, _T]) -> _T:
    """Like ``asyncio.run``, in a loop where waiting takes no time."""
    with asyncio.Runner(loop_factory=InstantLoop) as runner:
        return runner.run(main)


def instantly(test: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, _T]:
    """Decorates a test that is a coroutine function: it runs in such a loop."""

    @functools.wraps(test)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return run_instantly(test(*args, **kwargs))

    return run
