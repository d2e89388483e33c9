"""An NRI plugin: connects, registers, is configured and synchronised, then handles events.

A runtime restarts, is upgraded, or drops a slow plugin. `run` reconnects forever with growing delays, and every new
connection begins with a Synchronize.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from dranet.core.aio import wait_at_most
from dranet.core.backoff import Backoff
from dranet.core.logs import get_logger
from dranet.kubernetes.nri import messages
from dranet.kubernetes.nri.errors import CallError, Code, ConnectionClosed, NriError
from dranet.kubernetes.nri.events import EVENTS, PLUGIN, RUNTIME, EventKind, from_state_change, subscription
from dranet.kubernetes.nri.handler import Handler
from dranet.kubernetes.nri.mux import PLUGIN_SERVICE, RUNTIME_SERVICE, Mux
from dranet.kubernetes.nri.request_context import ArrivalClock, RequestContext
from dranet.kubernetes.nri.ttrpc import Client, Method, Server, finish

log = get_logger(__name__)

DEFAULT_SOCKET = Path("/var/run/nri/nri.sock")
REGISTRATION_TIMEOUT = 5.0
REQUEST_TIMEOUT = 2.0
# Longer than any sensible request timeout: a handler that still runs then will not end by itself.
SHUTDOWN_GRACE = 5.0

Decoded = TypeVar("Decoded", bound=Message)


class State(Enum):
    """The state of the connection to the runtime."""

    DISCONNECTED = "disconnected"
    REGISTERING = "registering"
    READY = "ready"


class Plugin:
    """One plugin, identified by a name and a two-digit index; plugins are called in index order."""

    def __init__(
        self,
        name: str,
        index: str,
        handler: Handler,
        *,
        socket: Path = DEFAULT_SOCKET,
        backoff: Backoff | None = None,
        on_state: Callable[[State], None] | None = None,
    ) -> None:
        if not name or not (len(index) == 2 and index.isascii() and index.isdigit()):
            raise ValueError(f"a plugin needs a name and an index of two digits, got name {name!r} and index {index!r}")
        self.name = name
        self.index = index
        self.state = State.DISCONNECTED
        self._handler = handler
        self._socket = socket
        self._backoff = backoff or Backoff(limit=5.0)
        self._on_state = on_state
        self._session: _Session | None = None
        self._work: set[asyncio.Task[None]] = set()
        self._ready = asyncio.Event()
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Serve until `stop`. Waits for a runtime that is not running."""
        while not self._stopped.is_set():
            if await self._serve_once():
                self._backoff.reset()
            self._set_state(State.DISCONNECTED)
            await wait_at_most(self._backoff.next(), self._stopped)

    async def ready(self) -> None:
        """Wait until a runtime has registered, configured and synchronised the plugin."""
        await self._ready.wait()

    async def stop(self) -> None:
        """Finish running events, also those of closed connections, then disconnect."""
        self._stopped.set()
        session = self._session
        if session is not None:
            session.reject_calls()
        await finish(self._work, SHUTDOWN_GRACE)
        if session is not None:
            await session.disconnect()

    async def update_containers(
        self, updates: Sequence[messages.ContainerUpdate], evictions: Sequence[messages.ContainerEviction] = ()
    ) -> Sequence[messages.ContainerUpdate]:
        """Ask the runtime to change running containers; returns the updates that failed."""
        if self._session is None:
            raise ConnectionClosed("no runtime is connected")
        request = messages.UpdateContainersRequest(update=updates, evict=evictions)
        response = await self._session.call("UpdateContainers", request, messages.UpdateContainersResponse)
        return list(response.failed)

    async def _serve_once(self) -> bool:
        """Serve one connection until it closes. True if it became ready."""
        try:
            mux = await Mux.connect(self._socket, ArrivalClock())
        except OSError as error:
            log.info("Cannot connect to the runtime", socket=self._socket, error=error.strerror or error)
            return False
        session = self._session = _Session(mux, self._handler, self._work, self._on_synchronized)
        self._set_state(State.REGISTERING)
        try:
            if self._stopped.is_set():
                return False
            await session.register(self.name, self.index)
            await session.wait_closed()
        except NriError as error:
            log.warning("Registration with the runtime failed", socket=self._socket, error=error)
        finally:
            self._session = None
            mux.close()
        return self.state is State.READY

    def _on_synchronized(self) -> None:
        self._set_state(State.READY)

    def _set_state(self, state: State) -> None:
        if state is self.state:
            return
        log.info("NRI connection changed", plugin=f"{self.index}-{self.name}", state=state.value)
        self.state = state
        self._ready.set() if state is State.READY else self._ready.clear()
        if self._on_state is not None:
            self._on_state(state)


