"""A plugin's life, with the runtime played by the library's own other end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dranet.kubernetes.nri import (
    Backoff,
    ConnectionClosed,
    Handler,
    Plugin,
    PluginRejected,
    RequestContext,
    State,
    messages,
)
from dranet.kubernetes.nri.events import BY_HANDLER, EVENTS, subscription
from dranet.kubernetes.nri.runtime import Inventory, Runtime, Settings

PATIENT = Settings(request_timeout=60)


class Recorder(Handler):
    """Remembers its calls."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.synchronized: list[tuple[int, int]] = []
        self.configured: list[messages.ConfigureRequest] = []
        self.hold: Callable[[str], asyncio.Event | None] = lambda name: None

    async def configure(self, request: messages.ConfigureRequest, context: RequestContext) -> None:
        self.configured.append(request)

    async def synchronize(
        self, pods: Sequence[messages.PodSandbox], containers: Sequence[messages.Container], context: RequestContext
    ) -> Sequence[messages.ContainerUpdate]:
        self.synchronized.append((len(pods), len(containers)))
        return ()

    async def run_pod_sandbox(self, pod: messages.PodSandbox, context: RequestContext) -> None:
        self.seen.append(("run", pod.name))
        if (event := self.hold(pod.name)) is not None:
            await event.wait()
        if pod.name == "refused":
            raise RuntimeError("not on my watch")

    async def stop_pod_sandbox(self, pod: messages.PodSandbox, context: RequestContext) -> None:
        self.seen.append(("stop", pod.name))

    async def create_container(
        self, pod: messages.PodSandbox, container: messages.Container, context: RequestContext
    ) -> messages.CreateContainerResponse:
        variable = messages.KeyValue(key="POD", value=pod.name)
        return messages.CreateContainerResponse(adjust=messages.ContainerAdjustment(env=[variable]))

    async def start_container(
        self, pod: messages.PodSandbox, container: messages.Container, context: RequestContext
    ) -> None:
        self.seen.append(("start", container.name))


@asynccontextmanager
async def running(plugin: Plugin) -> AsyncIterator[Plugin]:
    task = asyncio.create_task(plugin.run())
    try:
        yield plugin
    finally:
        await plugin.stop()
        await task


def pod(name: str) -> messages.PodSandbox:
    return messages.PodSandbox(name=name, uid=f"uid-of-{name}")


def make(folder: Path, handler: Handler, name: str = "plug", index: str = "10", **options: object) -> Plugin:
    return Plugin(name, index, handler, socket=folder / "nri.sock", backoff=Backoff(first=0.001, limit=0.01), **options)  # type: ignore[arg-type]


async def test_a_plugin_registers_and_is_configured_and_synchronised(folder: Path) -> None:
    handler = Recorder()
    settings = Settings(name="rt", version="9", config="text", request_timeout=1.5)
    runtime = Runtime(folder / "nri.sock", lambda: Inventory([pod("a")], [messages.Container()]), settings)
    async with runtime, running(make(folder, handler)) as plugin:
        await plugin.ready()
        (request,) = handler.configured
        assert (request.runtime_name, request.runtime_version, request.config) == ("rt", "9", "text")
        assert request.request_timeout == 1500
        assert handler.synchronized == [(1, 1)]
        await runtime.wait_for(lambda plugins: plugins == ["10-plug"])


@pytest.mark.parametrize("state_changes", [False, True], ids=["a call per event", "state changes"])
async def test_events_reach_the_handler(folder: Path, state_changes: bool) -> None:
    handler = Recorder()
    settings = Settings(state_changes=state_changes)
    async with Runtime(folder / "nri.sock", settings=settings) as runtime, running(make(folder, handler)):
        await runtime.wait_for(bool)
        await runtime.run_pod_sandbox(pod("a"))
        await runtime.container_event("start_container", pod("a"), messages.Container(name="c"))
        await runtime.stop_pod_sandbox(pod("a"))
    assert handler.seen == [("run", "a"), ("start", "c"), ("stop", "a")]


