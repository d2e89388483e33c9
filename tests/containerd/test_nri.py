"""Our NRI plugin at a real container runtime: accepted, notified, obeyed, dropped when slow, back after a restart."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
import pytest

from dranet.kubernetes.nri import Backoff, CallError, Code, Handler, Plugin, RequestContext, State, messages
from tests.containerd.runtimebed import Cri, Runtime

# Registration and the like take milliseconds; this is for a machine that is busy with something else.
PATIENCE = 20


class Recorder(Handler):
    """Reports every event to the test; refuses a pod named "refused"; holds one named "held" until released."""

    def __init__(self) -> None:
        self.configured: list[messages.ConfigureRequest] = []
        self.synchronized: asyncio.Queue[list[str]] = asyncio.Queue()
        self.events: asyncio.Queue[tuple[str, messages.PodSandbox]] = asyncio.Queue()
        self.release = asyncio.Event()
        self.expired: asyncio.Queue[bool] = asyncio.Queue()

    async def configure(self, request: messages.ConfigureRequest, context: RequestContext) -> None:
        self.configured.append(request)

    async def synchronize(
        self, pods: Sequence[messages.PodSandbox], containers: Sequence[messages.Container], context: RequestContext
    ) -> Sequence[messages.ContainerUpdate]:
        self.synchronized.put_nowait([pod.name for pod in pods])
        return ()

    async def run_pod_sandbox(self, pod: messages.PodSandbox, context: RequestContext) -> None:
        self.events.put_nowait(("run", pod))
        if pod.name == "refused":
            raise CallError(Code.FAILED_PRECONDITION, "the reason a person reads")
        if pod.name == "held":
            await self.release.wait()
            self.expired.put_nowait(context.expired())

    async def stop_pod_sandbox(self, pod: messages.PodSandbox, context: RequestContext) -> None:
        self.events.put_nowait(("stop", pod))

    async def next_event(self) -> tuple[str, str]:
        async with asyncio.timeout(PATIENCE):
            kind, pod = await self.events.get()
        return kind, pod.name

    async def next_synchronize(self) -> list[str]:
        async with asyncio.timeout(PATIENCE):
            return await self.synchronized.get()


@asynccontextmanager
async def connected(runtime: Runtime, handler: Handler) -> AsyncIterator[Plugin]:
    plugin = Plugin("test", "10", handler, socket=runtime.nri_socket, backoff=Backoff(first=0.02, limit=0.2))
    task = asyncio.create_task(plugin.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await plugin.ready()
        yield plugin
    finally:
        await plugin.stop()
        await task


async def test_the_runtime_registers_configures_and_synchronises_the_plugin(runtime: Runtime, cri: Cri) -> None:
    handler = Recorder()
    await cri.run_sandbox("earlier", "uid-earlier")
    async with connected(runtime, handler) as plugin:
        assert plugin.state is State.READY
        (request,) = handler.configured
        assert (request.runtime_name, request.request_timeout) == (runtime.name, 500 if runtime.sends_timeout else 0)
        assert "earlier" in await handler.next_synchronize()


async def test_a_sandbox_made_and_stopped_over_cri_reaches_the_handler(runtime: Runtime, cri: Cri) -> None:
    handler = Recorder()
    async with connected(runtime, handler):
        sandbox = await cri.run_sandbox("plain", "uid-plain")
        kind, pod = await handler.events.get()
        assert (kind, pod.name, pod.uid, pod.namespace, pod.id) == ("run", "plain", "uid-plain", "default", sandbox)
        await cri.stop_sandbox(sandbox)
        assert await handler.next_event() == ("stop", "plain")


async def test_a_refusal_fails_the_sandbox_with_its_reason(runtime: Runtime, cri: Cri) -> None:
    handler = Recorder()
    async with connected(runtime, handler):
        with pytest.raises(grpc.aio.AioRpcError, match="the reason a person reads"):
            await cri.run_sandbox("refused", "uid-refused")
        assert await handler.next_event() == ("run", "refused")
        assert await handler.next_event() == ("stop", "refused")  # the runtime tidies up what was refused


async def test_a_message_of_megabytes_gets_through(runtime: Runtime) -> None:
    updates = [messages.ContainerUpdate(container_id="x" * 100, ignore_failure=True) for _ in range(30_000)]
    async with connected(runtime, Recorder()) as plugin:
        await plugin.update_containers(updates)


async def test_the_plugin_survives_a_restart_of_the_runtime_and_sees_what_runs(runtime: Runtime, cri: Cri) -> None:
    handler = Recorder()
    async with connected(runtime, handler) as plugin:
        await handler.next_synchronize()
        await cri.run_sandbox("survivor", "uid-survivor")
        await asyncio.to_thread(runtime.stop)
        await asyncio.to_thread(runtime.start)
        assert "survivor" in await handler.next_synchronize()
        async with asyncio.timeout(PATIENCE):
            await plugin.ready()
        await cri.run_sandbox("after", "uid-after")
        assert await handler.next_event() == ("run", "survivor")
        assert await handler.next_event() == ("run", "after")


def needs_starting_sandboxes(runtime: Runtime) -> None:
    if not runtime.lists_starting_sandboxes:
        pytest.skip("containerd 1.7 lists a sandbox only after its start; a plugin that reconnects does not see it")


async def test_a_slow_handler_is_dropped_and_knows_that_it_is_late(runtime: Runtime, cri: Cri) -> None:
    needs_starting_sandboxes(runtime)
    handler = Recorder()
    async with connected(runtime, handler):
        await handler.next_synchronize()
        await cri.run_sandbox("held", "uid-held")
        assert "held" in await handler.next_synchronize()
        handler.release.set()
        async with asyncio.timeout(PATIENCE):
            assert await handler.expired.get() is True


STOPPABLE = """
import asyncio, json, sys
from pathlib import Path
from dranet.kubernetes.nri import Backoff, Handler, Plugin

class Printer(Handler):
    async def synchronize(self, pods, containers, context):
        print(json.dumps(["synchronize", *(pod.name for pod in pods)]), flush=True)
        return ()
    async def run_pod_sandbox(self, pod, context):
        print(json.dumps(["run", pod.name]), flush=True)

asyncio.run(Plugin("stoppable", "11", Printer(), socket=Path(sys.argv[1]), backoff=Backoff(first=0.02)).run())
"""


async def test_trap_24_a_plugin_stopped_in_an_event_does_not_carry_it_out_when_it_wakes(
    runtime: Runtime, cri: Cri
) -> None:
    needs_starting_sandboxes(runtime)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STOPPABLE, str(runtime.nri_socket), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert "synchronize" in await reported(process)
        os.kill(process.pid, signal.SIGSTOP)
        await cri.run_sandbox("missed", "uid-missed")  # the runtime gives up on the plugin and goes on
        os.kill(process.pid, signal.SIGCONT)
        reported_next = await reported(process)
        assert reported_next[0] == "synchronize"
        assert "missed" in reported_next
    finally:
        process.kill()
        await process.communicate()


async def reported(process: asyncio.subprocess.Process) -> list[str]:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        words: list[str] = json.loads(await process.stdout.readline())
    return words