class _Session:
    """One connection to a runtime."""

    def __init__(
        self, mux: Mux, handler: Handler, work: set[asyncio.Task[None]], on_synchronized: Callable[[], None]
    ) -> None:
        self._trunk = mux
        self._handler = handler
        self._on_synchronized = on_synchronized
        self._configured = asyncio.Event()
        self._pods: list[messages.PodSandbox] = []
        self._containers: list[messages.Container] = []
        self._server = Server(mux, PLUGIN_SERVICE, self._methods(), timeout=REQUEST_TIMEOUT, work=work)
        self._client = Client(mux, RUNTIME_SERVICE)

    async def register(self, name: str, index: str) -> None:
        """Register, then wait until the runtime configures the plugin."""
        request = messages.RegisterPluginRequest(plugin_name=name, plugin_idx=index)
        await self.call("RegisterPlugin", request, messages.Empty)
        closed = asyncio.ensure_future(self._trunk.wait_closed())
        configured = asyncio.ensure_future(self._configured.wait())
        try:
            done, _ = await asyncio.wait(
                {closed, configured}, timeout=REGISTRATION_TIMEOUT, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            closed.cancel()
            configured.cancel()
        if configured not in done:
            raise ConnectionClosed("the runtime accepted the registration but did not configure the plugin")

    async def call(self, method: str, request: Message, answer: type[Decoded]) -> Decoded:
        return await self._client.call(RUNTIME, method, request, answer, timeout=REGISTRATION_TIMEOUT)

    async def wait_closed(self) -> None:
        await self._trunk.wait_closed()

    def reject_calls(self) -> None:
        self._server.reject_calls()

    async def disconnect(self) -> None:
        await self._trunk.shutdown()

    def _methods(self) -> dict[tuple[str, str], Method]:
        methods: dict[tuple[str, str], Method] = {
            (PLUGIN, "Configure"): self._configure,
            (PLUGIN, "Synchronize"): self._synchronize,
            (PLUGIN, "Shutdown"): self._shutdown,
            (PLUGIN, "StateChange"): self._state_change,
        }
        methods.update({(PLUGIN, kind.call): self._event(kind) for kind in EVENTS})
        return methods

    def _event(self, kind: EventKind) -> Method:
        async def deliver(payload: bytes, context: RequestContext) -> Message:
            return await kind.deliver(self._handler, _decode(kind.request, payload), context)

        return deliver

    async def _state_change(self, payload: bytes, context: RequestContext) -> Message:
        kind, request = from_state_change(_decode(messages.StateChangeEvent, payload))
        await kind.deliver(self._handler, request, context)
        return messages.Empty()

    async def _configure(self, payload: bytes, context: RequestContext) -> Message:
        request = _decode(messages.ConfigureRequest, payload)
        if request.request_timeout > 0:
            self._server.timeout = request.request_timeout / 1000
        await self._handler.configure(request, context)
        self._configured.set()
        return messages.ConfigureResponse(events=subscription(self._handler))

    async def _synchronize(self, payload: bytes, context: RequestContext) -> Message:
        """A large state comes in parts; the handler gets it complete."""
        request = _decode(messages.SynchronizeRequest, payload)
        self._pods.extend(request.pods)
        self._containers.extend(request.containers)
        if request.more:
            return messages.SynchronizeResponse(more=True)
        pods, self._pods = self._pods, []
        containers, self._containers = self._containers, []
        updates = await self._handler.synchronize(pods, containers, context)
        self._on_synchronized()
        return messages.SynchronizeResponse(update=updates)

    async def _shutdown(self, payload: bytes, context: RequestContext) -> Message:
        await self._handler.shutdown(context)
        return messages.Empty()


def _decode(message: type[Decoded], payload: bytes) -> Decoded:
    try:
        return message.FromString(payload)
    except DecodeError as error:
        raise CallError(Code.INVALID_ARGUMENT, f"not a {message.DESCRIPTOR.name}: {error}") from None