async def test_an_event_nobody_asked_for_is_not_sent(folder: Path) -> None:
    handler = Recorder()
    async with Runtime(folder / "nri.sock") as runtime, running(make(folder, handler)):
        await runtime.wait_for(bool)
        await runtime.remove_pod_sandbox(pod("a"))
    assert handler.seen == []


def test_the_subscription_is_exactly_what_the_handler_overrides() -> None:
    wanted = {"run_pod_sandbox", "stop_pod_sandbox", "create_container", "start_container"}
    assert subscription(Recorder()) == sum(BY_HANDLER[name].bit for name in wanted)


def test_every_event_has_a_handler_method_and_its_messages() -> None:
    for kind in EVENTS:
        assert callable(getattr(Handler, kind.handler))
        assert set(kind.fields) <= set(kind.request.DESCRIPTOR.fields_by_name)
        assert kind.response.DESCRIPTOR.name == f"{kind.call}Response"


async def test_what_a_handler_does_not_override_answers_with_nothing_to_change() -> None:
    context = RequestContext(0.0, None, lambda: 0.0, lambda: False)
    for kind in EVENTS:
        assert await kind.deliver(Handler(), kind.request(), context) == kind.response()


async def test_a_refusal_fails_the_event_with_its_reason_and_keeps_the_plugin(folder: Path) -> None:
    async with Runtime(folder / "nri.sock") as runtime, running(make(folder, Recorder())):
        await runtime.wait_for(bool)
        with pytest.raises(PluginRejected, match="plugin 10-plug refused RunPodSandbox: not on my watch"):
            await runtime.run_pod_sandbox(pod("refused"))
        assert runtime.plugins == ["10-plug"]


async def test_plugins_are_called_in_index_order_and_their_changes_are_merged(folder: Path) -> None:
    class Marker(Handler):
        def __init__(self, mark: str) -> None:
            self.mark = mark

        async def create_container(
            self, pod: messages.PodSandbox, container: messages.Container, context: RequestContext
        ) -> messages.CreateContainerResponse:
            variable = messages.KeyValue(key=self.mark)
            return messages.CreateContainerResponse(adjust=messages.ContainerAdjustment(env=[variable]))

    late, early = make(folder, Marker("late"), index="20"), make(folder, Marker("early"), index="05")
    async with Runtime(folder / "nri.sock") as runtime, running(late), running(early):
        await runtime.wait_for(lambda plugins: len(plugins) == 2)
        answer = await runtime.create_container(pod("a"), messages.Container())
    assert [variable.key for variable in answer.adjust.env] == ["early", "late"]


async def test_a_large_state_arrives_in_parts_and_is_seen_whole(folder: Path) -> None:
    handler = Recorder()
    inventory = Inventory([pod(f"pod-{number}") for number in range(500)], [messages.Container(id="x")] * 300)
    runtime = Runtime(folder / "nri.sock", lambda: inventory, Settings(message_limit=2000))
    async with runtime, running(make(folder, handler)) as plugin:
        await plugin.ready()
    assert handler.synchronized == [(500, 300)]


async def test_a_slow_plugin_is_dropped_and_the_event_goes_on(folder: Path) -> None:
    handler, never = Recorder(), asyncio.Event()
    handler.hold = {"slow": never}.get
    async with Runtime(folder / "nri.sock", settings=PATIENT) as runtime:
        async with running(make(folder, handler)):
            await runtime.wait_for(bool)
            runtime.settings = Settings(request_timeout=0.05)
            await runtime.run_pod_sandbox(pod("slow"))
            runtime.settings = PATIENT
            await runtime.wait_for(lambda plugins: not plugins)
            await runtime.wait_for(bool)
            never.set()
    assert len(handler.synchronized) == 2


async def test_a_plugin_returns_when_the_runtime_restarts(folder: Path) -> None:
    handler = Recorder()
    async with running(make(folder, handler)):
        for generation in (1, 2, 3):
            async with Runtime(folder / "nri.sock") as runtime:
                await runtime.wait_for(bool)
                await runtime.run_pod_sandbox(pod(f"generation-{generation}"))
        assert len(handler.synchronized) == 3
    assert [name for _, name in handler.seen] == ["generation-1", "generation-2", "generation-3"]


