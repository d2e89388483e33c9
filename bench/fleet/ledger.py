"""What goes over the wire: every request by verb, every byte, every second. Shared by all clients of a run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from dranet.basics.http import Request
from dranet.kube.http import NetTransport, Response


def verb(request: Request) -> str:
    """As the API server's metrics call it: list and watch are not get."""
    target = urlsplit(request.target)
    if request.method != "GET":
        return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[request.method]
    query = parse_qs(target.query)
    if "watch" in query:
        return "watch"
    return "list" if "limit" in query else "get"


@dataclass
class Ledger:
    """Counts since the last :meth:`turn`."""

    requests: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    seconds: Counter[int] = field(default_factory=Counter)
    received: int = 0
    sent: int = 0
    watches: int = 0
    connections: int = 0
    """Made since the last turn; `watches` are those open now."""

    def turn(self) -> None:
        """A new phase: counts begin at zero, what is open stays open."""
        self.requests, self.errors, self.seconds = Counter(), Counter(), Counter()
        self.received = self.sent = self.connections = 0

    def figures(self, nodes: int) -> dict[str, object]:
        """What was counted, as figures; peak and mean are over the seconds in which anything was asked."""
        total = self.requests.total()
        span = max(self.seconds) - min(self.seconds) + 1 if self.seconds else 0
        return {
            "requests": dict(sorted(self.requests.items())),
            "requests_per_node": round(total / nodes, 3),
            "errors": dict(self.errors),
            "connections_made": self.connections,
            "watches_open": self.watches,
            "bytes_received_per_node": self.received // nodes,
            "bytes_sent_per_node": self.sent // nodes,
            "seconds": span,
            "peak_per_second": max(self.seconds.values(), default=0),
            "mean_per_second": round(total / span, 1) if span else 0,
        }


class CountingTransport(NetTransport):
    """Our real transport, with a pen. `trouble` may answer in the server's place: None lets the request through."""

    ledger: Ledger
    trouble: Callable[[Request], Response | None] | None = None

    async def open(self, request: Request) -> Response:
        kind, ledger = verb(request), self.ledger
        ledger.requests[kind] += 1
        ledger.seconds[int(time.monotonic())] += 1
        ledger.sent += len(request.body)
        refused = self.trouble(request) if self.trouble else None
        if refused is not None:
            ledger.errors[str(refused.status)] += 1
            return refused
        try:
            response = await super().open(request)
        except BaseException as error:
            ledger.errors[type(error).__name__] += 1
            raise
        if response.status >= 400:
            ledger.errors[str(response.status)] += 1
        return _Counted(response, ledger, is_watch=kind == "watch" and response.status == 200)

    async def _connect(self):  # type: ignore[no-untyped-def]
        self.ledger.connections += 1
        return await super()._connect()


class _Counted:
    def __init__(self, response: Response, ledger: Ledger, *, is_watch: bool) -> None:
        self.status, self.headers = response.status, response.headers
        self._response, self._ledger, self._is_watch = response, ledger, is_watch
        ledger.watches += is_watch

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.chunks():
            self._ledger.received += len(chunk)
            yield chunk

    async def close(self) -> None:
        self._ledger.watches -= self._is_watch
        self._is_watch = False
        await self._response.close()


class Refusal:
    """An answer that never reached a server: too many requests, come back in a second."""

    status = 429
    headers: Mapping[str, str] = {"retry-after": "1"}

    async def chunks(self) -> AsyncIterator[bytes]:
        yield b'{"kind":"Status","code":429,"reason":"TooManyRequests","message":"too many requests"}'

    async def close(self) -> None:
        return
