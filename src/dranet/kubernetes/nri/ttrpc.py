"""ttrpc over a logical connection: a client and a server for unary calls (NRI has no others).

Calls run concurrently in both directions. A handler is never cancelled when its caller gives up: half-done work is
worse than late work. It gets the deadline in its context. But a request whose deadline has passed before the handler
starts is answered with an error and not carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from dranet.core.logs import get_logger
from dranet.kubernetes.nri.errors import CallError, CallTimeout, Code, ConnectionClosed
from dranet.kubernetes.nri.frames import MAX_MESSAGE, Frame, FrameReader, Kind, ttrpc_frame
from dranet.kubernetes.nri.mux import Mux
from dranet.kubernetes.nri.request_context import RequestContext
from dranet.kubernetes.nri.ttrpc_messages import Request, Response, Status

log = get_logger(__name__)

NANOSECONDS = 1_000_000_000

Answer = TypeVar("Answer", bound=Message)
# Takes the serialized request message, returns the response message.
Method = Callable[[bytes, RequestContext], Awaitable[Message]]


class Client:
    """Calls the peer's services over one logical connection."""

    def __init__(self, mux: Mux, connection: int, *, limit: int = MAX_MESSAGE) -> None:
        self._channel = mux.open(connection, self)
        self._reader = FrameReader(limit)
        self._limit = limit
        self._pending: dict[int, asyncio.Future[bytes]] = {}
        self._next_stream = 1

    async def call(
        self, service: str, method: str, request: Message, answer: type[Answer], *, timeout: float | None = None
    ) -> Answer:
        """Call and wait for the response. Raises CallError, or ConnectionClosed if the peer disconnects."""
        payload = self._encode(service, method, request, timeout)
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pending[stream] = future
        try:
            self._channel.write(ttrpc_frame(stream, Kind.REQUEST, payload))
            async with asyncio.timeout(timeout):
                return answer.FromString(await future)
        except TimeoutError:
            raise CallTimeout(method, timeout) from None
        finally:
            del self._pending[stream]

    def _encode(self, service: str, method: str, request: Message, timeout: float | None) -> bytes:
        nanoseconds = 0 if timeout is None else int(timeout * NANOSECONDS)
        call = Request(service=service, method=method, payload=request.SerializeToString(), timeout_nano=nanoseconds)
        payload = call.SerializeToString()
        if len(payload) > self._limit:
            raise CallError(Code.RESOURCE_EXHAUSTED, _too_large(f"{method} request", len(payload), self._limit))
        return payload

    def received(self, data: bytes) -> None:
        """Bytes of the peer. Late responses are dropped."""
        for frame in self._reader.feed(data):
            future = self._pending.get(frame.stream)
            if frame.kind == Kind.RESPONSE and future is not None and not future.done():
                self._settle(future, frame)

    def _settle(self, future: asyncio.Future[bytes], frame: Frame) -> None:
        if frame.payload is None:
            future.set_exception(CallError(Code.RESOURCE_EXHAUSTED, _too_large("answer", frame.length, self._limit)))
            return
        try:
            response = Response.FromString(frame.payload)
        except DecodeError as error:
            future.set_exception(CallError(Code.INTERNAL, f"the answer is not a ttrpc response: {error}"))
            return
        if response.status.code != Code.OK:
            future.set_exception(CallError(response.status.code, response.status.message))
        else:
            future.set_result(response.payload)

    def closed(self) -> None:
        """Fail all pending calls."""
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionClosed("the peer closed the connection before it responded"))