async def test_a_plugin_started_before_its_runtime_waits_for_it(folder: Path) -> None:
    states: list[State] = []
    async with running(make(folder, Recorder(), on_state=states.append)) as plugin:
        await asyncio.sleep(0)
        async with Runtime(folder / "nri.sock"):
            await plugin.ready()
            assert states == [State.REGISTERING, State.READY]


async def test_an_unanswered_registration_is_given_up_and_tried_again(folder: Path) -> None:
    connections: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def hang_up_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await connections.put(writer)

    server = await asyncio.start_unix_server(hang_up_first, folder / "nri.sock")
    async with running(make(folder, Recorder())) as plugin:
        await connections.get()
        await connections.get()
        assert plugin.state is not State.READY
    server.close()


async def test_stop_finishes_the_event_under_way(folder: Path) -> None:
    handler, begun, release = Recorder(), asyncio.Event(), asyncio.Event()

    def hold(name: str) -> asyncio.Event:
        begun.set()
        return release

    handler.hold = hold
    async with Runtime(folder / "nri.sock") as runtime:
        plugin = make(folder, handler)
        task = asyncio.create_task(plugin.run())
        await runtime.wait_for(bool)
        event = asyncio.create_task(runtime.run_pod_sandbox(pod("held")))
        await begun.wait()
        stopping = asyncio.create_task(plugin.stop())
        done, _ = await asyncio.wait({stopping, task, event}, timeout=0.2)
        assert not done, "the event is still under way"
        release.set()
        await stopping
        await task
        await event
        await runtime.wait_for(lambda plugins: not plugins)


async def test_stop_waits_for_an_event_whose_connection_is_gone(folder: Path) -> None:
    handler, begun, release = Recorder(), asyncio.Event(), asyncio.Event()

    def hold(name: str) -> asyncio.Event:
        begun.set()
        return release

    handler.hold = hold
    plugin = make(folder, handler)
    task = asyncio.create_task(plugin.run())
    async with Runtime(folder / "nri.sock") as runtime:
        await runtime.wait_for(bool)
        event = asyncio.create_task(runtime.run_pod_sandbox(pod("held")))
        await begun.wait()
    await event
    stopping = asyncio.create_task(plugin.stop())
    await task
    assert not stopping.done()
    release.set()
    await stopping


async def test_a_plugin_stopped_before_it_ran_connects_to_nobody(folder: Path) -> None:
    handler = Recorder()
    async with Runtime(folder / "nri.sock"):
        plugin = make(folder, handler)
        await plugin.stop()
        await plugin.run()
    assert handler.configured == []


async def test_a_plugin_asks_the_runtime_for_updates(folder: Path) -> None:
    asked: list[str] = []

    async def update(request: messages.UpdateContainersRequest) -> messages.UpdateContainersResponse:
        asked.extend(each.container_id for each in request.update)
        return messages.UpdateContainersResponse(failed=request.update[1:])

    updates = [messages.ContainerUpdate(container_id=name) for name in ("one", "two")]
    async with Runtime(folder / "nri.sock", on_update=update), running(make(folder, Recorder())) as plugin:
        await plugin.ready()
        failed = await plugin.update_containers(updates)
    assert asked == ["one", "two"]
    assert [each.container_id for each in failed] == ["two"]


async def test_updates_without_a_runtime_fail_in_words(folder: Path) -> None:
    with pytest.raises(ConnectionClosed, match="no runtime"):
        await make(folder, Recorder()).update_containers([])


@pytest.mark.parametrize(("name", "index"), [("", "10"), ("plug", "1"), ("plug", "abc"), ("plug", "١٢")])
def test_a_bad_name_or_index_is_refused(folder: Path, name: str, index: str) -> None:
    with pytest.raises(ValueError, match="two digits"):
        make(folder, Handler(), name, index)
