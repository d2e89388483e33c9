"""The runtime's end: accept plugins on a socket and tell them what happens to pods and containers.

For tests and demonstrations that need a runtime without containers. It keeps the habits that matter of the real one:
plugins are called one after another in index order; an error fails the event; a plugin that overruns the request
time-out is disconnected and the event goes on as if it had never been there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

from google.protobuf.message import Message

from dranet.nri import messages
from dranet.nri.arrivals import RequestContext
from dranet.nri.errors import CallError, CallTimeout, Code, ConnectionClosed, NriError, PluginRejected
from dranet.nri.events import BY_HANDLER, PLUGIN, RUNTIME, EventKind, to_state_change
from dranet.nri.frames import MAX_MESSAGE
from dranet.nri.trunk import PLUGIN_SERVICE, RUNTIME_SERVICE, Trunk
from dranet.nri.ttrpc import Client, Server

log = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound=Message)
Updater = Callable[[messages.UpdateContainersRequest], Awaitable[messages.UpdateContainersResponse]]


@dataclass(frozen=True, slots=True)
class Inventory:
    """What exists: the content of a Synchronize."""

    pods: Sequence[messages.PodSandbox] = ()
    containers: Sequence[messages.Container] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """How this runtime behaves; it may be given others while it runs. `state_changes` announces events the way runtimes
    before NRI 0.10 do."""

    name: str = "played-runtime"
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
        """Listen for plugins; they may connect at any time from now on."""
        self._server = await Trunk.listen(self.socket, self._accept)

    async def stop(self) -> None:
        """Hang up on every plugin and remove the socket, as a runtime that ends does."""
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
        """Wait until the list of plugins is as wanted."""
        async with self._changed:
            await self._changed.wait_for(lambda: condition(self.plugins))

    async def run_pod_sandbox(self, pod: messages.PodSandbox) -> None:
        """Tell every plugin that a sandbox starts; raises where one refuses."""
        await self._announce("run_pod_sandbox", pod=pod)

    async def stop_pod_sandbox(self, pod: messages.PodSandbox) -> None:
        """Tell every plugin that a sandbox stops."""
        await self._announce("stop_pod_sandbox", pod=pod)

    async def remove_pod_sandbox(self, pod: messages.PodSandbox) -> None:
        """Tell every plugin that a sandbox is gone."""
        await self._announce("remove_pod_sandbox", pod=pod)

    async def create_container(
        self, pod: messages.PodSandbox, container: messages.Container
    ) -> messages.CreateContainerResponse:
        """What all plugins together want changed."""
        merged = messages.CreateContainerResponse()
        for answer in await self._announce("create_container", pod=pod, container=container):
            merged.MergeFrom(cast(messages.CreateContainerResponse, answer))
        return merged

    async def container_event(self, event: str, pod: messages.PodSandbox, container: messages.Container) -> None:
        """Any other event of a container, by the name of its handler: "start_container", "remove_container"..."""
        await self._announce(event, pod=pod, container=container)

    async def _announce(self, event: str, **arguments: Message) -> list[Message]:
        kind = BY_HANDLER[event]
        request = kind.request(**arguments)
        async with self._turn:
            answers = [await plugin.event(kind, request) for plugin in list(self._plugins)]
        return [answer for answer in answers if answer is not None]

    def _accept(self, trunk: Trunk) -> None:
        task = asyncio.get_running_loop().create_task(
            self._serve(ConnectedPlugin(trunk, lambda: self.settings, self.on_update))
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
            log.warning("plugin %s dropped: %s", plugin.id, error)
        finally:
            plugin.close()
            if plugin in self._plugins:
                self._plugins.remove(plugin)
                await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class ConnectedPlugin:
    """One plugin, seen from the runtime."""

    def __init__(self, trunk: Trunk, settings: Callable[[], Settings], on_update: Updater) -> None:
        self.id = "unregistered"
        self._trunk = trunk
        self._settings_now = settings
        self._on_update = on_update
        self._events = 0
        self._registered = asyncio.Event()
        self._client = Client(trunk, PLUGIN_SERVICE, limit=settings().message_limit)
        methods = {(RUNTIME, "RegisterPlugin"): self._register, (RUNTIME, "UpdateContainers"): self._update}
        self._server = Server(trunk, RUNTIME_SERVICE, methods)

    @property
    def _settings(self) -> Settings:
        return self._settings_now()

    async def register(self) -> None:
        """Wait for the plugin to say who it is, then configure it."""
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
        """Send everything; what one message cannot hold is sent in smaller parts."""
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
        """False when the part is too large for one message and could be made smaller."""
        try:
            answer = await self._call("Synchronize", request, messages.SynchronizeResponse)
        except CallError as error:
            if error.code != Code.RESOURCE_EXHAUSTED or last_chance:
                raise
            return False
        if answer.more != request.more:
            raise CallError(Code.UNIMPLEMENTED, "the plugin does not understand a Synchronize in parts")
        return True

    async def event(self, kind: EventKind, request: Message) -> Message | None:
        """The plugin's answer; None if it did not ask for the event, or hung up, or was too slow and is dropped."""
        if self._events and not self._events & kind.bit:
            return None
        try:
            if self._settings.state_changes and kind.state_change:
                return await self._call("StateChange", to_state_change(kind, request), messages.Empty)
            return await self._call(kind.call, request, kind.response)
        except ConnectionClosed:
            return None
        except CallTimeout:
            log.warning("plugin %s dropped: it did not answer %s in time", self.id, kind.call)
            self.close()
            return None
        except CallError as error:
            raise PluginRejected(self.id, kind.call, error) from None

    async def shutdown(self) -> None:
        """Say that the runtime is about to go."""
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
