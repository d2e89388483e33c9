"""What goes over the wire: every request by verb, every byte, every second. Shared by all clients of a run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from dranet.core.http import Request
from dranet.kubernetes.api.http import NetTransport, Response


def verb(request: Request) -> str:
    """As the API server's metrics call it: list and watch are not get."""
    target = urlsplit(request.target)
    if request.method != "GET":
        return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[request.method]
    query = parse_qs(target.query)
    if "watch" in query:
        return "watch"
    return "list" if {"limit", "resourceVersion"} & query.keys() else "get"


Trouble = Callable[[Request], Response | None]
"""May answer in the server's place; None lets the request through."""


@dataclass
class Ledger:
    """Counts since the last :meth:`turn`."""

    requests: Counter[str] = field(default_factory=Counter)
    served: Counter[str] = field(default_factory=Counter)
    """Those that were answered with what was asked for."""
    errors: Counter[str] = field(default_factory=Counter)
    seconds: Counter[int] = field(default_factory=Counter)
    """When requests came that were answered in some way; one that reaches no server is no load for one."""
    received: int = 0
    sent: int = 0
    watches: int = 0
    connections: int = 0
    """Made since the last turn; `watches` are those open now."""

    def turn(self) -> None:
        """A new phase: counts begin at zero, what is open stays open."""
        self.requests, self.served, self.errors, self.seconds = Counter(), Counter(), Counter(), Counter()
        self.received = self.sent = self.connections = 0

    def figures(self, nodes: int) -> dict[str, object]:
        """What was counted, as figures; peak and mean are over the seconds from the first request to the last."""
        total = self.requests.total()
        return {
            "requests": dict(sorted(self.requests.items())),
            "requests_per_node": round(total / nodes, 3),
            "served_per_node": round(self.served.total() / nodes, 3),
            "errors": dict(self.errors),
            "connections_made": self.connections,
            "watches_open": self.watches,
            "bytes_received_per_node": self.received // nodes,
            "bytes_sent_per_node": self.sent // nodes,
            "seconds": self.span,
            "peak_per_second": self.peak,
            "mean_per_second": round(self.mean, 1),
        }

    @property
    def span(self) -> int:
        """Seconds from the first request to the last."""
        return max(self.seconds) - min(self.seconds) + 1 if self.seconds else 0

    @property
    def peak(self) -> int:
        """Requests in the busiest second."""
        return max(self.seconds.values(), default=0)

    @property
    def mean(self) -> float:
        """Requests in a second of the span."""
        return self.seconds.total() / self.span if self.span else 0.0

    @property
    def writes(self) -> int:
        """Everything tried that changes something."""
        return _writes(self.requests)

    @property
    def written(self) -> int:
        """Everything that was changed."""
        return _writes(self.served)


def _writes(count: Counter[str]) -> int:
    return sum(number for kind, number in count.items() if kind not in {"get", "list", "watch"})


class CountingTransport(NetTransport):
    """Our real transport, with a pen. `trouble` may answer in the server's place: None lets the request through."""

    ledger: Ledger
    trouble: Trouble | None = None

    async def open(self, request: Request) -> Response:
        kind, ledger, came = verb(request), self.ledger, int(time.monotonic())
        ledger.requests[kind] += 1
        ledger.sent += len(request.body)
        refused = self.trouble(request) if self.trouble else None
        if refused is not None:
            ledger.errors[str(refused.status)] += 1
            ledger.seconds[came] += 1
            return refused
        try:
            response = await super().open(request)
        except BaseException as error:
            ledger.errors[type(error).__name__] += 1
            raise
        ledger.seconds[came] += 1
        if response.status >= 400:
            ledger.errors[str(response.status)] += 1
        else:
            ledger.served[kind] += 1
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
