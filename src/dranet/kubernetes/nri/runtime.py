"""A fake runtime: accepts plugins on a socket and sends them events of pods and containers.

For tests and demonstrations without containers. It behaves like a real one where it matters: it calls plugins one after
another in index order; an error fails the event; a plugin that exceeds the request timeout is disconnected and the
event continues without it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

from google.protobuf.message import Message

from dranet.core.logs import get_logger
from dranet.kubernetes.nri import messages
from dranet.kubernetes.nri.errors import CallError, CallTimeout, Code, ConnectionClosed, NriError, PluginRejected
from dranet.kubernetes.nri.events import BY_HANDLER, PLUGIN, RUNTIME, EventKind, to_state_change
from dranet.kubernetes.nri.frames import MAX_MESSAGE
from dranet.kubernetes.nri.mux import PLUGIN_SERVICE, RUNTIME_SERVICE, Mux
from dranet.kubernetes.nri.request_context import RequestContext
from dranet.kubernetes.nri.ttrpc import Client, Server

log = get_logger(__name__)

Answer = TypeVar("Answer", bound=Message)
Updater = Callable[[messages.UpdateContainersRequest], Awaitable[messages.UpdateContainersResponse]]


@dataclass(frozen=True, slots=True)
class Inventory:
    """The content of a Synchronize."""

    pods: Sequence[messages.PodSandbox] = ()
    containers: Sequence[messages.Container] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """The runtime's behaviour; may be replaced while it runs. `state_changes` sends events as runtimes before NRI 0.10
    do."""

    name: str = "fake-runtime"
    version: str = "1.0"
    config: str = ""
    registration_timeout: float = 5.0
    request_timeout: float = 2.0
    state_changes: bool = False
    message_limit: int = MAX_MESSAGE


async def _refuse_updates(request: messages.UpdateContainersRequest) -> messages.UpdateContainersResponse:
    return messages.UpdateContainersResponse(failed=request.update)


@dataclass
class Runtime:
    """A runtime on a socket. Use as `async with Runtime(path) as runtime`."""

    socket: Path
    inventory: Callable[[], Inventory] = Inventory
    settings: Settings = field(default_factory=Settings)
    on_update: Updater = _refuse_updates

    def __post_init__(self) -> None:
        self._plugins: list[ConnectedPlugin] = []
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Runtime:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start listening for plugins."""
        self._server = await Mux.listen(self.socket, self._accept)

    async def stop(self) -> None:
        """Disconnect all plugins and remove the socket, as a runtime that stops does."""
        if self._server is None:
            return
        self._server.close()
        for plugin in list(self._plugins):
            await plugin.shutdown()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.socket.unlink(missing_ok=True)

    @property
    def plugins(self) -> Sequence[str]:
        """The synchronised plugins in calling order, as "index-name"."""
        return [plugin.id for plugin in self._plugins]

    async def wait_for(self, condition: Callable[[Sequence[str]], bool]) -> None:
        """Wait until the list of plugins meets the condition."""
        async with self._changed:
            await self._changed.wait_for(lambda: condition(self.plugins))

    async def run_pod_sandbox(self, pod: messages.PodSandbox) -> None:
        """Send the event to all plugins; raises PluginRejected."""
        await self._send_event("run_pod_sandbox", pod=pod)

    async def stop_pod_sandbox(self, pod: messages.PodSandbox) -> None:
        """Send the event to all plugins."""
        await self._send_event("stop_pod_sandbox", pod=pod)

    async def remove_pod_sandbox(self, pod: messages.PodSandbox) -> None:
        """Send the event to all plugins."""
        await self._send_event("remove_pod_sandbox", pod=pod)

    async def create_container(
        self, pod: messages.PodSandbox, container: messages.Container
    ) -> messages.CreateContainerResponse:
        """The merged adjustments of all plugins."""
        merged = messages.CreateContainerResponse()
        for answer in await self._send_event("create_container", pod=pod, container=container):
            merged.MergeFrom(cast(messages.CreateContainerResponse, answer))
        return merged

    async def container_event(self, event: str, pod: messages.PodSandbox, container: messages.Container) -> None:
        """Any other event of a container, by the name of its handler: "start_container", "remove_container"..."""
        await self._send_event(event, pod=pod, container=container)

    async def _send_event(self, event: str, **arguments: Message) -> list[Message]:
        kind = BY_HANDLER[event]
        request = kind.request(**arguments)
        async with self._turn:
            answers = [await plugin.event(kind, request) for plugin in list(self._plugins)]
        return [answer for answer in answers if answer is not None]

    def _accept(self, mux: Mux) -> None:
        task = asyncio.get_running_loop().create_task(
            self._serve(ConnectedPlugin(mux, lambda: self.settings, self.on_update))
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, plugin: ConnectedPlugin) -> None:
        try:
            await plugin.register()
            async with self._turn:
                await plugin.synchronize(self.inventory())
                self._plugins = sorted([*self._plugins, plugin], key=lambda each: each.id)
            await self._notify()
            await plugin.wait_closed()
        except (NriError, TimeoutError) as error:
            log.warning("Plugin disconnected", plugin=plugin.id, error=error)
        finally:
            plugin.close()
            if plugin in self._plugins:
                self._plugins.remove(plugin)
                await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class ConnectedPlugin:
    """The connection to one plugin."""

    def __init__(self, mux: Mux, settings: Callable[[], Settings], on_update: Updater) -> None:
        self.id = "unregistered"
        self._trunk = mux
        self._settings_now = settings
        self._on_update = on_update
        self._events = 0
        self._registered = asyncio.Event()
        self._client = Client(mux, PLUGIN_SERVICE, limit=settings().message_limit)
        methods = {(RUNTIME, "RegisterPlugin"): self._register, (RUNTIME, "UpdateContainers"): self._update}
        self._server = Server(mux, RUNTIME_SERVICE, methods)

    @property
    def _settings(self) -> Settings:
        return self._settings_now()

    async def register(self) -> None:
        """Wait for the plugin to register, then configure it."""
        async with asyncio.timeout(self._settings.registration_timeout):
            await self._registered.wait()
        request = messages.ConfigureRequest(
            config=self._settings.config,
            runtime_name=self._settings.name,
            runtime_version=self._settings.version,
            registration_timeout=int(self._settings.registration_timeout * 1000),
            request_timeout=int(self._settings.request_timeout * 1000),
        )
        self._events = (await self._call("Configure", request, messages.ConfigureResponse)).events

    async def synchronize(self, inventory: Inventory) -> None:
        """Send all pods and containers, in several parts if one message is too small."""
        pods, containers = list(inventory.pods), list(inventory.containers)
        share = max(len(pods), len(containers), 1)
        more = True
        while more:
            more = len(pods) > share or len(containers) > share
            request = messages.SynchronizeRequest(pods=pods[:share], containers=containers[:share], more=more)
            if not await self._synchronize_part(request, last_chance=share == 1):
                share, more = max(1, share // 2), True
                continue
            pods, containers = pods[share:], containers[share:]

    async def _synchronize_part(self, request: messages.SynchronizeRequest, *, last_chance: bool) -> bool:
        """False if the part is too large for one message and can be split."""
        try:
            answer = await self._call("Synchronize", request, messages.SynchronizeResponse)
        except CallError as error:
            if error.code != Code.RESOURCE_EXHAUSTED or last_chance:
                raise
            return False
        if answer.more != request.more:
            raise CallError(Code.UNIMPLEMENTED, "the plugin does not support Synchronize in several messages")
        return True

    async def event(self, kind: EventKind, request: Message) -> Message | None:
        """The plugin's response; None if it is not subscribed, has disconnected, or was too slow."""
        if self._events and not self._events & kind.bit:
            return None
        try:
            if self._settings.state_changes and kind.state_change:
                return await self._call("StateChange", to_state_change(kind, request), messages.Empty)
            return await self._call(kind.call, request, kind.response)
        except ConnectionClosed:
            return None
        except CallTimeout:
            log.warning("Plugin disconnected: no response in time", plugin=self.id, call=kind.call)
            self.close()
            return None
        except CallError as error:
            raise PluginRejected(self.id, kind.call, error) from None

    async def shutdown(self) -> None:
        """Notify the plugin that the runtime stops."""
        with contextlib.suppress(NriError):
            await self._call("Shutdown", messages.Empty(), messages.Empty)

    async def wait_closed(self) -> None:
        await self._trunk.wait_closed()

    def close(self) -> None:
        self._trunk.abort()

    async def _call(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        return await self._client.call(PLUGIN, method, request, answer, timeout=self._settings.request_timeout)

    async def _register(self, payload: bytes, context: RequestContext) -> Message:
        request = messages.RegisterPluginRequest.FromString(payload)
        if not request.plugin_name or len(request.plugin_idx) != 2 or not request.plugin_idx.isdigit():
            raise CallError(
                Code.INVALID_ARGUMENT, f"bad plugin name or index: {request.plugin_name!r}, {request.plugin_idx!r}"
            )
        self.id = f"{request.plugin_idx}-{request.plugin_name}"
        self._registered.set()
        return messages.Empty()

    async def _update(self, payload: bytes, context: RequestContext) -> Message:
        return await self._on_update(messages.UpdateContainersRequest.FromString(payload))