class Server:
    """Answers the peer's calls on one logical connection.

    `timeout` applies to requests without a timeout; it may change while the server runs. `work` collects the running
    handlers: pass a set to wait for them after the connection is closed.
    """

    def __init__(
        self,
        mux: Mux,
        connection: int,
        methods: Mapping[tuple[str, str], Method],
        *,
        timeout: float | None = None,
        limit: int = MAX_MESSAGE,
        work: set[asyncio.Task[None]] | None = None,
    ) -> None:
        self.timeout = timeout
        self._trunk = mux
        self._channel = mux.open(connection, self)
        self._methods = methods
        self._reader = FrameReader(limit)
        self._limit = limit
        self._work = set() if work is None else work
        self._stopping = False

    def received(self, data: bytes) -> None:
        """Bytes of the peer. Every request runs in a task of its own."""
        for frame in self._reader.feed(data):
            task = asyncio.get_running_loop().create_task(self._serve(frame, self._trunk.arrivals.earliest()))
            self._work.add(task)
            task.add_done_callback(self._work.discard)

    def closed(self) -> None:
        """Nothing to do: running handlers see it in their context."""

    def reject_calls(self) -> None:
        """Answer every call from now on with UNAVAILABLE."""
        self._stopping = True

    async def shutdown(self, grace: float) -> None:
        """Reject new calls, wait for running ones, cancel those left after `grace` seconds."""
        self.reject_calls()
        await finish(self._work, grace)

    async def _serve(self, frame: Frame, received_at: float) -> None:
        try:
            payload = (await self._answer(frame, received_at)).SerializeToString()
            response = Response(status=Status(), payload=payload).SerializeToString()
            if len(response) > self._limit:
                raise CallError(Code.RESOURCE_EXHAUSTED, _too_large("answer", len(response), self._limit))
        except CallError as error:
            response = _failure(error.code, error.message)
        except Exception as error:
            log.exception("NRI handler failed")
            response = _failure(Code.UNKNOWN, str(error) or type(error).__name__)
        await self._send(frame.stream, response)

    async def _send(self, stream: int, response: bytes) -> None:
        try:
            self._channel.write(ttrpc_frame(stream, Kind.RESPONSE, response))
            await self._channel.drain()
        except ConnectionClosed:
            log.warning("Response not sent: the caller closed the connection")

    async def _answer(self, frame: Frame, received_at: float) -> Message:
        request = self._decode(frame)
        method = self._methods.get((request.service, request.method))
        if method is None:
            raise CallError(Code.UNIMPLEMENTED, f"no method {request.method} in service {request.service}")
        if self._stopping:
            raise CallError(Code.UNAVAILABLE, "shutting down")
        context = self._context(request, received_at)
        if context.expired():
            log.warning("Request dropped: its deadline passed before it was read", method=request.method)
            raise CallError(Code.DEADLINE_EXCEEDED, f"{request.method} arrived after its deadline")
        return await method(request.payload, context)

    def _decode(self, frame: Frame) -> Request:
        if frame.kind != Kind.REQUEST or frame.stream % 2 == 0:
            raise CallError(
                Code.INVALID_ARGUMENT, f"frame of kind {frame.kind} on stream {frame.stream} is not a request"
            )
        if frame.payload is None:
            raise CallError(Code.RESOURCE_EXHAUSTED, _too_large("request", frame.length, self._limit))
        try:
            return Request.FromString(frame.payload)
        except DecodeError as error:
            raise CallError(Code.INVALID_ARGUMENT, f"not a ttrpc request: {error}") from None

    def _context(self, request: Request, received_at: float) -> RequestContext:
        timeout = request.timeout_nano / NANOSECONDS if request.timeout_nano > 0 else self.timeout
        deadline = None if timeout is None else received_at + timeout
        return RequestContext(received_at, deadline, self._trunk.arrivals.now, self._trunk.hung_up)


async def finish(work: set[asyncio.Task[None]], grace: float) -> None:
    """Wait for running handlers, cancel those left after `grace` seconds."""
    if not work:
        return
    _, late = await asyncio.wait(work, timeout=grace)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)


def _failure(code: int, message: str) -> bytes:
    return Response(status=Status(code=code, message=message)).SerializeToString()


def _too_large(what: str, size: int, limit: int) -> str:
    return f"{what} of {size} bytes is above the limit of {limit}"
